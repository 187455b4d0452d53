//! Peak-live bounds: bytes that a tile must hold at once, by memory class.
//!
//! Input: a mid. Output: the fullest tile's bytes. A bound is a proof: a tile above the capacity
//! cannot be placed; one below may still fail.

use std::collections::BTreeSet;

use ipu_ir::contract::MemoryClass;
use ipu_ir::mid::{Mid, Step, Storage, TensorId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Parameters on the fullest tile.
    pub persistent_bytes: u32,
    /// Everything live at once on the fullest tile.
    pub live_bytes: u32,
    /// Interleaved data live at once on the fullest tile.
    pub interleaved_bytes: u32,
}

/// First and last event of each tensor; a tensor that crosses a loop's edge lives through it.
struct Lives {
    events: u32,
    spans: Vec<Option<(u32, u32)>>,
}

impl Lives {
    fn touch(&mut self, tensor: TensorId, event: u32) {
        let span = self.spans[tensor.0 as usize].get_or_insert((event, event));
        *span = (span.0.min(event), span.1.max(event));
    }

    fn walk(&mut self, steps: &[Step]) {
        for step in steps {
            let event = self.events;
            match step {
                Step::Exchange(exchange) => {
                    for copy in &exchange.copies {
                        self.touch(copy.source, event);
                        self.touch(copy.destination, event);
                    }
                    self.events += 1;
                }
                Step::Compute(compute) => {
                    for operand in &compute.operands {
                        self.touch(operand.tensor, event);
                    }
                    self.events += 1;
                }
                Step::Repeat { body, .. } => {
                    let before: BTreeSet<usize> = (0..self.spans.len())
                        .filter(|i| self.spans[*i].is_some())
                        .collect();
                    self.walk(body);
                    let end = self.events;
                    for index in before {
                        let Some(span) = &mut self.spans[index] else {
                            continue;
                        };
                        if span.1 >= event {
                            span.1 = end;
                        }
                    }
                }
            }
        }
    }
}

/// Bounds of the fullest tile.
pub fn bounds(mid: &Mid) -> Bounds {
    let mut lives = Lives {
        events: 0,
        spans: vec![None; mid.tensors.len()],
    };
    lives.walk(&mid.steps);
    let events = lives.events as usize + 1;
    let tiles = mid.tiles as usize;
    let mut persistent = vec![[0_u32; 2]; tiles];
    let mut starts: Vec<Vec<(u32, usize, u32, bool)>> = vec![Vec::new(); events + 1];
    for (tensor, span) in mid.tensors.iter().zip(&lives.spans) {
        let interleaved = tensor.layout.class == MemoryClass::Interleaved;
        for shard in tensor.shards(mid.tiles) {
            let bytes = tensor.bytes(&shard).next_multiple_of(8) * tensor.members();
            let tile = shard.tile as usize;
            match (&tensor.storage, span) {
                (Storage::Parameter(_), _) => {
                    persistent[tile][0] += bytes;
                    persistent[tile][1] += if interleaved { bytes } else { 0 };
                }
                (_, Some((first, last))) => {
                    starts[*first as usize].push((*last, tile, bytes, interleaved));
                }
                (_, None) => {}
            }
        }
    }
    let persistent_bytes = persistent.iter().map(|bytes| bytes[0]).max().unwrap_or(0);
    let mut result = Bounds {
        persistent_bytes,
        ..Bounds::default()
    };
    let mut live = persistent;
    let mut ends: Vec<Vec<(usize, u32, bool)>> = vec![Vec::new(); events + 1];
    for event in 0..events {
        for (last, tile, bytes, interleaved) in std::mem::take(&mut starts[event]) {
            live[tile][0] += bytes;
            live[tile][1] += if interleaved { bytes } else { 0 };
            ends[last as usize].push((tile, bytes, interleaved));
        }
        for tile in &live {
            result.live_bytes = result.live_bytes.max(tile[0]);
            result.interleaved_bytes = result.interleaved_bytes.max(tile[1]);
        }
        for (tile, bytes, interleaved) in std::mem::take(&mut ends[event]) {
            live[tile][0] -= bytes;
            live[tile][1] -= if interleaved { bytes } else { 0 };
        }
    }
    result
}
