//! Transfers to cycle-exact exchange rows; row decoder and checker.

mod compose;
mod lanes;
mod order;
mod route;
mod transfer;
mod word;

pub use order::{PhaseSchedule, Placed, Row, place_in_order};
pub use transfer::{ExchangeError, Moving, Transfer, Width};
