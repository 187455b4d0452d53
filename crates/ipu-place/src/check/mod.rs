//! The placement checker.
//!
//! Input: a placed program and the contracts. Output: nothing, or the first fault found.
//! Invariants: shares no code with expansion and allocation beyond the types of the IR; what a
//! kernel needs is read from its contract at each call, not from the allocation.
//! Not here: whether values arrive (`replay`), whether rows do what the transfers ask
//! (`ipu_exchange::check`).

mod labels;
mod memory;
mod replay;
mod uses;

use ipu_ir::contract::Contract;
use ipu_ir::program::{Place, Placed};
use std::collections::BTreeMap;
use thiserror::Error;

pub use replay::replay;

/// What is wrong with a placed program. Allocations are numbers of the tile program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("allocation {allocation} at {address:#x} is outside the memory that it may use")]
    Memory { allocation: u32, address: u32 },
    #[error("allocation {allocation} at {address:#x} is not aligned to {align}")]
    Alignment {
        allocation: u32,
        address: u32,
        align: u32,
    },
    #[error("allocations {a} and {b} overlap while both are live")]
    Overlap { a: u32, b: u32 },
    #[error("allocations {a} and {b} share a memory element")]
    Shared { a: u32, b: u32 },
    #[error("event {event}: allocation {allocation}: {what}")]
    Use {
        event: u32,
        allocation: u32,
        what: String,
    },
    #[error("event {event}: bytes of allocation {allocation} are written twice in one phase")]
    Twice { event: u32, allocation: u32 },
    #[error("event {event}: allocation {allocation} is used outside its life")]
    Life { event: u32, allocation: u32 },
    #[error("tile {tile}: row at {address:#x} is outside its reservation or overlaps another")]
    Row { tile: u32, address: u32 },
    #[error("replay: tile {tile}, address {address:#x}, event {event}: {what}")]
    Replay {
        tile: u32,
        address: u32,
        event: u32,
        what: String,
    },
}

/// Check everything that does not need values.
pub fn check(placed: &Placed, contracts: &BTreeMap<String, Contract>) -> Result<(), Fault> {
    let (memory, uses) = rayon::join(
        || memory::allocations(placed).and_then(|()| memory::rows(placed)),
        || uses::uses(placed, contracts),
    );
    memory.and(uses)
}

fn address(placed: &Placed, place: &Place) -> u32 {
    placed.addresses[place.allocation.0 as usize] + place.offset
}

/// Memory elements of a byte range, numbered across both regions.
fn elements(start: u32, bytes: u32) -> std::ops::RangeInclusive<u32> {
    let element = |at: u32| match at.checked_sub(0x80000) {
        None => at >> 14,
        Some(above) => 32 + (above >> 15),
    };
    element(start)..=element(start + bytes.max(1) - 1)
}

fn share_element(a: (u32, u32), b: (u32, u32)) -> bool {
    let (a, b) = (elements(a.0, a.1), elements(b.0, b.1));
    a.start() <= b.end() && b.start() <= a.end()
}
