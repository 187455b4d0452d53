//! Equal tile problems, in one program and over time.
//!
//! Input: a tile's items and the memory left for data. Output: the problem's key; its answer, from the
//! memo when it is there.
//! Invariants: problems with equal keys have equal answers: `fit` compares events with each other and
//! lengths of lives with each other, and does nothing else with them, so the key holds their
//! ranks. Failures name events and are never remembered.
//! Not here: the search for addresses (`fit`).

use ipu_ir::contract::MemoryClass;
use ipub_base::{Digest, KeyWriter, Memo};

use crate::fit::{Item, Misfit, Room, fit};

/// The memo's name for answers.
const KIND: &str = "tile-placement.v1";

fn rank(sorted: &[u32], value: u32) -> u32 {
    sorted.partition_point(|&other| other < value) as u32
}

fn ranks(mut values: Vec<u32>) -> Vec<u32> {
    values.sort_unstable();
    values.dedup();
    values
}

/// The digest of a problem.
pub(crate) fn key(items: &[Item], room: &Room) -> Digest {
    let lives = || items.iter().filter_map(|item| item.life);
    let mut events: Vec<u32> = lives().flat_map(|(first, last)| [first, last]).collect();
    events.extend(&room.host_events);
    events.push(room.end);
    let events = ranks(events);
    let lengths = ranks(lives().map(|(first, last)| last - first).collect());
    let mut bytes: Vec<u8> = Vec::with_capacity(64 * items.len());
    let mut put = |value: u32| bytes.extend_from_slice(&value.to_le_bytes());
    put(room.data);
    put(rank(&events, room.end));
    put(room.host_events.len() as u32);
    let hosts = room.host_events.iter();
    hosts.for_each(|&event| put(rank(&events, event)));
    put(items.len() as u32);
    for item in items {
        put(item.bytes);
        put(item.align);
        put(u32::from(item.class == MemoryClass::Interleaved) | u32::from(item.sequence) << 1);
        put(item.over_read);
        match item.life {
            None => put(u32::MAX),
            Some((first, last)) => {
                put(rank(&events, first));
                put(rank(&events, last));
                put(rank(&lengths, last - first));
            }
        }
        for others in [&item.distinct, &item.contenders] {
            put(others.len() as u32);
            others.iter().for_each(|&other| put(other));
        }
    }
    let mut writer = KeyWriter::digest_only("ipu.place.tile.v1");
    writer.bytes("problem", &bytes);
    writer.finish().digest
}

/// The address of each item.
pub(crate) fn solve(
    items: &[Item],
    key: Digest,
    room: &Room,
    memo: &dyn Memo,
) -> Result<Vec<u32>, Misfit> {
    if let Some(known) = memo.get(KIND, key).and_then(|bytes| addresses(&bytes))
        && known.len() == items.len()
    {
        return Ok(known);
    }
    let answer = fit(items, room)?;
    let bytes: Vec<u8> = answer.iter().flat_map(|at| at.to_le_bytes()).collect();
    memo.put(KIND, key, bytes);
    Ok(answer)
}

fn addresses(bytes: &[u8]) -> Option<Vec<u32>> {
    let (words, rest) = bytes.as_chunks();
    let words = words.iter().map(|word| u32::from_le_bytes(*word));
    rest.is_empty().then(|| words.collect())
}
