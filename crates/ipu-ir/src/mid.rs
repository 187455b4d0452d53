//! The mid: a model as distributed tensors, copies and kernel calls, with no undecided node.
//!
//! Input: made by the planner from a graph and a recipe.
//! Invariants (checked by [`Mid::verify`]): steps name existing tensors; each operand of a call has
//! a shard on every tile where the call runs; a copy covers its whole destination but padding.
//! Not here: addresses, per-tile lists, transfers, schedules, costs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::layout::{Extent, Layout, Shard};

/// Index of a tensor of the mid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mid {
    /// Logical tiles `0 .. tiles` take part.
    pub tiles: u32,
    pub tensors: Vec<Tensor>,
    pub steps: Vec<Step>,
}

/// A tensor `[groups, rows, columns]` in device coordinates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    pub name: String,
    pub groups: u32,
    pub rows: Extent,
    pub columns: Extent,
    pub layout: Layout,
    /// F143: value = code value times two to this power.
    pub scale_exponent: i8,
    pub storage: Storage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Storage {
    /// Lives from its first write to its last read.
    Transient,
    /// Filled by each call `run` from the graph value of this name.
    Input(String),
    /// Read by each call `run` into the graph value of this name.
    Output(String),
    /// Resident. One member, or one for each iteration of the `Repeat` that uses it: members lie
    /// one after another with a uniform stride.
    Parameter(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// All copies of one phase: between two barriers.
    Exchange(Exchange),
    /// One kernel call on each tile that holds a shard of the first operand.
    Compute(Compute),
    /// `body`, `count` times. Parameters with `count` members advance by one each time.
    Repeat { count: u32, body: Vec<Step> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Operation of the graph that the phase serves.
    pub operation: String,
    pub label: String,
    pub copies: Vec<Copy>,
}

/// Fill `destination` from `source`, element by element through `view`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    pub source: TensorId,
    pub destination: TensorId,
    pub view: View,
}

/// How a coordinate of the destination is found in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum View {
    /// The same coordinates, with the source's columns read from `column` on and its groups from
    /// `group` on.
    Same { group: u32, column: u32 },
    /// Destination group `b * heads + h`, row `r`, column `c` is source row `b * tokens + r`,
    /// column `column + h * depth + c`.
    SplitHeads {
        heads: u32,
        tokens: u32,
        depth: u32,
        column: u32,
    },
    /// Destination row `b * tokens + r`, column `h * depth + c` is source group `b * heads + h`,
    /// row `r`, column `c`.
    JoinHeads { heads: u32, tokens: u32, depth: u32 },
}

impl View {
    pub const SAME: View = View::Same {
        group: 0,
        column: 0,
    };
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Operation of the graph that the call serves.
    pub operation: String,
    pub label: String,
    /// Kernel name: a contract.
    pub kernel: String,
    /// Pointer arguments by name. The first names the tiles: those that hold a shard of it.
    pub operands: Vec<Operand>,
    pub scalars: BTreeMap<String, ScalarRule>,
    pub only: Filter,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operand {
    pub argument: String,
    pub tensor: TensorId,
}

/// Value of a scalar argument on each tile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScalarRule {
    Const(i64),
    /// A measure of the operand's shard, divided by `divisor`, which divides it.
    Measure {
        argument: String,
        measure: Measure,
        divisor: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Measure {
    Groups,
    Rows,
    Columns,
    /// Rows times columns: the elements of one group.
    Area,
    /// All elements.
    Elements,
    /// All bytes.
    Bytes,
}

/// Tiles on which a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    All,
    /// Only where the first operand's shard holds padding.
    Padded,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MidError {
    #[error("tensor {0}: a part of its tiling is empty")]
    EmptyPart(String),
    #[error("tensor {name}: {tile} owns two shards")]
    TwoShards { name: String, tile: u32 },
    #[error("{operation} {label}: {argument} has no shard on tile {tile}")]
    NoShard {
        operation: String,
        label: String,
        argument: String,
        tile: u32,
    },
}

impl Tensor {
    pub const fn shape(&self) -> [u32; 3] {
        [self.groups, self.rows.size(), self.columns.size()]
    }

    pub fn shards(&self, tiles: u32) -> Vec<Shard> {
        self.layout.tiling.shards(self.shape(), tiles)
    }

    /// Members of a parameter sequence; one for everything else.
    pub fn members(&self) -> u32 {
        match &self.storage {
            Storage::Parameter(members) => members.len() as u32,
            _ => 1,
        }
    }

    /// Whether a shard holds coordinates that are padding.
    pub fn is_padded(&self, shard: &Shard) -> bool {
        self.rows.has_padding(&shard.region.rows) || self.columns.has_padding(&shard.region.columns)
    }

    pub fn bytes(&self, shard: &Shard) -> u32 {
        shard.region.elements() * self.layout.dtype.bytes()
    }
}

impl Measure {
    pub fn of(self, tensor: &Tensor, shard: &Shard) -> u32 {
        let region = &shard.region;
        match self {
            Measure::Groups => region.group_count(),
            Measure::Rows => region.row_count(),
            Measure::Columns => region.column_count(),
            Measure::Area => region.row_count() * region.column_count(),
            Measure::Elements => region.elements(),
            Measure::Bytes => tensor.bytes(shard),
        }
    }
}

impl Mid {
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// Check the invariants that the module names.
    pub fn verify(&self) -> Result<(), MidError> {
        let mut owns = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            owns.push(self.owned_tiles(tensor)?);
        }
        self.verify_steps(&self.steps, &owns)
    }

    fn owned_tiles(&self, tensor: &Tensor) -> Result<Vec<bool>, MidError> {
        if !tensor.layout.tiling.fits(tensor.shape()) {
            return Err(MidError::EmptyPart(tensor.name.clone()));
        }
        let mut owned = vec![false; self.tiles as usize];
        for shard in tensor.shards(self.tiles) {
            if std::mem::replace(&mut owned[shard.tile as usize], true) {
                return Err(MidError::TwoShards {
                    name: tensor.name.clone(),
                    tile: shard.tile,
                });
            }
        }
        Ok(owned)
    }

    fn verify_steps(&self, steps: &[Step], owns: &[Vec<bool>]) -> Result<(), MidError> {
        for step in steps {
            match step {
                Step::Exchange(_) => {}
                Step::Repeat { body, .. } => self.verify_steps(body, owns)?,
                Step::Compute(compute) => verify_compute(compute, owns)?,
            }
        }
        Ok(())
    }
}

fn verify_compute(compute: &Compute, owns: &[Vec<bool>]) -> Result<(), MidError> {
    let tiles = |operand: &Operand| &owns[operand.tensor.0 as usize];
    let driver = tiles(&compute.operands[0]);
    for operand in &compute.operands[1..] {
        let missing = driver
            .iter()
            .zip(tiles(operand))
            .position(|(runs, has)| *runs && !*has);
        if let Some(tile) = missing {
            return Err(MidError::NoShard {
                operation: compute.operation.clone(),
                label: compute.label.clone(),
                argument: operand.argument.clone(),
                tile: tile as u32,
            });
        }
    }
    Ok(())
}
