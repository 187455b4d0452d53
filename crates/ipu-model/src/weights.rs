//! Parameters of a graph from the tensors of a checkpoint, stored or seeded.
//!
//! Input: a graph, a [`WeightSource`]. Output: parameter matrices, row-major.
//! Invariants: parameters that read the same checkpoint tensor see the same elements.
//! Not here: number formats and layouts of a device.

use std::collections::BTreeMap;

use ipu_ir::graph::{Graph, Init, ParamSource, SourceOrder, ValueDef, ValueId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::stream::NormalStream;

/// A tensor of a checkpoint, as a graph expects it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointTensor {
    /// Hugging Face name, without the prefix `vision_model.`.
    pub name: String,
    pub shape: Vec<u32>,
    pub init: Init,
}

impl CheckpointTensor {
    fn of(source: &ParamSource, init: Init) -> CheckpointTensor {
        CheckpointTensor {
            name: source.tensor.clone(),
            shape: source.tensor_shape.clone(),
            init,
        }
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().map(|extent| *extent as usize).product()
    }

    /// Elements of one row: the tensor is seen as `[first dimension, all others]`.
    fn columns(&self) -> usize {
        self.shape[1..]
            .iter()
            .map(|extent| *extent as usize)
            .product()
    }
}

#[derive(Debug, Error)]
pub enum WeightError {
    #[error("value {0} of the graph is not a parameter")]
    NotParam(u32),
    #[error("the checkpoint is not a safetensors file: {0}")]
    Malformed(#[from] safetensors::SafeTensorError),
    #[error("the checkpoint has no tensor `{tensor}` (with or without `vision_model.`)")]
    Missing { tensor: String },
    #[error("tensor `{tensor}` has shape {found:?}, the model expects {expected:?}")]
    WrongShape {
        tensor: String,
        expected: Vec<u32>,
        found: Vec<usize>,
    },
    #[error("tensor `{tensor}` holds {found}; F32, F16 and BF16 can be read")]
    WrongType { tensor: String, found: String },
    #[error("the graph reads tensor `{tensor}` with two shapes or distributions")]
    Conflict { tensor: String },
}

/// Where the tensors of a checkpoint come from.
pub trait WeightSource: Sync {
    /// Whether the tensor is there, with the shape that the graph expects.
    fn check(&self, tensor: &CheckpointTensor) -> Result<(), WeightError>;

    /// Elements `first .. first + out.len()`, in stored order.
    fn read(
        &self,
        tensor: &CheckpointTensor,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), WeightError>;
}

/// Random tensors: one stream for each checkpoint name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeededWeights {
    pub seed: u64,
}

impl WeightSource for SeededWeights {
    fn check(&self, _: &CheckpointTensor) -> Result<(), WeightError> {
        Ok(())
    }

    fn read(
        &self,
        tensor: &CheckpointTensor,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), WeightError> {
        let std = match tensor.init {
            Init::One => {
                out.fill(1.0);
                return Ok(());
            }
            Init::Normal { std } => std,
            Init::XavierNormal { fan_in, fan_out } => {
                (2.0 / (f64::from(fan_in) + f64::from(fan_out))).sqrt() as f32
            }
        };
        NormalStream::new(self.seed, &tensor.name).fill(first as u64, std, out);
        Ok(())
    }
}

/// Every checkpoint tensor that the graph reads, once, sorted by name.
pub fn checkpoint_tensors(graph: &Graph) -> Result<Vec<CheckpointTensor>, WeightError> {
    let mut tensors: BTreeMap<&str, CheckpointTensor> = BTreeMap::new();
    for value in &graph.values {
        let ValueDef::Param(param) = &value.def else {
            continue;
        };
        for source in &param.sources {
            let tensor = CheckpointTensor::of(source, param.init);
            match tensors.get(source.tensor.as_str()) {
                Some(known) if *known != tensor => {
                    let tensor = tensor.name;
                    return Err(WeightError::Conflict { tensor });
                }
                Some(_) => {}
                None => {
                    tensors.insert(&source.tensor, tensor);
                }
            }
        }
    }
    Ok(tensors.into_values().collect())
}

/// Whether `weights` holds every tensor that the graph reads; the first fault in name order.
pub fn check_weights(graph: &Graph, weights: &dyn WeightSource) -> Result<(), WeightError> {
    checkpoint_tensors(graph)?
        .iter()
        .try_for_each(|tensor| weights.check(tensor))
}

/// The matrix of a parameter, row-major, in the shape of its value.
pub fn param_matrix(
    graph: &Graph,
    value: ValueId,
    weights: &dyn WeightSource,
) -> Result<Vec<f32>, WeightError> {
    let ValueDef::Param(param) = &graph.value(value).def else {
        return Err(WeightError::NotParam(value.0));
    };
    let shape = &graph.value(value).shape;
    let mut out = vec![0.0; shape.iter().map(|extent| *extent as usize).product()];
    let mut rest = out.as_mut_slice();
    for source in &param.sources {
        let tensor = CheckpointTensor::of(source, param.init);
        weights.check(&tensor)?;
        let (part, tail) = rest.split_at_mut(source.rows as usize * tensor.columns());
        read_source(source, &tensor, weights, part)?;
        rest = tail;
    }
    assert!(rest.is_empty(), "sources fill the value's shape");
    Ok(out)
}

fn read_source(
    source: &ParamSource,
    tensor: &CheckpointTensor,
    weights: &dyn WeightSource,
    out: &mut [f32],
) -> Result<(), WeightError> {
    let columns = tensor.columns();
    let first = source.first_row as usize * columns;
    match source.order {
        SourceOrder::Stored => weights.read(tensor, first, out),
        SourceOrder::RepeatedRow => {
            let (row, copies) = out.split_at_mut(columns);
            weights.read(tensor, first, row)?;
            copies
                .chunks_exact_mut(columns)
                .for_each(|copy| copy.copy_from_slice(row));
            Ok(())
        }
        SourceOrder::PatchChannelsLast { channels, patch } => {
            let mut stored = vec![0.0; out.len()];
            weights.read(tensor, first, &mut stored)?;
            let (channels, pixels) = (channels as usize, (patch * patch) as usize);
            for (row, from) in out
                .chunks_exact_mut(columns)
                .zip(stored.chunks_exact(columns))
            {
                for (index, element) in row.iter_mut().enumerate() {
                    *element = from[index % channels * pixels + index / channels];
                }
            }
            Ok(())
        }
    }
}
