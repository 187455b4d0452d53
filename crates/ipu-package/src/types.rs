//! The contents of a package.
//!
//! Invariants (checked by the package checker): pieces of one tile do not overlap and lie in SRAM;
//! bindings lie in data memory and cover each tensor's logical elements; every entry, mark and
//! segment index is in range; the host plan moves exactly the bytes of the bindings.
//! Not here: recipe, candidates, costs, provenance, invocation counts, thresholds.

use serde::{Deserialize, Serialize};

use crate::host::HostPlan;
use crate::order::{Dtype, Order};

/// Version of the container and of everything below.
pub const FORMAT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// Device name, such as `c600`.
    pub device: String,
    /// Logical tiles `0 .. tiles` hold an image of their own.
    pub tiles: u32,
    /// Distinct byte runs; images refer to them, so what tiles share is stored once.
    pub segments: Vec<Segment>,
    /// Of the logical tiles, then of other tiles that serve the host; ascending by tile.
    pub images: Vec<TileImage>,
    /// What every tile without an image of its own runs; it names the first of them.
    pub rest: Option<TileImage>,
    pub tensors: Vec<Tensor>,
    pub bindings: Vec<Binding>,
    pub host: HostPlan,
    /// Steps of the tile program, for faults and for cycles by operation.
    pub steps: Vec<StepInfo>,
}

/// Little-endian words, as they stand in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    pub kind: SegmentKind,
    pub words: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SegmentKind {
    Kernel,
    TileProgram,
    Row,
    Frames,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileImage {
    pub tile: u32,
    /// Address of the first supervisor instruction.
    pub entry: u32,
    pub pieces: Vec<Piece>,
    /// Where each step begins in this tile's program, ascending by address.
    pub marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub address: u32,
    pub segment: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub address: u32,
    /// Index into [`Package::steps`].
    pub step: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Operation of the graph, such as `encoder.mlp_up`.
    pub operation: String,
    /// What the step does for it, such as `gemm`, `reduce`, `gather`.
    pub label: String,
    pub kind: StepKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    Compute,
    Exchange,
    HostUpload,
    HostDownload,
    Control,
}

/// A tensor that the host exchanges with the device, seen as a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    pub name: String,
    pub role: Role,
    pub rows: u32,
    pub columns: u32,
    /// Where logical rows and columns stand in device coordinates; what no span names is zero.
    pub row_spans: Vec<Span>,
    pub column_spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Uploaded by each call `run`.
    Input,
    /// Uploaded once, by the call `initialize`.
    Parameter,
    /// Downloaded by each call `run`.
    Output,
}

/// `count` logical indices from `logical` on stand at `device` and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    pub device: u32,
    pub logical: u32,
    pub count: u32,
}

/// One shard of a tensor in one tile's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Index into [`Package::tensors`].
    pub tensor: u32,
    pub tile: u32,
    pub address: u32,
    pub dtype: Dtype,
    /// F143 value = code value times two to this power.
    pub scale_exponent: i8,
    pub order: Order,
    /// First device row and column of the shard.
    pub row: u32,
    pub column: u32,
    /// Physical extent. Elements outside the tensor's spans are written as zero.
    pub rows: u32,
    pub columns: u32,
}

impl Binding {
    pub const fn bytes(&self) -> u32 {
        self.rows * self.columns * self.dtype.bytes()
    }
}
