//! Transfers to cycle-exact exchange rows; row decoder and checker.
//!
//! Input: the transfers of a phase, with tiles and addresses. Output: for each tile that takes part
//! the instruction words of its row, with their horizon.
//! Invariants: pure and deterministic; `fabric` and `check` share no code with what makes rows.
//! Not here: which phases there are, where data and rows lie, the code around a row, host packets.
//!
//! Two ways lead to rows. [`place_in_order`] places transfers in list order, each at its earliest
//! legal offset, and reproduces published rows bit for bit. [`schedule`] chooses the order, cuts,
//! joins and pairs, and is what builds use. [`check()`] runs rows on [`fabric`] and compares.

pub mod check;
mod compose;
pub mod fabric;
mod lanes;
mod normal;
mod order;
mod recall;
mod receive;
mod route;
mod schedule;
mod streams;
mod transfer;
mod word;

pub use check::{CheckError, check};
pub use order::{PhaseSchedule, Placed, Row, place_in_order};
pub use schedule::{Schedule, SchedulePolicy, schedule, schedule_recalled};
pub use transfer::{ExchangeError, Moving, Transfer, Width};
