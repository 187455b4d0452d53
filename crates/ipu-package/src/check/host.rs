//! The host plan against the bindings.
//!
//! Input: a package whose bindings are sound. Output: the first fault in slots or runs.
//! Invariants: the host moves the words of the bindings of a role, each once, and nothing else;
//! every tile that it deals with has one slot.
//! Not here: packets and programs.

use super::error::CheckError;
use crate::host::HostRun;
use crate::types::{Package, Role};

pub(super) fn check_host(package: &Package) -> Result<(), CheckError> {
    let plan = &package.host;
    let calls = [
        (Role::Parameter, &plan.parameters),
        (Role::Input, &plan.inputs),
        (Role::Output, &plan.outputs),
    ];
    // Transfers of a tile, and whether it has a slot.
    let mut tiles = vec![(false, false); package.tiles as usize];
    for run in calls.iter().flat_map(|(_, runs)| runs.iter()) {
        match tiles.get_mut(run.tile as usize) {
            Some(tile) => tile.0 = true,
            None => return Err(unsound(run)),
        }
    }
    for (slot, &tile) in plan.slots.iter().enumerate() {
        match tiles.get_mut(tile as usize) {
            Some((true, has_slot @ false)) => *has_slot = true,
            _ => return Err(CheckError::HostSlot { slot, tile }),
        }
    }
    for (role, runs) in calls {
        if let Some(run) = runs.iter().find(|run| !tiles[run.tile as usize].1) {
            return Err(unsound(run));
        }
        check_runs(package, role, runs)?;
    }
    Ok(())
}

fn unsound(run: &HostRun) -> CheckError {
    CheckError::HostRun {
        tile: run.tile,
        address: run.address,
        bytes: run.bytes,
    }
}

/// Tile, first byte and end.
type Span = (u32, u64, u64);

fn check_runs(package: &Package, role: Role, runs: &[HostRun]) -> Result<(), CheckError> {
    let mut planned: Vec<Span> = Vec::new();
    for run in runs {
        let start = u64::from(run.address);
        let span = (run.tile, start, start + u64::from(run.bytes));
        let follows = planned
            .last()
            .is_none_or(|last| last.0 < span.0 || last.0 == span.0 && last.2 <= span.1);
        if !follows || run.bytes == 0 || (run.address | run.bytes) % 4 != 0 {
            return Err(unsound(run));
        }
        extend(&mut planned, span);
    }
    let mut spans: Vec<Span> = package
        .bindings
        .iter()
        .filter(|binding| package.tensors[binding.tensor as usize].role == role)
        .map(|binding| {
            let start = u64::from(binding.address);
            let words = u64::from(binding.bytes().div_ceil(4));
            (binding.tile, start, start + 4 * words)
        })
        .collect();
    spans.sort_unstable();
    let mut bound: Vec<Span> = Vec::new();
    spans.into_iter().for_each(|span| extend(&mut bound, span));
    if planned == bound {
        return Ok(());
    }
    let same = planned.iter().zip(&bound).take_while(|(a, b)| a == b);
    let at = same.count();
    let first = [planned.get(at), bound.get(at)].into_iter().flatten().min();
    let &(tile, address, _) = first.expect("the lists differ");
    Err(CheckError::HostBytes {
        tile,
        address: address as u32,
        role,
    })
}

/// Append a span; what touches the last one makes it longer.
fn extend(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.0 == span.0 && last.2 >= span.1 => last.2 = last.2.max(span.2),
        _ => spans.push(span),
    }
}
