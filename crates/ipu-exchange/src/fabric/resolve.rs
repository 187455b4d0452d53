//! Runs a phase: all rows together.
//!
//! Input: rows. Output: copies with times, or the first fault in tile order.
//! Invariants: near-linear in runs; tiles are independent once rows are decoded.
//! Not here: one tile's receives and memory (`tile`).

use super::row::{RowEvents, decode};
use super::tile::{Phase, Received, Taken, check_memory};
use super::{FabricError, PhaseEvents, RowInput, RowSpan};
use ipu_target::TILES;
use ipu_target::topology::{logical, pair_partner, physical};
use rayon::prelude::*;

/// What the rows do together.
pub fn resolve(rows: &[RowInput]) -> Result<PhaseEvents, FabricError> {
    let mut inputs = rows.to_vec();
    inputs.sort_by_key(|r| r.tile);
    if let Some(w) = inputs.windows(2).find(|w| w[0].tile == w[1].tile) {
        return Err(FabricError::Twice { tile: w[0].tile });
    }
    let mut index = vec![u32::MAX; TILES as usize];
    for (row, input) in inputs.iter().enumerate() {
        match index.get_mut(input.tile as usize) {
            Some(slot) => *slot = row as u32,
            None => {
                return Err(FabricError::Source {
                    tile: input.tile,
                    value: input.tile,
                    event: 0,
                });
            }
        }
    }
    let events: Vec<RowEvents> = in_order(inputs.par_iter().map(decode).collect())?;
    let phase = Phase {
        inputs: &inputs,
        events: &events,
        index: &index,
    };
    let all: Vec<usize> = (0..inputs.len()).collect();
    let received: Vec<Received> =
        in_order(all.par_iter().map(|&row| phase.receive(row)).collect())?;
    check_taken(&inputs, &events, &received)?;
    check_lanes(&phase)?;
    let memory = |&row: &usize| check_memory(&inputs[row], &events[row], &received[row].copies);
    let overlapping = in_order(all.par_iter().map(memory).collect())?;
    let span = |(input, e): (&RowInput, &RowEvents)| RowSpan {
        tile: input.tile,
        duration: e.duration,
        words: e.words,
    };
    Ok(PhaseEvents {
        copies: received.into_iter().flat_map(|r| r.copies).collect(),
        rows: inputs.iter().zip(&events).map(span).collect(),
        horizon: events.iter().map(|e| e.duration).max().unwrap_or(0),
        overlapping: overlapping.contains(&true),
    })
}

/// The first error by position, whatever thread met it.
fn in_order<T>(results: Vec<Result<T, FabricError>>) -> Result<Vec<T>, FabricError> {
    results.into_iter().collect()
}

/// Every word sent must be taken by somebody.
fn check_taken(
    inputs: &[RowInput],
    events: &[RowEvents],
    received: &[Received],
) -> Result<(), FabricError> {
    let mut by_row: Vec<Vec<Taken>> = vec![Vec::new(); inputs.len()];
    for taken in received.iter().flat_map(|r| &r.taken) {
        by_row[taken.row as usize].push(*taken);
    }
    let missed = |(row, list): (usize, &mut Vec<Taken>)| {
        list.sort_unstable_by_key(|t| (t.start, t.end));
        let mut next = list.iter().peekable();
        for run in &events[row].sends {
            let mut covered = run.start;
            while let Some(t) = next.next_if(|t| t.start <= covered && t.start < run.end) {
                covered = covered.max(t.end);
            }
            if covered < run.end {
                return Err(FabricError::Missed {
                    tile: inputs[row].tile,
                    event: covered,
                });
            }
        }
        Ok(())
    };
    in_order(by_row.par_iter_mut().enumerate().map(missed).collect()).map(|_| ())
}

/// A wide send uses the transmit lane of its partner.
fn check_lanes(phase: &Phase) -> Result<(), FabricError> {
    for (input, events) in phase.inputs.iter().zip(phase.events) {
        let partner = logical(pair_partner(physical(input.tile))).unwrap_or(input.tile);
        let row = phase.index[partner as usize];
        if row == u32::MAX {
            continue;
        }
        let others = &phase.events[row as usize].sends;
        for run in events.sends.iter().filter(|r| r.wide) {
            let next = others.partition_point(|o| o.end <= run.start);
            if let Some(other) = others.get(next).filter(|o| o.start < run.end) {
                let event = other.start.max(run.start);
                return Err(FabricError::Lane {
                    tile: partner,
                    event,
                });
            }
        }
    }
    Ok(())
}
