//! Phases to exchange rows.
//!
//! Input: a tile program with addresses, the schedule policy, the reservations. Output: a schedule for
//! each phase, its rows placed in the rows reservation of their tiles.
//! Invariants: sources in a sequence move by one stride for each tile and phase, relative to one
//! base; equal rows of one tile are stored once; rows are 8-byte aligned and followed by the
//! fetch look-ahead inside the reservation.
//! Not here: when a word moves (`ipu-exchange`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use ipu_exchange::{Moving, Schedule, SchedulePolicy, Transfer as Traffic, Width};
use ipu_ir::program::{
    Allocation, Place, PlacedPhase, Reservations, Row, Step, TileProgram, Transfer,
};
use ipu_target::exchange::ROW_ALIGN_BYTES;
use ipu_target::memory::{ELEMENT_BYTES, FETCH_LOOKAHEAD_BYTES};
use ipub_base::Memo;
use rayon::prelude::*;

use crate::allocate::rows_base;
use crate::error::{PlaceError, Site};

/// Shortest median transfer of a phase whose tile pairs receive 64 bits at a time: each paired receive
/// takes six or seven row words on two tiles, so that short ones cost more in rows than they save in
/// cycles.
const PAIRED_WORDS_MIN: u32 = 24;

fn median_words(traffic: &[Traffic]) -> u32 {
    let mut words: Vec<u32> = traffic.iter().map(|transfer| transfer.words).collect();
    let middle = words.len() / 2;
    match words.is_empty() {
        true => 0,
        false => *words.select_nth_unstable(middle).1,
    }
}

/// A phase of the program, in program order.
struct Phase<'a> {
    info: u32,
    transfers: &'a [Transfer],
}

fn collect<'a>(steps: &'a [Step], found: &mut Vec<Phase<'a>>) {
    for step in steps {
        match step {
            Step::Phase { info, transfers } => found.push(Phase {
                info: *info,
                transfers,
            }),
            Step::Repeat { body, .. } => collect(body, found),
            Step::HostUpload { .. } | Step::HostDownload { .. } | Step::Calls { .. } => {}
        }
    }
}

/// A tile's moving base in one phase: its value in iteration 0 and its step.
#[derive(Clone, Copy)]
struct Base {
    address: u32,
    stride: u32,
}

struct Placing<'a> {
    program: &'a TileProgram,
    addresses: &'a [u32],
}

impl Placing<'_> {
    fn allocation(&self, place: &Place) -> &Allocation {
        &self.program.allocations[place.allocation.0 as usize]
    }

    fn address(&self, place: &Place) -> u32 {
        self.addresses[place.allocation.0 as usize] + place.offset
    }

    fn site(&self, phase: &Phase) -> Site {
        let info = &self.program.infos[phase.info as usize];
        Site::new(&info.operation, &info.label)
    }

    fn bases(&self, phase: &Phase) -> Result<BTreeMap<u32, Base>, PlaceError> {
        let mut bases: BTreeMap<u32, Base> = BTreeMap::new();
        for transfer in phase.transfers {
            let allocation = self.allocation(&transfer.source);
            if allocation.members == 1 {
                continue;
            }
            let (tile, stride) = (allocation.tile, allocation.stride);
            let address = self.addresses[transfer.source.allocation.0 as usize];
            let base = bases.entry(tile).or_insert(Base { address, stride });
            if base.stride != stride {
                return Err(PlaceError::MovingStrides {
                    site: self.site(phase),
                    tile,
                    first: base.stride,
                    second: stride,
                });
            }
            base.address = base.address.min(address);
        }
        Ok(bases)
    }

    fn traffic(&self, transfer: &Transfer, bases: &BTreeMap<u32, Base>) -> Traffic {
        let allocation = self.allocation(&transfer.source);
        let source_address = self.address(&transfer.source);
        let last = (allocation.members - 1) * allocation.stride;
        let moving = (allocation.members > 1).then(|| Moving {
            base: bases[&allocation.tile].address,
            extent: source_address..source_address + last + 4 * transfer.words,
        });
        Traffic {
            source: allocation.tile,
            source_address,
            words: transfer.words,
            destinations: transfer
                .destinations
                .iter()
                .map(|place| (self.allocation(place).tile, self.address(place)))
                .collect(),
            width: Width::Word32,
            moving,
        }
    }

    fn schedule(
        &self,
        phase: &Phase,
        policy: &SchedulePolicy,
        memo: &dyn Memo,
    ) -> Result<(Schedule, BTreeMap<u32, Base>), PlaceError> {
        let bases = self.bases(phase)?;
        let traffic: Vec<Traffic> = phase
            .transfers
            .iter()
            .map(|transfer| self.traffic(transfer, &bases))
            .collect();
        let long = median_words(&traffic) >= PAIRED_WORDS_MIN;
        let policy = SchedulePolicy {
            pairing: policy.pairing && long,
            ..*policy
        };
        let schedule = ipu_exchange::schedule_recalled(&traffic, &policy, memo);
        let schedule = schedule.map_err(|error| PlaceError::Exchange {
            site: self.site(phase),
            what: error.to_string(),
        })?;
        Ok((schedule, bases))
    }
}

/// The traffic of every phase at its addresses, as schedules and their checkers see it.
pub fn traffic(program: &TileProgram, addresses: &[u32]) -> Result<Vec<Vec<Traffic>>, PlaceError> {
    let placing = Placing { program, addresses };
    let mut phases = Vec::new();
    collect(&program.steps, &mut phases);
    phases
        .iter()
        .map(|phase| {
            let bases = placing.bases(phase)?;
            let transfers = phase.transfers.iter();
            Ok(transfers
                .map(|transfer| placing.traffic(transfer, &bases))
                .collect())
        })
        .collect()
}

/// Schedule all phases, largest first, and place their rows in program order.
pub fn schedule_phases(
    program: &TileProgram,
    addresses: &[u32],
    reservations: &Reservations,
    policy: &SchedulePolicy,
    memo: &dyn Memo,
) -> Result<Vec<PlacedPhase>, PlaceError> {
    let placing = Placing { program, addresses };
    let mut phases = Vec::new();
    collect(&program.steps, &mut phases);
    // Tiles pair up as 2n and 2n + 1. The partner of a last even tile would need a row outside the
    // program.
    let policy = &SchedulePolicy {
        pairing: policy.pairing && program.tiles.is_multiple_of(2),
        ..*policy
    };
    let mut order: Vec<usize> = (0..phases.len()).collect();
    order.sort_by_cached_key(|&at| {
        let transfers = phases[at].transfers.iter();
        Reverse(transfers.map(|t| 1 + t.destinations.len()).sum::<usize>())
    });
    let mut schedules: Vec<(usize, Result<_, PlaceError>)> = order
        .into_iter()
        .par_bridge()
        .map(|at| (at, placing.schedule(&phases[at], policy, memo)))
        .collect();
    schedules.sort_by_key(|(at, _)| *at);
    let mut shelves = Shelves::new(program.tiles, reservations);
    let mut placed = Vec::with_capacity(phases.len());
    for (_, scheduled) in schedules {
        let (schedule, bases) = scheduled?;
        let rows = schedule.rows.into_iter().map(|row| Row {
            tile: row.tile,
            address: shelves.store(row.tile, &row.words),
            words: row.words,
            incoming_base: row.incoming_base,
            outgoing_base: row.moving_base.map(|base| {
                let step = bases.get(&row.tile).map_or(0, |base| base.stride);
                (base, step)
            }),
            horizon: row.horizon,
        });
        placed.push(PlacedPhase {
            rows: rows.collect(),
            horizon: schedule.horizon,
            bound: schedule.bound,
        });
    }
    shelves.check()?;
    Ok(placed)
}

/// The rows of each tile: where the next one goes, and where each known one stands.
struct Shelves {
    base: u32,
    /// Bytes that rows may use on a tile.
    bytes: u32,
    used: Vec<u32>,
    known: Vec<HashMap<Vec<u32>, u32>>,
}

impl Shelves {
    fn new(tiles: u32, reservations: &Reservations) -> Self {
        let whole = reservations.row_bytes.next_multiple_of(ELEMENT_BYTES);
        Shelves {
            base: rows_base(reservations),
            bytes: whole.saturating_sub(FETCH_LOOKAHEAD_BYTES),
            used: vec![0; tiles as usize],
            known: vec![HashMap::new(); tiles as usize],
        }
    }

    /// Address of a row.
    fn store(&mut self, tile: u32, words: &[u32]) -> u32 {
        let at = tile as usize;
        if let Some(&address) = self.known[at].get(words) {
            return address;
        }
        let address = self.base + self.used[at];
        self.known[at].insert(words.to_vec(), address);
        let bytes = 4 * words.len() as u32;
        self.used[at] += bytes.next_multiple_of(ROW_ALIGN_BYTES);
        address
    }

    fn check(&self) -> Result<(), PlaceError> {
        let worst = (0..self.used.len()).max_by_key(|&tile| (self.used[tile], usize::MAX - tile));
        match worst {
            Some(tile) if self.used[tile] > self.bytes => Err(PlaceError::RowsExceed {
                tile: tile as u32,
                needed: self.used[tile],
                reserved: self.bytes,
            }),
            _ => Ok(()),
        }
    }
}
