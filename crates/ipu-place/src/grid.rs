//! The shards of one tensor, found by coordinate or by tile without a walk.
//!
//! Input: a mid tensor. Output: its parts, their tiles, their allocation ids.
//! Invariants: shard order is that of `Tiling::shards`: groups, rows, columns, then replicas.
//! Not here: bytes, transfers.

use std::ops::Range;

use ipu_ir::layout::{Cuts, Region};
use ipu_ir::mid::Tensor;
use ipu_ir::program::AllocId;

const NONE: u32 = u32::MAX;

pub(crate) struct Grid {
    /// Allocation of the first shard.
    first: u32,
    pub replicas: u32,
    pub groups: Vec<Range<u32>>,
    pub rows: Vec<Range<u32>>,
    pub columns: Vec<Range<u32>>,
    /// Tile of each shard.
    pub tiles: Vec<u32>,
    by_tile: Vec<u32>,
}

fn axis(cuts: &Cuts, size: u32) -> Vec<Range<u32>> {
    let inner = cuts.inner.parts;
    (0..cuts.parts())
        .map(|part| cuts.part(size, part / inner, part % inner))
        .collect()
}

impl Grid {
    pub fn new(tensor: &Tensor, tiles: u32, first: u32) -> Self {
        let tiling = &tensor.layout.tiling;
        let shape = tensor.shape();
        let replicas = tiling.replicas();
        let mut owners = Vec::with_capacity(tiling.shard_count() as usize);
        for part in tiling.parts() {
            for replica in 0..replicas {
                let at = ipu_ir::layout::Coordinates { replica, ..part };
                owners.push(tiling.tile(tiles, &at));
            }
        }
        let mut by_tile = vec![NONE; tiles as usize];
        for (shard, &tile) in owners.iter().enumerate() {
            by_tile[tile as usize] = shard as u32;
        }
        Grid {
            first,
            replicas,
            groups: axis(&Cuts::of(tiling.groups), shape[0]),
            rows: axis(&tiling.rows, shape[1]),
            columns: axis(&tiling.columns, shape[2]),
            tiles: owners,
            by_tile,
        }
    }

    pub fn parts(&self) -> u32 {
        (self.groups.len() * self.rows.len() * self.columns.len()) as u32
    }

    pub fn part(&self, group: usize, row: usize, column: usize) -> u32 {
        ((group * self.rows.len() + row) * self.columns.len() + column) as u32
    }

    pub fn region(&self, part: u32) -> Region {
        let (rows, columns) = (self.rows.len() as u32, self.columns.len() as u32);
        Region {
            groups: self.groups[(part / columns / rows) as usize].clone(),
            rows: self.rows[(part / columns % rows) as usize].clone(),
            columns: self.columns[(part % columns) as usize].clone(),
        }
    }

    /// Tiles of the replicas of a part.
    pub fn part_tiles(&self, part: u32) -> &[u32] {
        let first = (part * self.replicas) as usize;
        &self.tiles[first..first + self.replicas as usize]
    }

    /// The shard that a tile owns.
    pub fn shard_on(&self, tile: u32) -> Option<u32> {
        let shard = self.by_tile[tile as usize];
        (shard != NONE).then_some(shard)
    }

    pub fn part_of(&self, shard: u32) -> u32 {
        shard / self.replicas
    }

    pub fn allocation(&self, shard: u32) -> AllocId {
        AllocId(self.first + shard)
    }
}

/// Indices of the ranges that meet `wanted`; the ranges are ascending and tile their axis.
pub(crate) fn meeting(ranges: &[Range<u32>], wanted: &Range<u32>) -> Range<usize> {
    let first = ranges.partition_point(|range| range.end <= wanted.start);
    let last = ranges.partition_point(|range| range.start < wanted.end);
    first..last.max(first)
}
