//! A schedule as the decisions that made it, for the memo.
//!
//! Input: streams and the decisions of a run over streams of the same normal form. Output: the lanes
//! that this run filled, with the addresses of these streams.
//! Invariants: decisions hold no address; they are read in the order in which they were made.
//! Not here: making decisions (`schedule`), when they may be used again (`normal`).

use crate::lanes::Lanes;
use crate::streams::Streams;
use ipub_base::{Digest, KeyWriter};

/// The memo's name for schedules.
pub(crate) const KIND: &str = "exchange-schedule.v1";

/// The memo's key for a normal form.
pub(crate) fn key(normal: Digest) -> Digest {
    let mut writer = KeyWriter::digest_only("ipu.exchange.schedule.v1");
    writer.digest("normal_form", normal);
    writer.finish().digest
}

/// Messages and base writes, in the order of their making, each as a few variable-length numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decisions {
    bytes: Vec<u8>,
    stream: u32,
    offset: i32,
}

/// What comes before a base write in place of a stream.
const BASE_WRITE: u64 = 0;

impl Decisions {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// The next items of a stream go at an offset.
    pub fn message(&mut self, stream: u32, items: u32, offset: i32) {
        let step = i64::from(stream) - i64::from(self.stream);
        self.number(zigzag(step) + 1);
        self.number(u64::from(items));
        self.number(zigzag(i64::from(offset) - i64::from(self.offset)));
        (self.stream, self.offset) = (stream, offset);
    }

    /// A tile writes a register to OUTGOING_BASE.
    pub fn base_write(&mut self, tile: u32, register: u32, end: i32) {
        self.number(BASE_WRITE);
        self.number(u64::from(tile));
        self.number(u64::from(register));
        self.number(zigzag(i64::from(end)));
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn signed(&mut self) -> Option<i64> {
        self.number().map(unzigzag)
    }
}

/// Fills lanes by decisions; counts the messages. `None` if they are not those of these streams.
pub(crate) fn replay(streams: &Streams, mut lanes: Lanes, bytes: &[u8]) -> Option<(Lanes, u32)> {
    let mut reader = Reader(bytes);
    // Of each stream: the current fragment and the items of it that are placed.
    let mut progress = vec![(0u32, 0u32); streams.list.len()];
    let (mut index, mut offset, mut messages) = (0i64, 0i64, 0);
    while !reader.0.is_empty() {
        let head = reader.number()?;
        if head == BASE_WRITE {
            let (tile, register) = (reader.small()?, reader.small()?);
            let end = i32::try_from(reader.signed()?).ok()?;
            lanes.tiles.get(tile as usize)?;
            lanes.write_base(tile, register, end);
            continue;
        }
        index += unzigzag(head - 1);
        let items = reader.small()?;
        offset += reader.signed()?;
        let at = usize::try_from(index).ok()?;
        let stream = streams.list.get(at)?;
        let (fragment, done) = progress[at];
        let left = stream.fragments.get(fragment as usize)?.items - done;
        let event = i32::try_from(offset).ok()?;
        if items == 0 || items > left {
            return None;
        }
        lanes.commit(&streams.message(stream, fragment, done, items), event);
        progress[at] = match items == left {
            true => (fragment + 1, 0),
            false => (fragment, done + items),
        };
        messages += 1;
    }
    let ends = streams.list.iter().zip(&progress);
    ends.clone()
        .all(|(stream, &(fragment, _))| fragment as usize == stream.fragments.len())
        .then_some((lanes, messages))
}
