//! Where allocations and rows may stand.
//!
//! Input: a placed program. Output: the first misplaced allocation or row.
//! Not here: what calls and transfers do with them.

use ipu_ir::contract::MemoryClass;
use ipu_ir::program::{Allocation, Life, Placed, Step};

use super::{Fault, share_element};

const ELEMENT: u32 = 0x4000;
const SUPPORT: u32 = 0x5c000;
const REGION_1: u32 = 0x80000;
const LOADED_END: u32 = 0xe7bb0;
const MEMORY_END: u32 = 0xe8000;
const APERTURE: (u32, u32) = (0x50000, 0x58000);

fn span(allocation: &Allocation) -> u32 {
    (allocation.members - 1) * allocation.stride + allocation.bytes
}

fn inside(start: u32, bytes: u32, range: (u32, u32)) -> bool {
    range.0 <= start && u64::from(start) + u64::from(bytes) <= u64::from(range.1)
}

/// Support, then rows, then data: the first byte of rows and of data.
fn borders(placed: &Placed) -> (u32, u32) {
    let whole = |bytes: u32| bytes.div_ceil(ELEMENT) * ELEMENT;
    let rows = SUPPORT + whole(placed.reservations.support_bytes);
    (rows, rows + whole(placed.reservations.row_bytes))
}

fn host_events(steps: &[Step], event: &mut u32) -> Vec<u32> {
    let mut found = Vec::new();
    for step in steps {
        if let Step::Repeat { body, .. } = step {
            found.extend(host_events(body, event));
            continue;
        }
        if matches!(step, Step::HostUpload { .. } | Step::HostDownload { .. }) {
            found.push(*event);
        }
        *event += 1;
    }
    found
}

pub(super) fn allocations(placed: &Placed) -> Result<(), Fault> {
    let program = &placed.program;
    let host = host_events(&program.steps, &mut 0);
    let (_, data) = borders(placed);
    let mut tiles: Vec<Vec<usize>> = vec![Vec::new(); program.tiles as usize];
    for (index, allocation) in program.allocations.iter().enumerate() {
        tiles[allocation.tile as usize].push(index);
        let start = placed.addresses[index];
        let bytes = span(allocation);
        let between_host = match allocation.life {
            Life::Persistent => false,
            Life::Events { first, last } => {
                host.iter().all(|event| *event < first || last < *event)
            }
        };
        let standard = allocation.class == MemoryClass::Standard;
        let legal = inside(start, bytes, (REGION_1, LOADED_END))
            || (standard && inside(start, bytes, (data, REGION_1)))
            || (standard && between_host && inside(start, bytes, APERTURE));
        if !legal || start + bytes + allocation.over_read > MEMORY_END {
            return Err(Fault::Memory {
                allocation: index as u32,
                address: start,
            });
        }
        if !start.is_multiple_of(allocation.align)
            || (allocation.members > 1 && !allocation.stride.is_multiple_of(allocation.align))
        {
            return Err(Fault::Alignment {
                allocation: index as u32,
                address: start,
                align: allocation.align,
            });
        }
        for other in &allocation.distinct {
            let there = &program.allocations[other.0 as usize];
            let theirs = (placed.addresses[other.0 as usize], span(there));
            if there.tile == allocation.tile && share_element((start, bytes), theirs) {
                return Err(Fault::Shared {
                    a: index as u32,
                    b: other.0,
                });
            }
        }
    }
    tiles.iter_mut().try_for_each(|tile| overlaps(placed, tile))
}

fn overlaps(placed: &Placed, tile: &mut [usize]) -> Result<(), Fault> {
    let allocations = &placed.program.allocations;
    tile.sort_by_key(|&index| placed.addresses[index]);
    for (at, &a) in tile.iter().enumerate() {
        let end = placed.addresses[a] + span(&allocations[a]);
        for &b in &tile[at + 1..] {
            if placed.addresses[b] >= end {
                break;
            }
            let apart = match (allocations[a].life, allocations[b].life) {
                (
                    Life::Events { first, last },
                    Life::Events {
                        first: other_first,
                        last: other_last,
                    },
                ) => last < other_first || other_last < first,
                _ => false,
            };
            if !apart {
                return Err(Fault::Overlap {
                    a: a as u32,
                    b: b as u32,
                });
            }
        }
    }
    Ok(())
}

/// Rows lie in their reservation, 8-byte aligned; two on one place are equal.
pub(super) fn rows(placed: &Placed) -> Result<(), Fault> {
    let (first, end) = borders(placed);
    let mut rows: Vec<_> = placed.phases.iter().flat_map(|phase| &phase.rows).collect();
    rows.sort_by_key(|row| (row.tile, row.address));
    for (at, row) in rows.iter().enumerate() {
        let bytes = 4 * row.words.len() as u32;
        let next = rows.get(at + 1).filter(|next| next.tile == row.tile);
        let clash = next.is_some_and(|next| {
            let same = next.address == row.address && next.words == row.words;
            !same && next.address < row.address + bytes
        });
        if clash || !row.address.is_multiple_of(8) || !inside(row.address, bytes + 64, (first, end))
        {
            return Err(Fault::Row {
                tile: row.tile,
                address: row.address,
            });
        }
    }
    Ok(())
}
