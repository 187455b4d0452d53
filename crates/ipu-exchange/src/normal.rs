//! The normal form of a phase: all that its schedule depends on.
//!
//! Input: streams, the policy. Output: a digest, and the tiles whose sends and receives share a
//! memory element.
//! Invariants: streams with equal digests get the same messages at the same offsets, wherever their
//! bytes lie. Addresses matter to a schedule in three ways only: order, joins, widths and waits,
//! which the streams hold already; whether one message goes on where another one of its tile ends,
//! which is kept as offsets inside stretches of addresses without a gap; and, on tiles that send
//! and receive in one element, which elements a message touches, which is kept as addresses.
//! Not here: making or remembering schedules.

use crate::schedule::SchedulePolicy;
use crate::streams::{Stream, Streams};
use ipu_target::TILES;
use ipu_target::memory::elements_of;
use ipub_base::{Digest, Hasher};
use std::ops::Range;

/// What a schedule depends on.
pub(crate) struct Normal {
    pub key: Digest,
    /// Tiles that send and receive in one memory element.
    pub shared: Vec<bool>,
}

/// Whose addresses: those that a tile receives at, sends from, or sends from relative to its base.
#[derive(Clone, Copy)]
enum Side {
    Receive,
    Send,
    SendMoving,
}

/// Addresses of one side of a tile, as stretches without a gap.
#[derive(Clone, Default)]
struct Stretches {
    ranges: Vec<(u32, u32)>,
    /// Names of the stretches, counted by first use; 0 for one that has none yet.
    names: Vec<u32>,
    named: u32,
}

impl Stretches {
    fn add(&mut self, start: u32, end: u32) {
        match self.ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.ranges.push((start, end)),
        }
    }

    fn close(&mut self) {
        self.ranges.sort();
        let mut kept = 0;
        for at in 1..self.ranges.len() {
            let (start, end) = self.ranges[at];
            if start <= self.ranges[kept].1 {
                self.ranges[kept].1 = end.max(self.ranges[kept].1);
            } else {
                kept += 1;
                self.ranges[kept] = (start, end);
            }
        }
        self.ranges.truncate(kept + 1);
        self.names = vec![0; self.ranges.len()];
    }

    /// The stretch around an address and the offset in it.
    fn name(&mut self, address: u32) -> [u32; 2] {
        let at = self.ranges.partition_point(|r| r.0 <= address) - 1;
        if self.names[at] == 0 {
            self.named += 1;
            self.names[at] = self.named;
        }
        [self.names[at], address - self.ranges[at].0]
    }
}

/// Words on their way into a digest.
struct Words {
    hasher: Hasher,
    bytes: Vec<u8>,
}

const BUFFER_BYTES: usize = 1 << 16;

impl Words {
    fn push(&mut self, words: impl IntoIterator<Item = u32>) {
        let bytes = words.into_iter().flat_map(u32::to_le_bytes);
        self.bytes.extend(bytes);
        if self.bytes.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.hasher.update(&self.bytes);
        self.bytes.clear();
    }
}

/// A bit for each element; those far outside memory share one.
fn mask(elements: &Range<u32>) -> u64 {
    elements
        .clone()
        .fold(0, |mask, element| mask | 1 << element.min(63))
}

impl Normal {
    pub fn of(streams: &Streams, transfers: usize, policy: &SchedulePolicy) -> Self {
        let mut tables = vec![Stretches::default(); 3 * TILES as usize];
        let (mut sent, mut received) = (vec![0; TILES as usize], vec![0; TILES as usize]);
        for stream in &streams.list {
            let source = stream.route.source;
            let (side, base) = origin(stream);
            for fragment in &stream.fragments {
                let bytes = fragment.items * stream.route.width.bytes();
                let start = fragment.source_address - base;
                tables[slot(side, source)].add(start, start + bytes);
                sent[source as usize] |= mask(&fragment.elements);
                for (tile, &target) in stream
                    .tiles()
                    .zip(&streams.targets[fragment.first_target..])
                {
                    tables[slot(Side::Receive, tile)].add(target, target + bytes);
                    received[tile as usize] |= mask(&elements_of(target, bytes));
                }
            }
        }
        tables.iter_mut().for_each(Stretches::close);
        let pairs = sent.iter().zip(&received);
        let shared: Vec<bool> = pairs
            .map(|(&sent, &received)| sent & received != 0)
            .collect();
        let mut words = Words {
            hasher: Hasher::new(),
            bytes: Vec::with_capacity(2 * BUFFER_BYTES),
        };
        words.push([policy.chunk_words, transfers as u32]);
        words.push([streams.waits.len() as u32]);
        words.push(
            streams
                .waits
                .iter()
                .flat_map(|&(earlier, later)| [earlier, later]),
        );
        words.push([streams.list.len() as u32]);
        for stream in &streams.list {
            write(streams, stream, &mut tables, &shared, &mut words);
        }
        words.flush();
        Normal {
            key: words.hasher.finish(),
            shared,
        }
    }
}

fn origin(stream: &Stream) -> (Side, u32) {
    match &stream.moving {
        Some(moving) => (Side::SendMoving, moving.base),
        None => (Side::Send, 0),
    }
}

fn slot(side: Side, tile: u32) -> usize {
    (side as u32 * TILES + tile) as usize
}

fn write(
    streams: &Streams,
    stream: &Stream,
    tables: &mut [Stretches],
    shared: &[bool],
    words: &mut Words,
) {
    let route = &stream.route;
    let source = route.source;
    let (side, base) = origin(stream);
    words.push([source, route.width.words(), side as u32]);
    words.push([route.hops.len() as u32, stream.fragments.len() as u32]);
    words.push(stream.tiles());
    for fragment in &stream.fragments {
        let start = fragment.source_address - base;
        words.push([fragment.items, fragment.transfer]);
        words.push(tables[slot(side, source)].name(start));
        if shared[source as usize] {
            let elements = &fragment.elements;
            words.push([fragment.source_address, elements.start, elements.end]);
        }
        let targets = &streams.targets[fragment.first_target..];
        for (tile, &target) in stream.tiles().zip(targets) {
            words.push(tables[slot(Side::Receive, tile)].name(target));
            if shared[tile as usize] {
                words.push([target]);
            }
        }
    }
}
