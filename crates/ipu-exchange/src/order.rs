//! Placement in list order: each transfer at its earliest legal offset.
//!
//! Input: transfers with requested offsets. Output: offsets, rows, horizon.
//! Invariants: a transfer that reads or writes bytes of an earlier one waits until that one is
//! complete; rows are only checked one by one when the quick way fails to align.
//! Not here: a good order (`schedule`).

use crate::lanes::{Lane, Lanes, partner_of};
use crate::receive::{Message, coincident};
use crate::route::Route;
use crate::transfer::{ExchangeError, Transfer, Width};
use std::collections::{BTreeMap, BTreeSet};

/// A tile's row in one phase.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Logical tile.
    pub tile: u32,
    /// Instruction words, the return included.
    pub words: Vec<u32>,
    /// Events until the row returns.
    pub horizon: u32,
    /// What the prologue writes to INCOMING_BASE.
    pub incoming_base: u32,
    /// The base of moving sources that the prologue holds in `$m6` and writes to OUTGOING_BASE;
    /// absent when the tile has none and OUTGOING_BASE is 0.
    pub moving_base: Option<u32>,
}

impl Row {
    /// The row as the machine sees it, wherever it may lie.
    pub fn input(&self) -> crate::fabric::RowInput<'_> {
        let moving_base = self.moving_base.unwrap_or(0);
        crate::fabric::RowInput {
            tile: self.tile,
            words: &self.words,
            incoming_base: self.incoming_base,
            outgoing_base: moving_base,
            moving_base,
            row_address: None,
        }
    }
}

/// When a transfer happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Placed {
    /// Index of the transfer in the input.
    pub transfer: u32,
    /// First word of the transfer that this placement moves; 0 unless it was cut.
    pub first_word: u32,
    pub words: u32,
    pub width: Width,
    pub offset: i32,
    pub send_start: i32,
}

/// A phase with its times and rows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PhaseSchedule {
    pub placed: Vec<Placed>,
    /// Rows of the tiles that take part, by tile.
    pub rows: Vec<Row>,
    pub horizon: u32,
}

/// How far a transfer is moved in search of rows that align.
const ALIGNMENT_ATTEMPTS_MAX: u32 = 4_096;

struct Plan<'a> {
    transfers: &'a [Transfer],
    routes: Vec<Route>,
    targets: Vec<Vec<u32>>,
    /// Incoming base of each receiver.
    incoming: BTreeMap<u32, u32>,
    moving: BTreeMap<u32, u32>,
}

/// Places transfers in list order, each at the earliest legal offset from `requested` on.
pub fn place_in_order(
    transfers: &[Transfer],
    requested: &[u32],
) -> Result<PhaseSchedule, ExchangeError> {
    for (index, transfer) in transfers.iter().enumerate() {
        transfer.validate(index)?;
    }
    let plan = plan(transfers)?;
    match place(&plan, requested, false) {
        Err(ExchangeError::Alignment { .. }) => place(&plan, requested, true),
        other => other,
    }
}

fn plan(transfers: &[Transfer]) -> Result<Plan<'_>, ExchangeError> {
    let mut received: BTreeMap<u32, u32> = BTreeMap::new();
    for &(tile, _) in transfers.iter().flat_map(|t| &t.destinations) {
        *received.entry(tile).or_default() += 1;
    }
    let mut plan = Plan {
        transfers,
        routes: Vec::with_capacity(transfers.len()),
        targets: Vec::with_capacity(transfers.len()),
        incoming: BTreeMap::new(),
        moving: moving_bases(transfers)?,
    };
    for (index, t) in transfers.iter().enumerate() {
        let tiles = t.destinations.iter().map(|d| d.0);
        let lone = t.width == Width::Word32
            && t.destinations.len() == 1
            && received[&t.destinations[0].0] == 1;
        plan.routes.push(if lone {
            let (tile, address) = t.destinations[0];
            plan.incoming.insert(tile, address);
            Route::point_to_point(t.source, tile)
        } else {
            Route::multicast(t.source, tiles, t.width)
        });
        plan.targets
            .push(t.destinations.iter().map(|d| d.1).collect());
        if coincident(&plan.message(index)) {
            return Err(ExchangeError::Coincident { transfer: index });
        }
    }
    Ok(plan)
}

/// The one base of each tile with moving sources.
pub(crate) fn moving_bases(transfers: &[Transfer]) -> Result<BTreeMap<u32, u32>, ExchangeError> {
    let mut bases = BTreeMap::new();
    for (transfer, t) in transfers.iter().enumerate() {
        if let Some(m) = &t.moving
            && *bases.entry(t.source).or_insert(m.base) != m.base
        {
            return Err(ExchangeError::Base {
                transfer,
                tile: t.source,
            });
        }
    }
    Ok(bases)
}

impl Plan<'_> {
    fn message(&self, index: usize) -> Message<'_> {
        let t = &self.transfers[index];
        let alone = t.destinations.len() == 1;
        let base = if alone {
            self.incoming.get(&t.destinations[0].0)
        } else {
            None
        };
        Message {
            route: &self.routes[index],
            items: t.items(),
            address: t.row_address() / t.width.bytes(),
            elements: t.source_elements(),
            targets: &self.targets[index],
            shift: 0,
            incoming_base: base.copied().unwrap_or(0),
        }
    }

    fn rows(&self, lanes: &Lanes) -> Result<Vec<Row>, ExchangeError> {
        let active = lanes
            .tiles
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.horizon > 0);
        active
            .map(|(tile, lane)| {
                let tile = tile as u32;
                Ok(Row {
                    tile,
                    words: lane.compose(tile)?,
                    horizon: lane.horizon as u32,
                    incoming_base: self.incoming.get(&tile).copied().unwrap_or(0),
                    moving_base: self.moving.get(&tile).copied(),
                })
            })
            .collect()
    }
}

fn place(plan: &Plan, requested: &[u32], checked: bool) -> Result<PhaseSchedule, ExchangeError> {
    let mut lanes = Lanes::new(false);
    for &tile in plan.moving.keys() {
        lanes.start_moving(tile);
    }
    let mut placed = Vec::with_capacity(plan.transfers.len());
    let mut complete: Vec<i32> = Vec::with_capacity(plan.transfers.len());
    for index in 0..plan.transfers.len() {
        let message = plan.message(index);
        switch(&mut lanes, plan, index, checked)?;
        let ready = dependency_ready(&plan.transfers[..index], &plan.transfers[index], &complete);
        let least = ready.max(requested.get(index).copied().unwrap_or(0) as i32);
        let mut offset = lanes.earliest(&message, least);
        if checked {
            offset = aligned_offset(&mut lanes, &message, offset)?;
        } else {
            lanes.commit(&message, offset);
        }
        complete.push(message.complete(offset));
        placed.push(Placed {
            transfer: index as u32,
            first_word: 0,
            words: plan.transfers[index].words,
            width: plan.transfers[index].width,
            offset,
            send_start: message.route.start + offset,
        });
    }
    let rows = plan.rows(&lanes)?;
    let horizon = rows.iter().map(|r| r.horizon).max().unwrap_or(0);
    Ok(PhaseSchedule {
        placed,
        rows,
        horizon,
    })
}

fn switch(
    lanes: &mut Lanes,
    plan: &Plan,
    index: usize,
    checked: bool,
) -> Result<(), ExchangeError> {
    let t = &plan.transfers[index];
    let register = if t.moving.is_some() { 6 } else { 15 };
    let before = checked.then(|| lanes.tiles[t.source as usize].clone());
    let mut least = 0;
    while lanes.switch_base(t.source, register, least) {
        let Some(before) = &before else { break };
        let lane = &mut lanes.tiles[t.source as usize];
        match lane.compose(t.source) {
            Err(ExchangeError::Alignment { .. }) => {
                least = lane.send_free() - ipu_target::exchange::BASE_WRITE_EVENTS as i32 + 1;
                *lane = before.clone();
            }
            other => return other.map(|_| ()),
        }
    }
    Ok(())
}

/// The earliest offset at which all touched rows can be written, with the message recorded.
fn aligned_offset(
    lanes: &mut Lanes,
    message: &Message,
    mut offset: i32,
) -> Result<i32, ExchangeError> {
    let mut tiles: BTreeSet<u32> = message.route.hops.iter().map(|h| h.tile).collect();
    tiles.insert(message.route.source);
    tiles.insert(partner_of(message.route.source));
    for attempt in 1.. {
        let state = |&t: &u32| (t, lanes.tiles[t as usize].clone());
        let before: Vec<(u32, Lane)> = tiles.iter().map(state).collect();
        lanes.commit(message, offset);
        let fault = tiles
            .iter()
            .find_map(|&t| lanes.tiles[t as usize].compose(t).err());
        match fault {
            None => return Ok(offset),
            Some(ExchangeError::Alignment { .. }) if attempt < ALIGNMENT_ATTEMPTS_MAX => {
                for (tile, lane) in before {
                    lanes.tiles[tile as usize] = lane;
                }
                offset = lanes.earliest(message, offset + 1);
            }
            Some(other) => return Err(other),
        }
    }
    Ok(offset)
}

fn dependency_ready(earlier: &[Transfer], later: &Transfer, complete: &[i32]) -> i32 {
    let waits = |other: &Transfer| {
        let from = bytes(later.source_address, later.bytes());
        other.destinations.iter().any(|&(tile, address)| {
            let written = bytes(address, other.bytes());
            (tile == later.source && overlap(written, from))
                || later
                    .destinations
                    .iter()
                    .any(|d| d.0 == tile && overlap(written, bytes(d.1, later.bytes())))
        }) || later.destinations.iter().any(|d| {
            let read = bytes(other.source_address, other.bytes());
            d.0 == other.source && overlap(bytes(d.1, later.bytes()), read)
        })
    };
    let done = earlier
        .iter()
        .zip(complete)
        .filter(|(t, _)| waits(t))
        .map(|(_, &c)| c);
    done.max().unwrap_or(0)
}

fn bytes(address: u32, count: u32) -> (u32, u32) {
    (address, address + count)
}

fn overlap(a: (u32, u32), b: (u32, u32)) -> bool {
    a.0 < b.1 && b.0 < a.1
}
