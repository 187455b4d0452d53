//! The semantic graph: what a model computes, with stable names and ids, and nothing about how.
//!
//! Input: a model specification, through the builder of `ipu-model`.
//! Output: operations in construction order over SSA values; one structured loop, `Repeat`.
//! Invariants (checked by [`Graph::verify`]): ids are dense and in construction order; the id of a
//! `Repeat` follows the ids of its body; a region uses only its own values, the values of
//! enclosing regions and parameters; names are unique; shapes agree.
//! Not here: precision, layout, padding, tiles, cost.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Index of an operation, in construction order over the whole graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(pub u32);

/// Index of a value, in construction order over the whole graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// A model as a semantic graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    pub name: String,
    pub batch: u32,
    pub values: Vec<Value>,
    pub ops: Vec<Op>,
    /// The outermost region. Its arguments are the graph's inputs, its yields the outputs.
    pub top: Region,
}

/// An SSA value. Shapes are `[rows, columns]`, or `[groups, rows, columns]` after `SplitHeads`,
/// where a group is one head of one batch member (batch outermost).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    pub name: String,
    pub shape: Vec<u32>,
    pub def: ValueDef,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ValueDef {
    /// A graph input, filled anew for each invocation.
    Input,
    /// A parameter: resident across invocations.
    Param(Param),
    Result(OpId),
    /// The loop state at the entry of one iteration.
    Carried {
        index: u32,
    },
    /// The member of sequence `index` that belongs to the current iteration.
    Iterated {
        index: u32,
    },
}

/// Where a parameter's elements come from, and how random ones are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// Parts stacked along rows. Together they fill the value's shape.
    pub sources: Vec<ParamSource>,
    pub init: Init,
}

/// Rows of one checkpoint tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamSource {
    /// Hugging Face tensor name, without the prefix `vision_model.`.
    pub tensor: String,
    /// Shape of the tensor in the checkpoint.
    pub tensor_shape: Vec<u32>,
    /// First row taken, with the tensor seen as `[rows, columns]`.
    pub first_row: u32,
    pub rows: u32,
    pub order: SourceOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceOrder {
    /// As stored: linear weights are `[out, in]`, vectors are one row.
    Stored,
    /// A convolution weight `[out, channel, y, x]` read as `[out, (y, x, channel)]`.
    PatchChannelsLast { channels: u32, patch: u32 },
    /// One stored row, repeated for each batch member.
    RepeatedRow,
}

/// The distribution of a seeded random parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Init {
    /// Normal with variance `2 / (fan_in + fan_out)`.
    XavierNormal {
        fan_in: u32,
        fan_out: u32,
    },
    Normal {
        std: f32,
    },
    One,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Stable, unique name: the word that recipes use.
    pub name: String,
    pub kind: OpKind,
    pub results: Vec<ValueId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OpKind {
    /// `y[r, n] = sum_k x[r, k] * w[n, k]`; the weight is stored `[out, in]`.
    Gemm { x: ValueId, w: ValueId },
    /// `y[r, n] = x[r, n] + b[0, n]`.
    Bias { x: ValueId, b: ValueId },
    /// `y = a + b`; rows of `b` repeat with period `b.rows` (the position embedding).
    Add { a: ValueId, b: ValueId },
    /// Over columns, with FP32 statistics.
    LayerNorm {
        x: ValueId,
        scale: ValueId,
        bias: ValueId,
        epsilon: f32,
    },
    /// Columns `first .. first + columns`.
    SliceColumns {
        x: ValueId,
        first: u32,
        columns: u32,
    },
    /// `[batch * tokens, heads * depth]` to `[batch * heads, tokens, depth]`.
    SplitHeads { x: ValueId, heads: u32 },
    /// `softmax(scale * q k^T) v` for each group.
    Attention {
        q: ValueId,
        k: ValueId,
        v: ValueId,
        scale: f32,
    },
    /// The inverse view of `SplitHeads`.
    JoinHeads { x: ValueId },
    /// Tanh form.
    Gelu { x: ValueId },
    /// `count` iterations of `body`. Results are the carried values after the last iteration.
    Repeat {
        count: u32,
        carried: Vec<ValueId>,
        /// One member for each iteration.
        iterated: Vec<Vec<ValueId>>,
        body: Region,
    },
}

/// Operations with arguments and yields. In a `Repeat` body the arguments are the carried values,
/// then the iterated ones; the yields are the next carried values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Region {
    pub args: Vec<ValueId>,
    pub ops: Vec<OpId>,
    pub yields: Vec<ValueId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    #[error("operation {op} ({name}): {what}")]
    Op { op: u32, name: String, what: String },
    #[error("the name {0} is used twice")]
    DuplicateName(String),
    #[error("value {0} is used before it is defined, or outside its region")]
    Undefined(u32),
}

impl Graph {
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0 as usize]
    }

    pub fn op_named(&self, name: &str) -> Option<OpId> {
        self.ops
            .iter()
            .position(|op| op.name == name)
            .map(|index| OpId(index as u32))
    }

    /// Rows of a value: the last but one dimension.
    pub fn rows(&self, id: ValueId) -> u32 {
        let shape = &self.value(id).shape;
        shape[shape.len() - 2]
    }

    /// Columns of a value: the last dimension.
    pub fn columns(&self, id: ValueId) -> u32 {
        *self
            .value(id)
            .shape
            .last()
            .expect("a value has at least two dimensions")
    }

    /// Check the invariants that the module names.
    pub fn verify(&self) -> Result<(), GraphError> {
        let mut names = BTreeSet::new();
        for name in self
            .ops
            .iter()
            .map(|op| &op.name)
            .chain(self.values.iter().map(|v| &v.name))
        {
            if !names.insert(name) {
                return Err(GraphError::DuplicateName(name.clone()));
            }
        }
        let mut known = vec![false; self.values.len()];
        for (index, value) in self.values.iter().enumerate() {
            known[index] = matches!(value.def, ValueDef::Param(_));
        }
        self.verify_region(&self.top, &mut known)
    }

    fn verify_region(&self, region: &Region, known: &mut [bool]) -> Result<(), GraphError> {
        for arg in &region.args {
            known[arg.0 as usize] = true;
        }
        for id in &region.ops {
            let op = self.op(*id);
            for operand in op.kind.operands() {
                require(known, operand)?;
            }
            if let OpKind::Repeat { body, .. } = &op.kind {
                let mut inner = known.to_vec();
                self.verify_region(body, &mut inner)?;
                if body.ops.iter().any(|inner| inner.0 >= id.0) {
                    return Err(self.fault(*id, "its id precedes its body"));
                }
            }
            self.verify_shapes(*id)?;
            for result in &op.results {
                known[result.0 as usize] = true;
            }
        }
        region
            .yields
            .iter()
            .try_for_each(|value| require(known, *value))
    }

    fn verify_shapes(&self, id: OpId) -> Result<(), GraphError> {
        let op = self.op(id);
        let shape = |value: &ValueId| self.value(*value).shape.as_slice();
        let result = op.results.first().map(shape).unwrap_or_default();
        let good = match &op.kind {
            OpKind::Gemm { x, w } => {
                shape(x)[1] == shape(w)[1] && result == [shape(x)[0], shape(w)[0]]
            }
            OpKind::Bias { x, b } => shape(b) == [1, shape(x)[1]] && result == shape(x),
            OpKind::Add { a, b } => {
                shape(a)[1] == shape(b)[1] && shape(a)[0] % shape(b)[0] == 0 && result == shape(a)
            }
            OpKind::LayerNorm { x, scale, bias, .. } => {
                shape(scale) == [1, shape(x)[1]]
                    && shape(bias) == shape(scale)
                    && result == shape(x)
            }
            OpKind::SliceColumns { x, first, columns } => {
                first + columns <= shape(x)[1] && result == [shape(x)[0], *columns]
            }
            OpKind::SplitHeads { x, heads } => {
                result
                    == [
                        self.batch * heads,
                        shape(x)[0] / self.batch,
                        shape(x)[1] / heads,
                    ]
                    && shape(x)[1] % heads == 0
            }
            OpKind::Attention { q, k, v, .. } => {
                shape(k) == shape(v) && shape(q)[0] == shape(k)[0] && result == shape(q)
            }
            OpKind::JoinHeads { x } => {
                result
                    == [
                        self.batch * shape(x)[1],
                        shape(x)[0] / self.batch * shape(x)[2],
                    ]
            }
            OpKind::Gelu { x } => result == shape(x),
            OpKind::Repeat {
                count,
                carried,
                iterated,
                body,
            } => {
                *count > 0
                    && iterated
                        .iter()
                        .all(|sequence| sequence.len() == *count as usize)
                    && body.args.len() == carried.len() + iterated.len()
                    && body.yields.len() == carried.len()
                    && op.results.len() == carried.len()
            }
        };
        if good {
            Ok(())
        } else {
            Err(self.fault(id, "its shapes do not agree"))
        }
    }

    fn fault(&self, id: OpId, what: &str) -> GraphError {
        GraphError::Op {
            op: id.0,
            name: self.op(id).name.clone(),
            what: what.to_owned(),
        }
    }
}

fn require(known: &[bool], value: ValueId) -> Result<(), GraphError> {
    if known[value.0 as usize] {
        Ok(())
    } else {
        Err(GraphError::Undefined(value.0))
    }
}

impl OpKind {
    /// Values read by the operation itself; a `Repeat` reads its initial values and its sequences.
    pub fn operands(&self) -> Vec<ValueId> {
        match self {
            OpKind::Gemm { x, w } => vec![*x, *w],
            OpKind::Bias { x, b } => vec![*x, *b],
            OpKind::Add { a, b } => vec![*a, *b],
            OpKind::LayerNorm { x, scale, bias, .. } => vec![*x, *scale, *bias],
            OpKind::Attention { q, k, v, .. } => vec![*q, *k, *v],
            OpKind::SliceColumns { x, .. }
            | OpKind::SplitHeads { x, .. }
            | OpKind::JoinHeads { x }
            | OpKind::Gelu { x } => vec![*x],
            OpKind::Repeat {
                carried, iterated, ..
            } => carried
                .iter()
                .chain(iterated.iter().flatten())
                .copied()
                .collect(),
        }
    }
}
