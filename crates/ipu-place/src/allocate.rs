//! Lifetimes to addresses.
//!
//! Input: a tile program and the reservations. Output: the address of each allocation, or the first
//! tile (in tile order) that has none, with its proof or its attempts.
//! Invariants: equal tile problems are solved once; results do not depend on threads.
//! Not here: when two problems are equal (`problem`), how one is solved (`fit`), rows.

use std::collections::HashMap;

use ipu_ir::program::{Allocation, Life, Reservations, Step, TileProgram};
use ipu_target::memory::{ELEMENT_BYTES, REGION_BOUNDARY};
use ipub_base::{Digest, Memo};
use rayon::prelude::*;

use crate::contention;
use crate::error::{Attempt, GaveUp, Infeasible, PlaceError};
use crate::fit::{Item, Misfit, Room};
use crate::problem;

/// First byte after runtime state and call frames: support, rows and data follow.
pub const SUPPORT_BASE: u32 = 0x5c000;

/// First byte of the rows.
pub const fn rows_base(reservations: &Reservations) -> u32 {
    SUPPORT_BASE + reservations.support_bytes.next_multiple_of(ELEMENT_BYTES)
}

/// First byte of data in region 0.
pub const fn data_base(reservations: &Reservations) -> u32 {
    rows_base(reservations) + reservations.row_bytes.next_multiple_of(ELEMENT_BYTES)
}

fn host_events(steps: &[Step], event: &mut u32, found: &mut Vec<u32>) {
    for step in steps {
        match step {
            Step::Repeat { body, .. } => host_events(body, event, found),
            Step::HostUpload { .. } | Step::HostDownload { .. } => {
                found.push(*event);
                *event += 1;
            }
            Step::Calls { .. } | Step::Phase { .. } => *event += 1,
        }
    }
}

fn room(program: &TileProgram, reservations: &Reservations) -> Result<Room, PlaceError> {
    let (mut events, mut host) = (0, Vec::new());
    host_events(&program.steps, &mut events, &mut host);
    let limit = REGION_BOUNDARY - SUPPORT_BASE;
    let fits = reservations.support_bytes <= limit
        && reservations.row_bytes <= limit
        && data_base(reservations) <= REGION_BOUNDARY;
    if !fits {
        return Err(PlaceError::Reservations {
            support_bytes: reservations.support_bytes,
            row_bytes: reservations.row_bytes,
            available: limit,
        });
    }
    Ok(Room {
        data: data_base(reservations),
        host_events: host,
        end: events.max(1) - 1,
    })
}

fn item(allocation: &Allocation, contenders: &[u32], local: &[u32]) -> Item {
    Item {
        bytes: (allocation.members - 1) * allocation.stride + allocation.bytes,
        align: allocation.align,
        class: allocation.class,
        over_read: allocation.over_read,
        life: match allocation.life {
            Life::Persistent => None,
            Life::Events { first, last } => Some((first, last)),
        },
        sequence: allocation.members > 1,
        distinct: allocation
            .distinct
            .iter()
            .map(|id| local[id.0 as usize])
            .collect(),
        contenders: contenders.iter().map(|&id| local[id as usize]).collect(),
    }
}

/// Place every allocation. `names` are those of the mid's tensors, for failures.
pub fn allocate(
    program: &TileProgram,
    names: &[&str],
    reservations: &Reservations,
    memo: &dyn Memo,
) -> Result<Vec<u32>, PlaceError> {
    let room = room(program, reservations)?;
    let contenders = contention::contenders(program);
    let mut by_tile: Vec<Vec<u32>> = vec![Vec::new(); program.tiles as usize];
    let mut local = Vec::with_capacity(program.allocations.len());
    for (index, allocation) in program.allocations.iter().enumerate() {
        let tile = &mut by_tile[allocation.tile as usize];
        local.push(tile.len() as u32);
        tile.push(index as u32);
    }
    let posed: Vec<(Vec<Item>, Digest)> = by_tile
        .par_iter()
        .map(|ids| {
            let items: Vec<Item> = ids
                .iter()
                .map(|&id| {
                    let at = id as usize;
                    item(&program.allocations[at], &contenders[at], &local)
                })
                .collect();
            let key = problem::key(&items, &room);
            (items, key)
        })
        .collect();
    // The map only finds equal problems again; their order is that of their first tiles.
    let mut known: HashMap<Digest, u32> = HashMap::new();
    let mut problems: Vec<usize> = Vec::new();
    let mut problem_of = Vec::with_capacity(by_tile.len());
    for (tile, (_, key)) in posed.iter().enumerate() {
        let next = problems.len() as u32;
        let index = *known.entry(*key).or_insert(next);
        if index == next {
            problems.push(tile);
        }
        problem_of.push(index);
    }
    let solved: Vec<Result<Vec<u32>, Misfit>> = problems
        .par_iter()
        .map(|&tile| problem::solve(&posed[tile].0, posed[tile].1, &room, memo))
        .collect();
    let mut answers = Vec::with_capacity(solved.len());
    for (answer, &tile) in solved.into_iter().zip(&problems) {
        let name = |item: u32| {
            let id = by_tile[tile][item as usize];
            let tensor = program.allocations[id as usize].tensor as usize;
            names.get(tensor).copied().unwrap_or_default().to_owned()
        };
        let answer = answer.map_err(|misfit| failure(tile as u32, misfit, &posed[tile].0, name))?;
        answers.push(answer);
    }
    let mut addresses = vec![0; program.allocations.len()];
    for (ids, &problem) in by_tile.iter().zip(&problem_of) {
        for (&id, &address) in ids.iter().zip(&answers[problem as usize]) {
            addresses[id as usize] = address;
        }
    }
    Ok(addresses)
}

fn failure(tile: u32, misfit: Misfit, items: &[Item], name: impl Fn(u32) -> String) -> PlaceError {
    match misfit {
        Misfit::Infeasible {
            class,
            event,
            needed,
            available,
            item,
        } => PlaceError::Infeasible(Box::new(Infeasible {
            tile,
            class,
            event,
            needed,
            available,
            tensor: name(item),
            bytes: items[item as usize].bytes,
        })),
        Misfit::GaveUp(stops) => PlaceError::GaveUp(Box::new(GaveUp {
            tile,
            attempts: stops
                .into_iter()
                .map(|stop| Attempt {
                    order: stop.order.to_owned(),
                    tensor: name(stop.item),
                    class: items[stop.item as usize].class,
                    bytes: items[stop.item as usize].bytes,
                    largest_hole: stop
                        .free
                        .iter()
                        .map(|(start, end)| end - start)
                        .max()
                        .unwrap_or(0),
                    free: stop.free,
                })
                .collect(),
        })),
    }
}
