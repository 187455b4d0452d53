//! Why a candidate cannot be placed.
//!
//! Invariants: every failure names what it is about (operation or tensor, tile, bytes) and is plain
//! data: equal inputs give an equal failure, and it can be stored under the key of its inputs.
//! Not here: what to do about it.

use std::fmt;

use ipu_ir::contract::MemoryClass;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A step of the mid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    pub operation: Box<str>,
    pub label: Box<str>,
}

impl Site {
    pub fn new(operation: &str, label: &str) -> Self {
        Site {
            operation: operation.into(),
            label: label.into(),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.label)
    }
}

/// Half-open byte range of a tile's memory.
pub type ByteRange = (u32, u32);

#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum PlaceError {
    #[error("mid: {0}")]
    Mid(String),
    #[error("{tensor} on tile {tile}: its order cannot hold {rows} x {columns}")]
    Physical {
        tensor: String,
        tile: u32,
        rows: u32,
        columns: u32,
    },
    #[error("{site}: no contract of kernel {kernel}")]
    UnknownKernel { site: Site, kernel: String },
    #[error("{site}: {kernel}: argument {argument}: {what}")]
    Argument {
        site: Site,
        kernel: String,
        argument: String,
        what: String,
    },
    #[error("{site}: {kernel} on tile {tile}: {what}")]
    Shape {
        site: Site,
        kernel: String,
        tile: u32,
        what: String,
    },
    #[error("{0}")]
    Extent(Box<Extent>),
    #[error("{site}: {kernel} needs {tensor} in two different memory elements at once")]
    SelfDistinct {
        site: Site,
        kernel: String,
        tensor: String,
    },
    #[error("{site}: {source_tensor} and {destination} have different element types")]
    Type {
        site: Site,
        source_tensor: String,
        destination: String,
    },
    #[error(
        "{site}: {missing} logical elements of {destination} on tile {tile} have no defined source in {source_tensor}"
    )]
    Uncovered {
        site: Site,
        source_tensor: String,
        destination: String,
        tile: u32,
        missing: u64,
    },
    #[error(
        "{site}: a run of {bytes} bytes from {source_tensor} + {source_offset} to {destination} + {destination_offset} on tile {tile} is not whole words"
    )]
    Fragment {
        site: Site,
        source_tensor: String,
        destination: String,
        tile: u32,
        source_offset: u32,
        destination_offset: u32,
        bytes: u32,
    },
    #[error("{site}: {tensor} is written twice or both read and written in one phase")]
    Hazard { site: Site, tensor: String },
    #[error("{site}: parameter {tensor} is written")]
    ParameterWritten { site: Site, tensor: String },
    #[error("{site}: {tensor} has {members} members in a loop of {count}")]
    Members {
        site: Site,
        tensor: String,
        members: u32,
        count: u32,
    },
    #[error(
        "reservations of {support_bytes} support and {row_bytes} row bytes exceed region 0: {available} bytes"
    )]
    Reservations {
        support_bytes: u32,
        row_bytes: u32,
        available: u32,
    },
    #[error("{0}")]
    Infeasible(Box<Infeasible>),
    #[error("{0}")]
    GaveUp(Box<GaveUp>),
    #[error("{site}: sources on tile {tile} move by {first} and by {second} bytes in one phase")]
    MovingStrides {
        site: Site,
        tile: u32,
        first: u32,
        second: u32,
    },
    #[error("{site}: {what}")]
    Exchange { site: Site, what: String },
    #[error("tile {tile}: exchange rows need {needed} bytes, {reserved} are reserved")]
    RowsExceed {
        tile: u32,
        needed: u32,
        reserved: u32,
    },
}

/// An argument that is longer than the shard given for it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error(
    "{site}: {kernel} on tile {tile}: {argument} needs {needed} bytes, {tensor} has {available}"
)]
pub struct Extent {
    pub site: Site,
    pub kernel: String,
    pub tile: u32,
    pub argument: String,
    pub tensor: String,
    pub needed: u64,
    pub available: u32,
}

/// Proof that no placement exists: live bytes exceed memory at one event.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error(
    "tile {tile}: {needed} bytes of {class:?} memory are live at event {event}, {available} exist; the largest is {tensor} with {bytes}"
)]
pub struct Infeasible {
    pub tile: u32,
    /// Interleaved: region 1 is too small. Standard: both regions together are.
    pub class: MemoryClass,
    pub event: u32,
    pub needed: u64,
    pub available: u64,
    pub tensor: String,
    pub bytes: u32,
}

/// No order found room: not a proof.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("tile {tile}: no order finds room; the last: {}", .attempts[.attempts.len() - 1])]
pub struct GaveUp {
    pub tile: u32,
    pub attempts: Vec<Attempt>,
}

/// Where one order stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub order: String,
    pub tensor: String,
    pub class: MemoryClass,
    pub bytes: u32,
    /// Ranges that its class may use and that were free over its lifetime, whether or not it must
    /// keep away from other data in their elements.
    pub free: Vec<ByteRange>,
    pub largest_hole: u32,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} order stops at {} ({:?}, {} bytes; largest hole {})",
            self.order, self.tensor, self.class, self.bytes, self.largest_hole
        )?;
        if self.largest_hole >= self.bytes {
            f.write_str("; what is free is too near to data that must be in another element")?;
        }
        Ok(())
    }
}
