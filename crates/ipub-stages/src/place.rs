//! Stage `place`: the first candidate that fits, with addresses and exchange rows.
//!
//! Inputs: `candidates`, `contracts`. Parameters: `reserve.*`, `schedule.*`.
//! Outputs: `placed` (postcard), `memory` (JSON), `chosen` (JSON: index, failures before it),
//! `recipe` (TOML of the one that fits).
//! Invariants: candidates are tried in order; what fits is checked by the placement checker.

use std::collections::BTreeMap;

use ipu_ir::contract::Contract;
use ipu_ir::program::{Placed, Reservations};
use ipu_place::{PlaceError, SchedulePolicy, data_base, rows_base};
use ipu_target::memory::LOADER_LIMIT;
use ipub_engine::{FailureKind, StageFailure, StageInputs, StageOutputs};
use serde::Serialize;

use crate::candidates::PlannedCandidate;
use crate::codec::{from_json, pack, to_json, unpack};
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("place", run);

#[derive(Serialize)]
struct Failed {
    candidate: usize,
    kind: &'static str,
    message: String,
    error: PlaceError,
}

#[derive(Serialize)]
struct Chosen<'a> {
    candidate: usize,
    candidates: usize,
    failures: &'a [Failed],
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let candidates: Vec<PlannedCandidate> = unpack("candidates", &inputs.input("candidates")?)?;
    let contracts: BTreeMap<String, Contract> =
        from_json("contracts", &inputs.input("contracts")?)?;
    let reservations: Reservations = inputs.params().section("reserve")?;
    let policy: SchedulePolicy = inputs.params().section("schedule")?;
    let count = candidates.len();
    let mut failures: Vec<Failed> = Vec::new();
    for (index, candidate) in candidates.into_iter().enumerate() {
        inputs.progress("candidate", index as u64, count as u64);
        let (mid, memo) = (&candidate.mid, inputs.memo());
        let placed = ipu_place::place_recalled(mid, &contracts, &reservations, &policy, memo);
        let placed = match placed {
            Ok(placed) => placed,
            Err(error @ PlaceError::Reservations { .. }) => {
                return Err(StageFailure::usage(error.to_string()));
            }
            Err(error) => {
                failures.push(Failed {
                    candidate: index,
                    kind: kind(&error).name(),
                    message: error.to_string(),
                    error,
                });
                continue;
            }
        };
        let chosen = Chosen {
            candidate: index,
            candidates: count,
            failures: &failures,
        };
        let names: Vec<&str> = candidate
            .mid
            .tensors
            .iter()
            .map(|tensor| tensor.name.as_str())
            .collect();
        // What was recalled is checked like what was made.
        let (fault, (packed, memory)) = rayon::join(
            || ipu_place::check::check(&placed, &contracts),
            || (pack("placed", &placed), memory(&placed, &names)),
        );
        fault.map_err(|fault| StageFailure::bug(format!("the placement is wrong: {fault}")))?;
        return Ok(StageOutputs::new()
            .with("placed", packed?)
            .with("memory", to_json("memory", &memory)?)
            .with("chosen", to_json("chosen", &chosen)?)
            .with("recipe", candidate.recipe)
            .note("candidate", index)
            .note("phases", placed.phases.len()));
    }
    Err(none_fits(&failures))
}

fn kind(error: &PlaceError) -> FailureKind {
    match error {
        PlaceError::Infeasible(_) => FailureKind::Infeasible,
        PlaceError::GaveUp(_)
        | PlaceError::RowsExceed { .. }
        | PlaceError::Shape { .. }
        | PlaceError::Exchange { .. } => FailureKind::GaveUp,
        _ => FailureKind::Bug,
    }
}

/// The proofs of all candidates; a broken invariant in any of them is told as such.
fn none_fits(failures: &[Failed]) -> StageFailure {
    let any = |kind: FailureKind| failures.iter().any(|failed| failed.kind == kind.name());
    let kind = [FailureKind::Bug, FailureKind::GaveUp]
        .into_iter()
        .find(|kind| any(*kind))
        .unwrap_or(FailureKind::Infeasible);
    let mut message = match failures.len() {
        1 => "the only candidate does not fit".to_owned(),
        count => format!("none of {count} candidates fits"),
    };
    for failed in failures {
        message += &format!("\n  {}: {}", failed.candidate, failed.message);
    }
    let mut failure = StageFailure::new(kind, message);
    failure.payload = to_json("failures", &failures).ok();
    if kind != FailureKind::Bug {
        let help = "use more tiles (`planner.tiles`), a smaller batch, FP8 operands, \
                    or lower reservations (`reserve.*`)";
        failure.help = Some(help.to_owned());
    }
    failure
}

/// Use of the data part of each tile. A byte is used if an allocation holds it at any time.
#[derive(Serialize)]
struct Memory {
    tiles: u32,
    data_bytes: u32,
    reserved_row_bytes: u32,
    reserved_support_bytes: u32,
    used_bytes: Spread,
    free_bytes: Spread,
    row_bytes: Spread,
    fullest: Vec<TileMemory>,
}

#[derive(Serialize)]
struct Spread {
    min: u32,
    median: u32,
    max: u32,
}

#[derive(Serialize)]
struct TileMemory {
    tile: u32,
    used_bytes: u32,
    free_bytes: u32,
    row_bytes: u32,
    /// The largest allocations.
    largest: Vec<Held>,
}

#[derive(Serialize)]
struct Held {
    tensor: String,
    address: u32,
    bytes: u32,
}

/// Tiles and allocations that the memory report shows.
const SHOWN: usize = 8;

fn memory(placed: &Placed, names: &[&str]) -> Memory {
    let program = &placed.program;
    let reservations = &placed.reservations;
    let base = data_base(reservations);
    let tiles = program.tiles as usize;
    let mut ranges: Vec<Vec<(u32, u32)>> = vec![Vec::new(); tiles];
    for (allocation, &address) in program.allocations.iter().zip(&placed.addresses) {
        if address >= base {
            ranges[allocation.tile as usize].push((address, address + extent(allocation)));
        }
    }
    let used: Vec<u32> = ranges.into_iter().map(union_bytes).collect();
    let mut rows = vec![0; tiles];
    for row in placed.phases.iter().flat_map(|phase| &phase.rows) {
        if let Some(bytes) = rows.get_mut(row.tile as usize) {
            *bytes += 4 * row.words.len() as u32;
        }
    }
    let data_bytes = LOADER_LIMIT - base;
    let free: Vec<u32> = used
        .iter()
        .map(|used| data_bytes.saturating_sub(*used))
        .collect();
    let mut order: Vec<usize> = (0..tiles).collect();
    order.sort_by_key(|&tile| (free[tile], tile));
    let fullest = order.into_iter().take(SHOWN).map(|tile| TileMemory {
        tile: tile as u32,
        used_bytes: used[tile],
        free_bytes: free[tile],
        row_bytes: rows[tile],
        largest: largest(placed, names, tile as u32),
    });
    Memory {
        tiles: program.tiles,
        data_bytes,
        reserved_row_bytes: base - rows_base(reservations),
        reserved_support_bytes: reservations.support_bytes,
        fullest: fullest.collect(),
        used_bytes: spread(used),
        free_bytes: spread(free),
        row_bytes: spread(rows),
    }
}

fn extent(allocation: &ipu_ir::program::Allocation) -> u32 {
    allocation.stride * allocation.members.saturating_sub(1) + allocation.bytes
}

fn largest(placed: &Placed, names: &[&str], tile: u32) -> Vec<Held> {
    let pairs = placed.program.allocations.iter().zip(&placed.addresses);
    let mut held: Vec<Held> = pairs
        .filter(|(allocation, _)| allocation.tile == tile)
        .map(|(allocation, &address)| Held {
            tensor: names
                .get(allocation.tensor as usize)
                .map_or_else(String::new, |name| (*name).to_owned()),
            address,
            bytes: extent(allocation),
        })
        .collect();
    held.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.address.cmp(&b.address)));
    held.truncate(SHOWN);
    held
}

/// Bytes covered by any of the ranges.
fn union_bytes(mut ranges: Vec<(u32, u32)>) -> u32 {
    ranges.sort_unstable();
    let (mut bytes, mut end) = (0, 0);
    for (first, last) in ranges {
        bytes += last.saturating_sub(first.max(end));
        end = end.max(last);
    }
    bytes
}

fn spread(mut values: Vec<u32>) -> Spread {
    values.sort_unstable();
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    Spread {
        min: at(0),
        median: at(values.len() / 2),
        max: at(values.len().saturating_sub(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_count_once() {
        assert_eq!(union_bytes(vec![(8, 16), (0, 4), (12, 20), (8, 10)]), 16);
        assert_eq!(union_bytes(Vec::new()), 0);
    }
}
