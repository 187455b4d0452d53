//! The tile program: the only list of work. Costing, lifetimes, placement, emission and reports
//! read it; nothing else lists calls or transfers.
//!
//! Invariants (checked by the placement checker): every address is an allocation and an offset
//! inside it; transfers move whole words; within a phase no word is written twice; lifetimes
//! cover every use.
//! Not here: addresses and rows (see [`Placed`]), machine words, host packets.

use ipu_package::{StepInfo, Tensor as HostTensor};
use serde::{Deserialize, Serialize};

use crate::contract::MemoryClass;

/// Index of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllocId(pub u32);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TileProgram {
    pub tiles: u32,
    pub allocations: Vec<Allocation>,
    /// Kernel names; calls refer to them by index.
    pub kernels: Vec<String>,
    pub infos: Vec<StepInfo>,
    pub steps: Vec<Step>,
    pub host_tensors: Vec<HostTensor>,
    pub bindings: Vec<HostBinding>,
}

/// Storage of one shard on one tile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    pub tile: u32,
    /// Index of the mid tensor, for names in reports and failures.
    pub tensor: u32,
    /// Bytes of one member.
    pub bytes: u32,
    /// Members of a parameter sequence, one after another, `stride` bytes apart.
    pub members: u32,
    pub stride: u32,
    pub align: u32,
    pub class: MemoryClass,
    /// Readable bytes after the end that kernels may touch.
    pub over_read: u32,
    pub life: Life,
    /// Allocations of the same tile that must not share a memory element with this one.
    pub distinct: Vec<AllocId>,
}

/// When storage is needed, in events of the flattened program (a `Repeat` body counts once).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Resident across invocations.
    Persistent,
    /// From event `first` to event `last`, both included.
    Events { first: u32, last: u32 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Inputs have arrived when this step is over.
    HostUpload {
        info: u32,
    },
    HostDownload {
        info: u32,
    },
    Calls {
        info: u32,
        calls: Vec<Call>,
    },
    Phase {
        info: u32,
        transfers: Vec<Transfer>,
    },
    Repeat {
        count: u32,
        body: Vec<Step>,
    },
}

/// One kernel call on one tile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub tile: u32,
    pub kernel: u32,
    /// The frame, in the order of the contract's arguments.
    pub frame: Vec<Word>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Word {
    Scalar(u32),
    /// A place in an allocation; in a sequence, of the current iteration's member.
    Address(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    pub allocation: AllocId,
    pub offset: u32,
}

/// One contiguous run of words from one tile to any number of tiles. A source in a sequence moves
/// by its stride with each iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    pub source: Place,
    pub words: u32,
    pub destinations: Vec<Place>,
}

/// A shard that the host fills or reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostBinding {
    /// Index into `host_tensors`.
    pub tensor: u32,
    pub place: Place,
    /// Member of the sequence, 0 otherwise.
    pub member: u32,
    pub dtype: ipu_package::Dtype,
    pub scale_exponent: i8,
    pub order: ipu_package::Order,
    pub row: u32,
    pub column: u32,
    pub rows: u32,
    pub columns: u32,
}

/// A tile program with addresses and rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    pub program: TileProgram,
    /// Address of each allocation.
    pub addresses: Vec<u32>,
    /// Schedules of the phases, in program order (a `Repeat` body counts once).
    pub phases: Vec<PlacedPhase>,
    pub reservations: Reservations,
}

/// Bytes that placement keeps free for what is sized later. Changing one changes addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservations {
    /// Kernel and tile program code, whole elements after the tables element.
    pub support_bytes: u32,
    /// Exchange rows, whole elements after support.
    pub row_bytes: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedPhase {
    /// Rows of the active tiles, ascending by tile.
    pub rows: Vec<Row>,
    pub horizon: u32,
    /// Lower bound of the horizon: most words that one tile sends or receives.
    pub bound: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub tile: u32,
    pub address: u32,
    pub words: Vec<u32>,
    pub incoming_base: u32,
    /// Set when sources of this tile move: base of iteration 0 and its step.
    pub outgoing_base: Option<(u32, u32)>,
    pub horizon: u32,
}
