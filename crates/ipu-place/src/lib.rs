//! Mid to tile program: shards, views, transfers, lifetimes, SRAM addresses; an independent checker.
//!
//! [`place`] runs the whole pass on one candidate, [`place_first`] on the first that fits: [`expand`]
//! lists the work, [`allocate`] gives it addresses, [`schedule_phases`] gives it exchange rows.
//! [`check`](check::check) and
//! [`replay`](check::replay) judge the result with code of their own.

mod allocate;
mod build;
mod calls;
pub mod check;
mod contention;
mod copies;
mod error;
mod expand;
mod fit;
mod grid;
mod host;
mod kernels;
mod life;
mod local;
mod phases;
mod problem;
mod runs;

use std::collections::BTreeMap;

use ipu_ir::contract::Contract;
use ipu_ir::mid::Mid;
use ipu_ir::program::{Placed, Reservations};
use ipub_base::{Memo, NoMemo};

pub use allocate::{SUPPORT_BASE, allocate, data_base, rows_base};
pub use error::{Attempt, ByteRange, Extent, GaveUp, Infeasible, PlaceError, Site};
pub use expand::expand;
pub use ipu_exchange::SchedulePolicy;
pub use phases::{schedule_phases, traffic};

/// Place one candidate.
pub fn place(
    mid: &Mid,
    contracts: &BTreeMap<String, Contract>,
    reservations: &Reservations,
    policy: &SchedulePolicy,
) -> Result<Placed, PlaceError> {
    place_recalled(mid, contracts, reservations, policy, &NoMemo)
}

/// Place one candidate; tile placements and phase schedules that the memo knows are not made again.
pub fn place_recalled(
    mid: &Mid,
    contracts: &BTreeMap<String, Contract>,
    reservations: &Reservations,
    policy: &SchedulePolicy,
    memo: &dyn Memo,
) -> Result<Placed, PlaceError> {
    let program = expand(mid, contracts)?;
    let names: Vec<&str> = mid
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    let addresses = allocate(&program, &names, reservations, memo)?;
    let phases = schedule_phases(&program, &addresses, reservations, policy, memo)?;
    Ok(Placed {
        program,
        addresses,
        phases,
        reservations: *reservations,
    })
}

/// Place the first candidate that fits; the failures of those before it come along, in order.
pub fn place_first<'a>(
    candidates: impl IntoIterator<Item = &'a Mid>,
    contracts: &BTreeMap<String, Contract>,
    reservations: &Reservations,
    policy: &SchedulePolicy,
) -> (Option<Placed>, Vec<PlaceError>) {
    let mut failures = Vec::new();
    for mid in candidates {
        match place(mid, contracts, reservations, policy) {
            Ok(placed) => return (Some(placed), failures),
            Err(failure) => failures.push(failure),
        }
    }
    (None, failures)
}
