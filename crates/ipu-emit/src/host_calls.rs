//! What each tile does in each call of the host: entries of the runtime's table, and the programs
//! and packets that they name.
//!
//! Input: a host plan. Output: for each tile and call, batches as parts, and parts as entries.
//! Invariants: batches that follow one another become one entry when only the destination differs,
//! and that by the same step; a packet area that already holds an entry's words is not filled again.
//! Not here: words of packets and programs (`host`), the loop over entries (`runtime.S`).

use std::collections::BTreeMap;

use ipu_package::host::{HostPlan, HostRun, HostSlice, batch_count, slices};
use ipu_target::host::slot_offset;
use ipu_target::memory::HOST_STAGING;
use ipu_target::topology::{logical, physical, serving_tile};

use crate::host::{
    Chunk, Direction, Transfer, inactive_program, packet_words, program, request_words, split,
    table_entry,
};
use crate::words::Words;

/// The calls in the order in which a program makes them.
pub const CALLS: usize = 3;
pub const PARAMETERS: usize = 0;
pub const INPUTS: usize = 1;
pub const OUTPUTS: usize = 2;

/// One call for all tiles.
struct Call {
    direction: Direction,
    batches: usize,
    /// Slices by logical tile.
    slices: BTreeMap<u32, Vec<HostSlice>>,
    /// Requests by logical serving tile and batch; shorter than the call where nothing is served.
    requests: BTreeMap<u32, Vec<[u32; 2]>>,
}

impl Call {
    fn new(direction: Direction, runs: &[HostRun]) -> Self {
        let mut by_tile: BTreeMap<u32, Vec<HostSlice>> = BTreeMap::new();
        for run in runs {
            by_tile.entry(run.tile).or_default().extend(slices(*run));
        }
        let mut targets: BTreeMap<u32, Vec<Vec<u32>>> = BTreeMap::new();
        for (&tile, slices) in &by_tile {
            let target = physical(tile);
            let batches = targets.entry(serving(target)).or_default();
            if batches.len() < slices.len() {
                batches.resize(slices.len(), Vec::new());
            }
            batches[..slices.len()]
                .iter_mut()
                .for_each(|batch| batch.push(target));
        }
        let request = |batch: &Vec<u32>| request_words(batch.iter().copied());
        let requests = targets
            .into_iter()
            .map(|(tile, batches)| (tile, batches.iter().map(request).collect()))
            .collect();
        Call {
            direction,
            batches: batch_count(runs) as usize,
            slices: by_tile,
            requests,
        }
    }

    fn part(&self, tile: u32, batch: usize) -> Part {
        let slices = self.slices.get(&tile);
        let requests = self.requests.get(&tile);
        Part {
            slice: slices.and_then(|slices| slices.get(batch)).copied(),
            request: requests.and_then(|requests| requests.get(batch)).copied(),
        }
    }

    fn entries(&self, tile: u32) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for batch in 0..self.batches {
            let part = self.part(tile, batch);
            let last = entries.last_mut();
            if !last.is_some_and(|entry| entry.take(self.direction, &part)) {
                entries.push(Entry {
                    part,
                    batches: 1,
                    gap: 0,
                });
            }
        }
        entries
    }
}

/// Logical number of the tile that requests packets of a physical tile.
fn serving(target: u32) -> u32 {
    logical(serving_tile(target)).expect("serving tiles stand in row 0")
}

/// What a tile does in one batch.
struct Part {
    slice: Option<HostSlice>,
    request: Option<[u32; 2]>,
}

/// Batches that differ in the destination only.
struct Entry {
    part: Part,
    batches: u32,
    /// Bytes between the end of a slice and the next.
    gap: u32,
}

impl Entry {
    /// Take the next batch in, if it goes on like those before.
    fn take(&mut self, direction: Direction, next: &Part) -> bool {
        if self.part.request != next.request {
            return false;
        }
        match (self.part.slice, next.slice) {
            (None, None) => {}
            (Some(first), Some(slice)) => {
                let step = first.bytes + self.gap;
                let end = first.address + step * (self.batches - 1) + first.bytes;
                let follows =
                    slice.address >= end && (self.batches == 1 || slice.address == end + self.gap);
                // A download's program holds the address.
                if direction == Direction::ToHost || first.bytes != slice.bytes || !follows {
                    return false;
                }
                self.gap = slice.address - end;
            }
            _ => return false,
        }
        self.batches += 1;
        true
    }
}

/// All calls of the host.
pub struct HostCalls {
    calls: [Call; CALLS],
    /// Slot of a logical tile.
    slots: BTreeMap<u32, u32>,
}

/// Where a tile's table for one call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub address: u32,
    /// None when the call has no batch.
    pub entries: u32,
}

impl HostCalls {
    pub fn new(plan: &HostPlan) -> Self {
        HostCalls {
            calls: [
                Call::new(Direction::ToTile, &plan.parameters),
                Call::new(Direction::ToTile, &plan.inputs),
                Call::new(Direction::ToHost, &plan.outputs),
            ],
            slots: plan.slots.iter().copied().zip(0..).collect(),
        }
    }

    /// Logical numbers of all serving tiles, ascending.
    pub fn serving_tiles(&self) -> Vec<u32> {
        let tiles = self.calls.iter().flat_map(|call| call.requests.keys());
        let mut tiles: Vec<u32> = tiles.copied().collect();
        tiles.sort_unstable();
        tiles.dedup();
        tiles
    }

    /// Emit a tile's programs, packets and tables.
    pub fn emit(&self, tile: u32, code: &mut Words, frames: &mut Words) -> [Table; CALLS] {
        let mut emitter = Emitter {
            physical: physical(tile),
            slot: self.slots.get(&tile).copied(),
            code,
            frames,
            programs: BTreeMap::new(),
            packets: BTreeMap::new(),
        };
        let tables = self.calls.each_ref().map(|call| emitter.call(call, tile));
        if frames.words.len() % 2 == 1 {
            frames.words.push(0);
        }
        tables
    }
}

struct Emitter<'a> {
    physical: u32,
    slot: Option<u32>,
    code: &'a mut Words,
    frames: &'a mut Words,
    /// Addresses by content.
    programs: BTreeMap<Vec<u32>, u32>,
    packets: BTreeMap<Vec<u32>, u32>,
}

impl Emitter<'_> {
    fn call(&mut self, call: &Call, tile: u32) -> Table {
        let mut table = Vec::new();
        let entries = call.entries(tile);
        // What the packet area holds: nothing is known at the start of a call.
        let (mut request, mut headers) = (None, Vec::new());
        for entry in &entries {
            let part = &entry.part;
            let (words, code) = self.program(call.direction, part);
            let new_request = part.request.filter(|words| request != Some(*words));
            let new_headers = !words.is_empty() && headers != words;
            let target_only = new_request.is_none();
            let mut packets: Vec<u32> = new_request.into_iter().flatten().collect();
            request = part.request.or(request);
            if new_headers {
                packets.extend_from_slice(&words);
                headers = words;
            }
            let slice = part.slice.filter(|_| call.direction == Direction::ToTile);
            let (destination, bytes) = slice.map_or((0, 0), |slice| (slice.address, slice.bytes));
            let count = packets.len() as u32;
            let source = self.packets(packets);
            table.extend(table_entry(
                destination,
                bytes / 4,
                count,
                target_only && count > 0,
                source,
            ));
            table.extend([code, entry.batches - 1, entry.gap]);
        }
        let address = self.frames.here();
        self.frames.words.extend(table);
        Table {
            address,
            entries: entries.len() as u32,
        }
    }

    /// Headers and the address of the program of a batch.
    fn program(&mut self, direction: Direction, part: &Part) -> (Vec<u32>, u32) {
        let chunks = part.slice.map(|slice| {
            let slot = self.slot.expect("a tile with a slice has a slot");
            let tile_address = match direction {
                Direction::ToTile => HOST_STAGING,
                Direction::ToHost => slice.address,
            };
            split(
                direction,
                Chunk {
                    tile_address,
                    host_offset: slot_offset(slot),
                    bytes: slice.bytes,
                },
            )
        });
        let transfer = chunks.as_ref().map(|chunks| Transfer { direction, chunks });
        let words = match (&transfer, part.request) {
            (None, None) => inactive_program(),
            (transfer, request) => program(self.physical, *transfer, request.is_some()),
        };
        let headers = chunks.map_or_else(Vec::new, |chunks| {
            packet_words(direction, self.physical, &chunks)
        });
        let code = &mut *self.code;
        let address = *self.programs.entry(words).or_insert_with_key(|words| {
            let address = code.here();
            code.words.extend_from_slice(words);
            address
        });
        (headers, address)
    }

    fn packets(&mut self, words: Vec<u32>) -> u32 {
        if words.is_empty() {
            return 0;
        }
        let frames = &mut *self.frames;
        *self.packets.entry(words).or_insert_with_key(|words| {
            let address = frames.here();
            frames.words.extend_from_slice(words);
            address
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tile: u32, address: u32, bytes: u32) -> HostRun {
        HostRun {
            tile,
            address,
            bytes,
        }
    }

    fn plan() -> HostPlan {
        HostPlan {
            slots: vec![0, 1, 2],
            parameters: vec![
                run(0, 0x64000, 3 * 4_096 + 8),
                run(1, 0x64000, 4_096),
                run(2, 0x64000, 100),
                run(2, 0x65000, 100),
                run(2, 0x66000, 100),
            ],
            inputs: vec![run(1, 0x70000, 64)],
            outputs: vec![run(2, 0x70000, 64), run(2, 0x71000, 64)],
        }
    }

    #[test]
    fn batches_join_into_entries() {
        let calls = HostCalls::new(&plan());
        let shape = |call: usize, tile| -> Vec<(u32, u32, bool, bool)> {
            let entries = calls.calls[call].entries(tile);
            let row = |entry: &Entry| {
                let part = &entry.part;
                (
                    entry.batches,
                    entry.gap,
                    part.slice.is_some(),
                    part.request.is_some(),
                )
            };
            entries.iter().map(row).collect()
        };
        // Tile 0 serves itself (physical 0), tile 1 (2) and tile 2 (64).
        let served = [(1, 0, true, true), (2, 0, true, true), (1, 0, true, true)];
        assert_eq!(shape(PARAMETERS, 0), served);
        assert_eq!(
            shape(PARAMETERS, 1),
            [(1, 0, true, false), (3, 0, false, false)]
        );
        assert_eq!(
            shape(PARAMETERS, 2),
            [(3, 3_996, true, false), (1, 0, false, false)]
        );
        assert_eq!(shape(INPUTS, 0), [(1, 0, false, true)]);
        assert_eq!(
            shape(OUTPUTS, 2),
            [(1, 0, true, false), (1, 0, true, false)]
        );
        assert_eq!(calls.serving_tiles(), [0]);
    }

    #[test]
    fn equal_programs_and_packets_stand_once() {
        let calls = HostCalls::new(&plan());
        let (mut code, mut frames) = (Words::new(0x5c000), Words::new(0x586e0));
        let tables = calls.emit(0, &mut code, &mut frames);
        assert_eq!(tables.map(|table| table.entries), [3, 1, 1]);
        // Programs: full slices, the tail, requests only.
        assert_eq!(code.words.len(), 15 + 12 + 8);
        let at = ((tables[0].address - frames.base) / 4) as usize;
        let descriptors = [1, 7, 13].map(|index| frames.words[at + index]);
        // Request and headers; the request of fewer targets; request and headers of the tail.
        let expected = [10 << 24 | 1_024, 2 << 24 | 1_024, 4 << 24 | 2];
        assert_eq!(descriptors, expected);
    }
}
