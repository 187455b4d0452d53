//! Transfers to cycle-exact exchange rows; row decoder and checker.

pub mod check;
mod compose;
pub mod fabric;
mod lanes;
mod order;
mod receive;
mod route;
mod schedule;
mod streams;
mod transfer;
mod word;

pub use check::{CheckError, check};
pub use order::{PhaseSchedule, Placed, Row, place_in_order};
pub use schedule::{Schedule, SchedulePolicy, schedule};
pub use transfer::{ExchangeError, Moving, Transfer, Width};
