//! The fast scheduler: balanced streams.
//!
//! Input: transfers of any length, a policy. Output: rows, their horizon and a lower bound.
//! Invariants: near-linear in messages; the result depends on the input alone; moving sources of a
//! tile go first, so that each tile writes its base at most once; every row composes.
//! Not here: legality of one message (`lanes`), words (`compose`).
//! Length: the queue of resources and the decisions that it replays are one state machine.
//!
//! A stream waits at one resource: the transmit lane of its source or the selection of one of its
//! receivers. When a resource falls free, it tries the streams that wait there. A stream that could
//! start about now sends its next chunk; one that is held up more by another resource goes to wait
//! there. Receivers try sources in tile order, going round: neighbours reach a set of receivers
//! with equal differences of route time, so that a multicast follows the one before it without a
//! gap.

use crate::lanes::Lanes;
use crate::normal::Normal;
use crate::order::{Row, moving_bases};
use crate::recall::{self, Decisions};
use crate::streams::{Groups, Pairing, Stream, Streams};
use crate::transfer::{ExchangeError, Transfer, Width};
use ipu_target::TILES;
use ipu_target::exchange::TRANSFER_ITEMS_MAX;
use ipub_base::{Memo, NoMemo};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound::{Excluded, Unbounded};

/// How a phase is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulePolicy {
    /// Most words that a stream sends before others get their turn.
    pub chunk_words: u32,
    /// Whether pairs of tiles that receive the same words may do so 64 bits at a time.
    pub pairing: bool,
}

impl Default for SchedulePolicy {
    fn default() -> Self {
        SchedulePolicy {
            chunk_words: 1_024,
            pairing: true,
        }
    }
}

/// A phase that is ready to be placed in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Rows of the tiles that take part, by tile.
    pub rows: Vec<Row>,
    /// Events of the longest row.
    pub horizon: u32,
    /// No schedule with these item widths is shorter: events in which the busiest tile sends or
    /// receives.
    pub bound: u32,
    /// Messages sent.
    pub messages: u32,
}

/// A multicast counts as held up when it would start more than this many events later than a
/// resource allows; a stream with one receiver already above an eighth of its chunk.
const SLACK: i32 = 48;
/// How many streams a resource compares before it takes one.
const LOOK_AHEAD: usize = 32;
/// A chunk that has come this close to its limit, in items, ends.
const ROOM_MIN: u32 = 8;
/// How often a stream gives way to others when memory elements hold it up.
const DEFERRALS_MAX: u8 = 4;
/// The register that holds the base of fixed sources, 0.
const FIXED_BASE: u32 = 15;

/// Rows for a phase.
pub fn schedule(
    transfers: &[Transfer],
    policy: &SchedulePolicy,
) -> Result<Schedule, ExchangeError> {
    schedule_recalled(transfers, policy, &NoMemo)
}

/// Rows for a phase; decisions made before for a phase of the same normal form are made again.
pub fn schedule_recalled(
    transfers: &[Transfer],
    policy: &SchedulePolicy,
    memo: &dyn Memo,
) -> Result<Schedule, ExchangeError> {
    for (index, transfer) in transfers.iter().enumerate() {
        transfer.validate_any_length(index)?;
    }
    let bases = moving_bases(transfers)?;
    let (streams, load) = balanced(transfers, policy)?;
    let normal = Normal::of(&streams, transfers.len(), policy);
    let mut lanes = Lanes::new(true);
    for (lane, shared) in lanes.tiles.iter_mut().zip(&normal.shared) {
        lane.windowless = !shared;
    }
    bases.keys().for_each(|&tile| lanes.start_moving(tile));
    let key = recall::key(normal.key);
    let known = memo
        .get(recall::KIND, key)
        .and_then(|decisions| recall::replay(&streams, lanes.clone(), &decisions));
    let (lanes, messages) = match known {
        Some(known) => known,
        None => {
            let mut run = Run::new(transfers.len(), &streams, &load, policy, lanes);
            run.start();
            run.finish()?;
            memo.put(recall::KIND, key, run.decisions.into_bytes());
            (run.lanes, run.messages)
        }
    };
    let active: Vec<u32> = (0..TILES)
        .filter(|&t| lanes.tiles[t as usize].horizon > 0)
        .collect();
    let row = |&tile: &u32| {
        let lane = &lanes.tiles[tile as usize];
        Ok(Row {
            tile,
            words: lane.compose(tile)?,
            horizon: lane.horizon as u32,
            incoming_base: 0,
            moving_base: bases.get(&tile).copied(),
        })
    };
    let rows: Vec<Result<Row, ExchangeError>> = active.par_iter().map(row).collect();
    let rows: Vec<Row> = rows.into_iter().collect::<Result<_, _>>()?;
    let horizon = rows.iter().map(|r| r.horizon).max().unwrap_or(0);
    Ok(Schedule {
        rows,
        horizon,
        bound: load.iter().copied().max().unwrap_or(0),
        messages,
    })
}

/// The streams of a phase and the load of each resource, paired if that eases the busiest one.
fn balanced(
    transfers: &[Transfer],
    policy: &SchedulePolicy,
) -> Result<(Streams, Vec<u32>), ExchangeError> {
    let groups = Groups::of(transfers)?;
    let streams = groups.streams(Pairing::Never);
    let load = load_of(&streams);
    if policy.pairing && groups.can_pair() {
        let paired = groups.streams(Pairing::WherePossible);
        let paired_load = load_of(&paired);
        if paired_load.iter().max() < load.iter().max() {
            return Ok((paired, paired_load));
        }
    }
    Ok((streams, load))
}

/// Events that each resource is needed for.
fn load_of(streams: &Streams) -> Vec<u32> {
    let mut load = vec![0; 2 * TILES as usize];
    for stream in &streams.list {
        let source = stream.route.source;
        load[source as usize] += stream.items;
        if stream.route.width == Width::Paired64 {
            load[crate::lanes::partner_of(source) as usize] += stream.items;
        }
        for tile in stream.tiles() {
            load[(TILES + tile) as usize] += stream.items;
        }
    }
    load
}

/// Marks a stream with more than one receiver.
const SEVERAL: u32 = u32::MAX;

fn ends(stream: &Stream) -> (u32, u32) {
    let hops = &stream.route.hops;
    (
        stream.route.source,
        if hops.len() == 1 {
            TILES + hops[0].tile
        } else {
            SEVERAL
        },
    )
}

/// A resource: the transmit lane of tile `r`, or the selection of tile `r - TILES`.
type Resource = u32;

/// What the clock brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    Resource(Resource),
    Stream(u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    fragment: u32,
    /// Items of the fragment that are placed.
    done: u32,
    /// Transfers that must complete first.
    unmet: u32,
    /// Least offset, from transfers that had to complete first.
    ready: i32,
    deferrals: u8,
}

struct Run<'a> {
    streams: &'a Streams,
    policy: &'a SchedulePolicy,
    load: &'a [u32],
    /// The source of each stream, and its receiver's resource when it has one only.
    ends: Vec<(u32, u32)>,
    /// Of the load, what is not yet placed.
    remaining: Vec<u32>,
    lanes: Lanes,
    progress: Vec<Progress>,
    waiting: Vec<BTreeSet<(u32, u32)>>,
    /// Where a receiver stands in the round of sources.
    round: Vec<(u32, u32)>,
    /// Whether a wake of the resource is in the clock.
    pending: Vec<bool>,
    clock: BinaryHeap<Reverse<(i32, u32, Wake)>>,
    /// Streams of moving sources not yet finished, for each tile.
    moving: Vec<u32>,
    /// Streams of fixed sources that wait for them.
    fixed: BTreeMap<u32, Vec<u32>>,
    /// Streams that wait for each transfer.
    dependents: BTreeMap<u32, Vec<u32>>,
    /// Items of each transfer that are not yet placed, and when the placed ones complete.
    transfers: Vec<(u32, i32)>,
    left: usize,
    messages: u32,
    decisions: Decisions,
}

impl<'a> Run<'a> {
    fn new(
        transfers: usize,
        streams: &'a Streams,
        load: &'a [u32],
        policy: &'a SchedulePolicy,
        lanes: Lanes,
    ) -> Self {
        let resources = 2 * TILES as usize;
        let mut run = Run {
            streams,
            policy,
            load,
            ends: streams.list.iter().map(ends).collect(),
            remaining: load.to_vec(),
            lanes,
            progress: vec![Progress::default(); streams.list.len()],
            waiting: vec![BTreeSet::new(); resources],
            round: vec![(0, 0); resources],
            pending: vec![false; resources],
            clock: BinaryHeap::new(),
            moving: vec![0; TILES as usize],
            fixed: BTreeMap::new(),
            dependents: BTreeMap::new(),
            transfers: vec![(0, 0); transfers],
            left: streams.list.len(),
            messages: 0,
            decisions: Decisions::default(),
        };
        for tile in 0..TILES {
            run.round[(TILES + tile) as usize] = (tile, 0);
        }
        run.count();
        run
    }

    /// Dependencies and moving streams.
    fn count(&mut self) {
        let mut stream_of = vec![0u32; self.transfers.len()];
        for (index, stream) in self.streams.list.iter().enumerate() {
            for fragment in &stream.fragments {
                stream_of[fragment.transfer as usize] = index as u32;
                self.transfers[fragment.transfer as usize].0 += fragment.items;
            }
            self.moving[stream.route.source as usize] += u32::from(stream.moving.is_some());
        }
        for &(earlier, later) in &self.streams.waits {
            let stream = stream_of[later as usize];
            self.dependents.entry(earlier).or_default().push(stream);
            self.progress[stream as usize].unmet += 1;
        }
    }

    fn start(&mut self) {
        for stream in 0..self.streams.list.len() as u32 {
            if self.progress[stream as usize].unmet == 0 {
                self.release(stream);
            }
        }
    }

    /// Lets a stream compete, unless moving sources of its tile go first.
    fn release(&mut self, stream: u32) {
        let s = self.stream(stream);
        let source = s.route.source;
        if s.moving.is_none() && self.moving[source as usize] > 0 {
            self.fixed.entry(source).or_default().push(stream);
            return;
        }
        let receivers = s.tiles().map(|t| TILES + t);
        let busiest = receivers
            .chain([source])
            .max_by_key(|&r| (self.load[r as usize], r));
        self.park(stream, busiest.unwrap_or(source));
    }

    fn stream(&self, stream: u32) -> &'a Stream {
        &self.streams.list[stream as usize]
    }

    fn free(&self, resource: Resource) -> i32 {
        if resource < TILES {
            self.lanes.tiles[resource as usize].send_free()
        } else {
            self.lanes.tiles[(resource - TILES) as usize]
                .last()
                .map_or(0, |l| l.source_end)
        }
    }

    fn wake(&mut self, resource: Resource) {
        if !self.pending[resource as usize] && !self.waiting[resource as usize].is_empty() {
            self.pending[resource as usize] = true;
            let urgency = u32::MAX - self.load[resource as usize];
            let event = (self.free(resource), urgency, Wake::Resource(resource));
            self.clock.push(Reverse(event));
        }
    }

    fn park(&mut self, stream: u32, resource: Resource) {
        let key = self.key(stream, resource);
        self.waiting[resource as usize].insert((key, stream));
        self.wake(resource);
    }

    /// A lane serves its busiest receivers first; a receiver goes round its sources.
    fn key(&self, stream: u32, resource: Resource) -> u32 {
        let s = self.stream(stream);
        if resource < TILES {
            let load = s.tiles().map(|t| self.load[(TILES + t) as usize]).max();
            u32::MAX - load.unwrap_or(0)
        } else {
            s.route.source
        }
    }

    fn finish(&mut self) -> Result<(), ExchangeError> {
        while let Some(Reverse((time, _, wake))) = self.clock.pop() {
            match wake {
                Wake::Resource(resource) => {
                    self.pending[resource as usize] = false;
                    if self.free(resource) > time {
                        self.wake(resource);
                    } else {
                        self.serve(resource);
                        self.wake(resource);
                    }
                }
                Wake::Stream(stream) => {
                    let (_, resource) = self.held_up(stream);
                    self.park(stream, resource);
                }
            }
        }
        if self.left > 0 {
            let stuck = self.progress.iter().zip(&self.streams.list);
            let stuck = stuck
                .filter(|(p, _)| p.unmet > 0)
                .map(|(_, s)| s.fragments[0].transfer);
            return Err(ExchangeError::Cycle {
                transfer: stuck.min().unwrap_or(0) as usize,
            });
        }
        Ok(())
    }

    /// Tries the streams that wait at a resource until one sends.
    fn serve(&mut self, resource: Resource) {
        let mut from = self.round[resource as usize];
        while let Some(next) = self.following(resource, from) {
            self.waiting[resource as usize].remove(&next);
            from = next;
            let stream = next.1;
            let (start, binding) = self.held_up(stream);
            let own = self.offset_at(stream, resource);
            if binding != resource && start - own > self.slack(stream) {
                self.park(stream, binding);
            } else if self.send(stream, start) {
                if resource >= TILES {
                    self.round[resource as usize] = next;
                }
                return;
            }
        }
    }

    /// How late a start may be against what a resource allows before it counts as a delay.
    fn slack(&self, stream: u32) -> i32 {
        let s = self.stream(stream);
        if s.route.hops.len() > 1 {
            return SLACK;
        }
        let chunk = s.items.min(self.policy.chunk_words);
        (chunk as i32 / 8).clamp(1, SLACK)
    }

    /// The next in the round of a receiver; the first at a lane.
    fn following(&self, resource: Resource, from: (u32, u32)) -> Option<(u32, u32)> {
        let set = &self.waiting[resource as usize];
        let ahead = set.range((Excluded(from), Unbounded)).chain(set.iter());
        let first = ahead.clone().next()?;
        let alone = self.ends[first.1 as usize].1 != SEVERAL;
        if resource >= TILES && !alone {
            return Some(*first);
        }
        // The one whose other end has most left to do; the earlier one of equals.
        let mut best = (0, *first);
        for &next in ahead.take(LOOK_AHEAD) {
            let (source, receiver) = self.ends[next.1 as usize];
            let other = if resource < TILES { receiver } else { source };
            let left = self.remaining.get(other as usize).copied().unwrap_or(0);
            if left > best.0 {
                best = (left, next);
            }
        }
        Some(best.1)
    }

    /// The offset that one resource allows.
    fn offset_at(&self, stream: u32, resource: Resource) -> i32 {
        let route = &self.stream(stream).route;
        if resource < TILES {
            return self.free(resource) - route.start;
        }
        let hop = route.hops.iter().find(|h| h.tile == resource - TILES);
        hop.map_or(0, |h| self.free(resource) - h.select)
    }

    /// The offset that all resources allow, and which one holds it up most.
    fn held_up(&self, stream: u32) -> (i32, Resource) {
        let s = self.stream(stream);
        let route = &s.route;
        let lane = &self.lanes.tiles[route.source as usize];
        let mut most = (lane.send_free() - route.start, route.source);
        if route.width == Width::Paired64 {
            let partner = crate::lanes::partner_of(route.source);
            let free = self.lanes.tiles[partner as usize].send_free();
            if free > most.0 {
                most = (free, partner);
            }
        }
        for hop in &route.hops {
            if let Some(last) = self.lanes.tiles[hop.tile as usize].last() {
                let offset = last.source_end - hop.select;
                if offset > most.0 {
                    most = (offset, TILES + hop.tile);
                }
            }
        }
        (most.0.max(self.progress[stream as usize].ready), most.1)
    }

    /// Places the next chunk of a stream at the earliest offset from `least` on. Returns whether
    /// it did; if not, the stream comes back later.
    fn send(&mut self, stream: u32, least: i32) -> bool {
        let s = self.stream(stream);
        let mut room =
            self.policy.chunk_words.clamp(16, TRANSFER_ITEMS_MAX) / s.route.width.words();
        let source = s.route.source;
        if s.moving.is_none() && self.lanes.switch_base(source, FIXED_BASE, 0) {
            let end = self.lanes.tiles[source as usize].switch_end();
            self.decisions.base_write(source, FIXED_BASE, end);
        }
        let mut offset = least;
        let mut first = true;
        loop {
            let p = self.progress[stream as usize];
            let Some(fragment) = s.fragments.get(p.fragment as usize) else {
                break;
            };
            let items = s.cut(fragment.items - p.done, room);
            if (items > room || room < ROOM_MIN) && !first {
                break;
            }
            let message = self.streams.message(s, p.fragment, p.done, items);
            offset = self.lanes.earliest(&message, offset);
            if first && offset > least + 2 * SLACK && p.deferrals < DEFERRALS_MAX {
                self.progress[stream as usize].deferrals += 1;
                let time = offset + s.route.start;
                self.clock.push(Reverse((time, 0, Wake::Stream(stream))));
                return false;
            }
            self.lanes.commit(&message, offset);
            self.decisions.message(stream, items, offset);
            self.messages += 1;
            self.note(stream, items, message.complete(offset));
            offset += items as i32;
            room = room.saturating_sub(items);
            first = false;
            if room == 0 {
                break;
            }
        }
        self.after(stream);
        true
    }

    /// Records that items of the current fragment are placed.
    fn note(&mut self, stream: u32, items: u32, complete: i32) {
        let fragment =
            &self.stream(stream).fragments[self.progress[stream as usize].fragment as usize];
        let p = &mut self.progress[stream as usize];
        p.deferrals = 0;
        p.done += items;
        let route = &self.streams.list[stream as usize].route;
        self.remaining[route.source as usize] -= items;
        for hop in &route.hops {
            self.remaining[(TILES + hop.tile) as usize] -= items;
        }
        if p.done == fragment.items {
            p.fragment += 1;
            p.done = 0;
        }
        let transfer = &mut self.transfers[fragment.transfer as usize];
        transfer.0 -= items;
        transfer.1 = transfer.1.max(complete);
        let (left, complete) = *transfer;
        if left == 0 {
            for dependent in self
                .dependents
                .remove(&fragment.transfer)
                .unwrap_or_default()
            {
                let p = &mut self.progress[dependent as usize];
                p.ready = p.ready.max(complete);
                p.unmet -= 1;
                if p.unmet == 0 {
                    self.release(dependent);
                }
            }
        }
    }

    /// What happens once a chunk is placed.
    fn after(&mut self, stream: u32) {
        let s = self.stream(stream);
        let source = s.route.source;
        self.wake(source);
        for tile in s.tiles() {
            self.wake(TILES + tile);
        }
        if (self.progress[stream as usize].fragment as usize) < s.fragments.len() {
            let (_, resource) = self.held_up(stream);
            self.park(stream, resource);
            return;
        }
        self.left -= 1;
        if s.moving.is_some() {
            self.moving[source as usize] -= 1;
            if self.moving[source as usize] == 0 {
                for fixed in self.fixed.remove(&source).unwrap_or_default() {
                    self.release(fixed);
                }
            }
        }
    }
}
