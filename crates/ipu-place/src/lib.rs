//! Mid to tile program: shards, views, transfers, lifetimes, SRAM addresses; an independent checker.

mod allocate;
mod build;
mod calls;
mod copies;
mod error;
mod expand;
mod fit;
mod grid;
mod host;
mod kernels;
mod life;
mod runs;

pub use allocate::{SUPPORT_BASE, allocate, data_base, rows_base};
pub use error::{Attempt, ByteRange, GaveUp, Infeasible, PlaceError, Site};
pub use expand::expand;
