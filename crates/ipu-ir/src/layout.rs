//! Layouts: how the box of a tensor is cut into shards, and which tile owns each.
//!
//! A tensor of the mid is a box `[groups, rows, columns]` in *device coordinates*: padding is part
//! of the box, and [`Extent`] tells which coordinates are logical. A shard is a sub-box on one
//! tile, its elements ordered by an [`Order`] with groups outermost.
//! Invariants: the cuts of an axis tile it without gap or overlap, and no part is empty; a tile owns
//! at most one shard of a tensor; replicas of a shard hold the same elements.
//! Not here: addresses, kernels, costs.

use std::ops::Range;

use ipu_package::{Dtype, Order};
use serde::{Deserialize, Serialize};

use crate::contract::MemoryClass;

/// One axis in device coordinates: `groups` runs of `padded` coordinates, of which the first
/// `logical` hold elements. A plain axis has one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    pub groups: u32,
    pub logical: u32,
    pub padded: u32,
}

impl Extent {
    pub const fn plain(size: u32) -> Self {
        Extent {
            groups: 1,
            logical: size,
            padded: size,
        }
    }

    pub const fn padded(logical: u32, multiple: u32) -> Self {
        Extent {
            groups: 1,
            logical,
            padded: logical.next_multiple_of(multiple),
        }
    }

    /// Coordinates in all, padding included.
    pub const fn size(&self) -> u32 {
        self.groups * self.padded
    }

    /// Whether a range holds a coordinate that is padding.
    pub fn has_padding(&self, range: &Range<u32>) -> bool {
        range.clone().any(|at| at % self.padded >= self.logical)
    }
}

/// Division of a range into `parts` whose sizes are multiples of `grain` and differ by at most one
/// grain; the larger parts come first, and only the last may end short of a grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Split {
    pub parts: u32,
    pub grain: u32,
}

impl Split {
    pub const WHOLE: Split = Split { parts: 1, grain: 1 };

    pub const fn new(parts: u32, grain: u32) -> Self {
        Split { parts, grain }
    }

    /// Whether every part of `0..size` holds something.
    pub const fn fits(&self, size: u32) -> bool {
        size.div_ceil(self.grain) >= self.parts
    }

    /// Part `index` of `range`.
    pub fn part(&self, range: &Range<u32>, index: u32) -> Range<u32> {
        let size = range.end - range.start;
        let units = size.div_ceil(self.grain);
        let (each, extra) = (units / self.parts, units % self.parts);
        let first = index * each + index.min(extra);
        let count = each + u32::from(index < extra);
        let at = |unit: u32| range.start + (unit * self.grain).min(size);
        at(first)..at(first + count)
    }

    /// The part that holds `at`.
    pub fn index_of(&self, range: &Range<u32>, at: u32) -> u32 {
        let units = (range.end - range.start).div_ceil(self.grain);
        let (each, extra) = (units / self.parts, units % self.parts);
        let unit = (at - range.start) / self.grain;
        let large = extra * (each + 1);
        if unit < large {
            unit / (each + 1)
        } else {
            extra + (unit - large) / each
        }
    }
}

/// Two-level cuts of an axis: `outer` parts, each cut into `inner` parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cuts {
    pub outer: Split,
    pub inner: Split,
}

impl Cuts {
    pub const WHOLE: Cuts = Cuts {
        outer: Split::WHOLE,
        inner: Split::WHOLE,
    };

    pub const fn of(outer: Split) -> Self {
        Cuts {
            outer,
            inner: Split::WHOLE,
        }
    }

    pub const fn parts(&self) -> u32 {
        self.outer.parts * self.inner.parts
    }

    pub fn part(&self, size: u32, outer: u32, inner: u32) -> Range<u32> {
        self.inner.part(&self.outer.part(&(0..size), outer), inner)
    }

    /// Outer and inner index of the part that holds `at`.
    pub fn index_of(&self, size: u32, at: u32) -> (u32, u32) {
        let outer = self.outer.index_of(&(0..size), at);
        (
            outer,
            self.inner.index_of(&self.outer.part(&(0..size), outer), at),
        )
    }

    /// Whether no part is empty.
    pub fn fits(&self, size: u32) -> bool {
        self.outer.fits(size)
            && (0..self.outer.parts).all(|index| {
                let part = self.outer.part(&(0..size), index);
                self.inner.fits(part.end - part.start)
            })
    }
}

/// Coordinates of a shard in the grid of cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coordinates {
    pub group: u32,
    pub row: (u32, u32),
    pub column: (u32, u32),
    pub replica: u32,
}

/// Owner tile as an affine function of the coordinates, modulo the tiles of the program.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Owner {
    pub base: u32,
    pub group: u32,
    /// Strides of the outer and the inner index.
    pub row: (u32, u32),
    pub column: (u32, u32),
    pub replica: Replicas,
}

/// Replicas as up to two nested loops of `count` with a `stride`: `(count, stride)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Replicas {
    pub outer: (u32, u32),
    pub inner: (u32, u32),
}

impl Default for Replicas {
    fn default() -> Self {
        Replicas {
            outer: (1, 0),
            inner: (1, 0),
        }
    }
}

impl Replicas {
    pub const fn count(&self) -> u32 {
        self.outer.0 * self.inner.0
    }

    const fn offset(&self, replica: u32) -> u32 {
        (replica / self.inner.0) * self.outer.1 + (replica % self.inner.0) * self.inner.1
    }
}

/// Cuts of the three axes and the owner of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tiling {
    pub groups: Split,
    pub rows: Cuts,
    pub columns: Cuts,
    pub owner: Owner,
}

/// Element type, order, memory class and tiling of a distributed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Layout {
    pub dtype: Dtype,
    pub order: Order,
    pub class: MemoryClass,
    pub tiling: Tiling,
}

/// A sub-box `[groups, rows, columns]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    pub groups: Range<u32>,
    pub rows: Range<u32>,
    pub columns: Range<u32>,
}

/// One shard: a region on one tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub tile: u32,
    pub region: Region,
    pub coordinates: Coordinates,
}

const fn length(range: &Range<u32>) -> u32 {
    range.end - range.start
}

impl Region {
    pub const fn group_count(&self) -> u32 {
        length(&self.groups)
    }

    pub const fn row_count(&self) -> u32 {
        length(&self.rows)
    }

    pub const fn column_count(&self) -> u32 {
        length(&self.columns)
    }

    pub const fn elements(&self) -> u32 {
        self.group_count() * self.row_count() * self.column_count()
    }

    pub fn intersect(&self, other: &Region) -> Option<Region> {
        let meet = |a: &Range<u32>, b: &Range<u32>| a.start.max(b.start)..a.end.min(b.end);
        let region = Region {
            groups: meet(&self.groups, &other.groups),
            rows: meet(&self.rows, &other.rows),
            columns: meet(&self.columns, &other.columns),
        };
        let empty = |range: &Range<u32>| range.start >= range.end;
        (!empty(&region.groups) && !empty(&region.rows) && !empty(&region.columns))
            .then_some(region)
    }

    /// Element offset of a coordinate of this shard, groups outermost.
    pub const fn offset(&self, order: Order, group: u32, row: u32, column: u32) -> u32 {
        let (rows, columns) = (self.row_count(), self.column_count());
        (group - self.groups.start) * rows * columns
            + order.offset(
                rows,
                columns,
                row - self.rows.start,
                column - self.columns.start,
            )
    }
}

impl Tiling {
    /// The part of the box at some coordinates.
    pub fn region(&self, shape: [u32; 3], at: &Coordinates) -> Region {
        Region {
            groups: self.groups.part(&(0..shape[0]), at.group),
            rows: self.rows.part(shape[1], at.row.0, at.row.1),
            columns: self.columns.part(shape[2], at.column.0, at.column.1),
        }
    }

    /// The tile that owns the part at some coordinates.
    pub fn tile(&self, tiles: u32, at: &Coordinates) -> u32 {
        let owner = &self.owner;
        (owner.base
            + at.group * owner.group
            + at.row.0 * owner.row.0
            + at.row.1 * owner.row.1
            + at.column.0 * owner.column.0
            + at.column.1 * owner.column.1
            + owner.replica.offset(at.replica))
            % tiles
    }

    pub const fn replicas(&self) -> u32 {
        self.owner.replica.count()
    }

    /// Shards in all, replicas included.
    pub const fn shard_count(&self) -> u32 {
        self.groups.parts * self.rows.parts() * self.columns.parts() * self.replicas()
    }

    /// Coordinates of every part, replica 0 only, in row-major order of the indices.
    pub fn parts(&self) -> impl Iterator<Item = Coordinates> + '_ {
        let rows = self.rows.inner.parts;
        let columns = self.columns.inner.parts;
        (0..self.groups.parts).flat_map(move |group| {
            (0..self.rows.parts()).flat_map(move |row| {
                (0..self.columns.parts()).map(move |column| Coordinates {
                    group,
                    row: (row / rows, row % rows),
                    column: (column / columns, column % columns),
                    replica: 0,
                })
            })
        })
    }

    /// Every shard, replicas of a part adjacent.
    pub fn shards(&self, shape: [u32; 3], tiles: u32) -> Vec<Shard> {
        let cut = |cuts: &Cuts, size: u32, owner: (u32, u32)| -> Vec<_> {
            let inner = cuts.inner.parts;
            let at = (0..cuts.parts()).map(|index| (index / inner, index % inner));
            at.map(|at| {
                let range = cuts.part(size, at.0, at.1);
                (at, range, at.0 * owner.0 + at.1 * owner.1)
            })
            .collect()
        };
        let owner = &self.owner;
        let rows = cut(&self.rows, shape[1], owner.row);
        let columns = cut(&self.columns, shape[2], owner.column);
        let replicas: Vec<u32> = (0..self.replicas())
            .map(|replica| owner.replica.offset(replica))
            .collect();
        let mut shards = Vec::with_capacity(self.shard_count() as usize);
        for group in 0..self.groups.parts {
            let groups = self.groups.part(&(0..shape[0]), group);
            let group_at = owner.base + group * owner.group;
            for (row, row_range, row_at) in &rows {
                for (column, column_range, column_at) in &columns {
                    let at = group_at + row_at + column_at;
                    for (replica, offset) in (0..).zip(&replicas) {
                        shards.push(Shard {
                            tile: (at + offset) % tiles,
                            region: Region {
                                groups: groups.clone(),
                                rows: row_range.clone(),
                                columns: column_range.clone(),
                            },
                            coordinates: Coordinates {
                                group,
                                row: *row,
                                column: *column,
                                replica,
                            },
                        });
                    }
                }
            }
        }
        shards
    }

    /// Whether every part holds something.
    pub fn fits(&self, shape: [u32; 3]) -> bool {
        self.groups.fits(shape[0]) && self.rows.fits(shape[1]) && self.columns.fits(shape[2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_tile_the_axis_and_are_found_again() {
        for (size, outer, inner) in [(729, 9, 3), (1152, 12, 1), (37, 5, 2), (736, 7, 1)] {
            for grain in [1, 2, 3] {
                let cuts = Cuts {
                    outer: Split::new(outer, grain),
                    inner: Split::new(inner, 1),
                };
                let mut next = 0;
                for index in 0..cuts.parts() {
                    let (o, i) = (index / inner, index % inner);
                    let part = cuts.part(size, o, i);
                    assert_eq!(part.start, next);
                    assert!(part.end > part.start);
                    next = part.end;
                    for at in part {
                        assert_eq!(cuts.index_of(size, at), (o, i));
                    }
                }
                assert_eq!(next, size);
                assert!(cuts.fits(size));
            }
        }
        assert!(!Split::new(5, 16).fits(64));
    }

    #[test]
    fn replicas_are_adjacent_and_on_their_tiles() {
        let tiling = Tiling {
            groups: Split::WHOLE,
            rows: Cuts::of(Split::new(2, 1)),
            columns: Cuts::WHOLE,
            owner: Owner {
                row: (6, 0),
                replica: Replicas {
                    outer: (2, 3),
                    inner: (3, 1),
                },
                ..Owner::default()
            },
        };
        let tiles: Vec<u32> = tiling
            .shards([1, 8, 16], 64)
            .iter()
            .map(|shard| shard.tile)
            .collect();
        assert_eq!(tiles, (0..12).collect::<Vec<_>>());
    }
}
