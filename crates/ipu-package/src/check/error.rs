//! What is wrong with a package.
//!
//! Invariants: every fault names the tile, the tensor and the bytes that it concerns.

use std::fmt;

use thiserror::Error;

use crate::types::{Role, SegmentKind};

/// Who holds a run of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupant {
    Piece(SegmentKind),
    /// A shard of the tensor with this name.
    Tensor(String),
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Occupant::Piece(SegmentKind::Kernel) => f.write_str("a kernel"),
            Occupant::Piece(SegmentKind::TileProgram) => f.write_str("the tile program"),
            Occupant::Piece(SegmentKind::Row) => f.write_str("an exchange row"),
            Occupant::Piece(SegmentKind::Frames) => f.write_str("call frames"),
            Occupant::Tensor(name) => write!(f, "a shard of {name}"),
        }
    }
}

/// An axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Rows,
    Columns,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Axis::Rows => "rows",
            Axis::Columns => "columns",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckError {
    #[error("{tiles} tiles; the chip has 1,472, and a package uses at least one")]
    TileCount { tiles: u32 },
    #[error("{images} images for {tiles} tiles")]
    ImageCount { images: usize, tiles: u32 },
    #[error("image {index} is that of tile {tile}")]
    ImageOrder { index: usize, tile: u32 },
    #[error("segment {segment} is empty")]
    SegmentEmpty { segment: usize },
    #[error("segments {first} and {second} are equal")]
    SegmentRepeated { first: usize, second: usize },
    #[error("no image uses segment {segment}")]
    SegmentUnused { segment: usize },
    #[error("tile {tile}: the piece at {address:#x} names segment {segment} of {segments}")]
    SegmentIndex {
        tile: u32,
        address: u32,
        segment: u32,
        segments: usize,
    },
    #[error("tile {tile}: {occupant} at {address:#x} is not aligned to 4")]
    Misaligned {
        tile: u32,
        occupant: Occupant,
        address: u32,
    },
    #[error("tile {tile}: {occupant} of {bytes} bytes at {address:#x} lies outside its memory")]
    OutOfMemory {
        tile: u32,
        occupant: Occupant,
        address: u32,
        bytes: u64,
    },
    #[error("tile {tile}: {second} at {address:#x} overlaps {first} by {bytes} bytes")]
    Overlap {
        tile: u32,
        first: Occupant,
        second: Occupant,
        address: u32,
        bytes: u32,
    },
    #[error("tile {tile}: {occupant} of {bytes} bytes at {address:#x} shares an element with code")]
    CodeElement {
        tile: u32,
        occupant: Occupant,
        address: u32,
        bytes: u32,
    },
    #[error("tile {tile}: the entry {entry:#x} is no instruction of its image")]
    Entry { tile: u32, entry: u32 },
    #[error("tile {tile}: the mark at {address:#x} does not follow the one at {before:#x}")]
    MarkOrder {
        tile: u32,
        address: u32,
        before: u32,
    },
    #[error("tile {tile}: the mark at {address:#x} is no instruction of the tile program")]
    MarkOutside { tile: u32, address: u32 },
    #[error("tile {tile}: the mark at {address:#x} names step {step} of {steps}")]
    MarkStep {
        tile: u32,
        address: u32,
        step: u32,
        steps: usize,
    },
    #[error("{tensor} has no elements")]
    TensorEmpty { tensor: String },
    #[error(
        "{tensor}: the span of {count} {axis} at {logical} ({device} on the device) is empty or out of range"
    )]
    SpanRange {
        tensor: String,
        axis: Axis,
        logical: u32,
        device: u32,
        count: u32,
    },
    #[error("{tensor}: {axis} from {logical} on are in no span or in two")]
    SpanCover {
        tensor: String,
        axis: Axis,
        logical: u32,
    },
    #[error("{tensor}: two spans of {axis} stand at {device} on the device")]
    SpanOverlap {
        tensor: String,
        axis: Axis,
        device: u32,
    },
    #[error("binding {binding} names tensor {tensor} of {tensors}")]
    TensorIndex {
        binding: usize,
        tensor: u32,
        tensors: usize,
    },
    #[error("binding {binding} of {tensor} is on tile {tile} of {tiles}")]
    BindingTile {
        binding: usize,
        tensor: String,
        tile: u32,
        tiles: u32,
    },
    #[error(
        "binding {binding} of {tensor} on tile {tile}: its order cannot hold {rows} x {columns} elements"
    )]
    BindingShape {
        binding: usize,
        tensor: String,
        tile: u32,
        rows: u32,
        columns: u32,
    },
    #[error("slot {slot} is that of tile {tile}, which has no transfers, another slot or no image")]
    HostSlot { slot: usize, tile: u32 },
    #[error(
        "tile {tile}: the host moves {bytes} bytes at {address:#x}: misaligned, not in order, or without a slot"
    )]
    HostRun { tile: u32, address: u32, bytes: u32 },
    #[error("tile {tile}: the host plan and the bindings differ at {address:#x} ({role:?})")]
    HostBytes { tile: u32, address: u32, role: Role },
    #[error("{tensor}: no binding holds the element ({row}, {column})")]
    Uncovered {
        tensor: String,
        row: u32,
        column: u32,
    },
    #[error("{tensor}: {bindings} bindings hold the element ({row}, {column}) of an output")]
    CoveredTwice {
        tensor: String,
        row: u32,
        column: u32,
        bindings: u32,
    },
}
