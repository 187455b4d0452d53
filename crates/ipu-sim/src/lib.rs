//! Package image and host calls to outputs, cycles, samples.
//!
//! The machine words of a package run instruction by instruction: [`op`] resolves them,
//! [`exec`] says what they do, [`worker`] and [`supervisor`] run a tile and time it,
//! [`harness`] runs one tile for tests of kernels.

pub mod code;
pub mod context;
pub mod exec;
pub mod fault;
pub mod harness;
pub mod matrix;
pub mod memory;
pub mod numeric;
pub mod op;
pub mod supervisor;
pub mod tile;
pub mod worker;

pub use fault::{ContextId, DeviceFault, FaultKind, Use};
pub use harness::{CallResult, TileRun};
