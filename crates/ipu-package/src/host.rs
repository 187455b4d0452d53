//! What the host moves: runs of bytes on tiles, by call, and the batches that follow from them.
//!
//! Call `initialize` moves the parameters, call `run` the inputs and then the outputs. The runs of
//! each are one logical file. Each run is cut into slices of at most one page; slices queue by
//! tile, and batch `b` takes the `b`-th slice of each queue that has one.
//! Invariants: a tile has one slot of one page, the rank of the tile in `slots`; a slice stands at
//! the start of the slot.
//! Not here: which tensor elements stand in a run (bindings say), packets.

use serde::{Deserialize, Serialize};

use crate::types::{Binding, Role, Tensor};

/// Bytes of a slot, and most bytes of a slice.
pub const SLOT_BYTES: u32 = 4_096;

/// Contiguous bytes on a tile that one or more bindings hold, in whole words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostRun {
    pub tile: u32,
    pub address: u32,
    pub bytes: u32,
}

/// What one tile moves in one batch.
pub type HostSlice = HostRun;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlan {
    /// Tiles that exchange data with the host, ascending by physical number.
    pub slots: Vec<u32>,
    /// Each ascending by tile, then by address.
    pub parameters: Vec<HostRun>,
    pub inputs: Vec<HostRun>,
    pub outputs: Vec<HostRun>,
}

impl HostPlan {
    /// The plan of bindings: runs that touch are joined. `rank` orders the slots.
    pub fn new<K: Ord>(tensors: &[Tensor], bindings: &[Binding], rank: impl Fn(u32) -> K) -> Self {
        let of = |role: Role| {
            let mut runs: Vec<HostRun> = bindings
                .iter()
                .filter(|binding| tensors[binding.tensor as usize].role == role)
                .map(|binding| HostRun {
                    tile: binding.tile,
                    address: binding.address,
                    bytes: binding.bytes().next_multiple_of(4),
                })
                .collect();
            runs.sort_unstable();
            joined(runs)
        };
        let [parameters, inputs, outputs] = [Role::Parameter, Role::Input, Role::Output].map(of);
        let mut slots: Vec<u32> = bindings.iter().map(|binding| binding.tile).collect();
        slots.sort_unstable();
        slots.dedup();
        slots.sort_by_key(|tile| rank(*tile));
        HostPlan {
            slots,
            parameters,
            inputs,
            outputs,
        }
    }
}

fn joined(runs: Vec<HostRun>) -> Vec<HostRun> {
    let mut all: Vec<HostRun> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if last.tile == run.tile && last.address + last.bytes == run.address => {
                last.bytes += run.bytes;
            }
            _ => all.push(run),
        }
    }
    all
}

/// Slices of a run.
pub fn slices(run: HostRun) -> impl Iterator<Item = HostSlice> {
    let starts = (0..run.bytes).step_by(SLOT_BYTES as usize);
    starts.map(move |start| HostSlice {
        tile: run.tile,
        address: run.address + start,
        bytes: SLOT_BYTES.min(run.bytes - start),
    })
}

/// Slices of each batch, ascending by tile, of runs that ascend by tile.
pub fn batches(runs: &[HostRun]) -> Vec<Vec<HostSlice>> {
    let mut batches: Vec<Vec<HostSlice>> = Vec::new();
    for queue in runs.chunk_by(|a, b| a.tile == b.tile) {
        let slices = queue.iter().flat_map(|run| slices(*run));
        for (batch, slice) in slices.enumerate() {
            if batch == batches.len() {
                batches.push(Vec::new());
            }
            batches[batch].push(slice);
        }
    }
    batches
}

/// Number of batches of runs that ascend by tile.
pub fn batch_count(runs: &[HostRun]) -> u64 {
    let slices = |run: &HostRun| u64::from(run.bytes.div_ceil(SLOT_BYTES));
    let queues = runs.chunk_by(|a, b| a.tile == b.tile);
    let count = |queue: &[HostRun]| queue.iter().map(slices).sum();
    queues.map(count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_take_one_slice_of_each_queue() {
        let run = |tile, address, bytes| HostRun {
            tile,
            address,
            bytes,
        };
        let runs = [
            run(2, 0x60000, 4_100),
            run(2, 0x70000, 8),
            run(5, 0x60000, 4_096),
        ];
        let expected = [
            vec![run(2, 0x60000, 4_096), run(5, 0x60000, 4_096)],
            vec![run(2, 0x61000, 4)],
            vec![run(2, 0x70000, 8)],
        ];
        assert_eq!(batches(&runs), expected);
        assert_eq!(batch_count(&runs), 3);
        assert_eq!(batches(&[]), Vec::<Vec<HostSlice>>::new());
    }
}
