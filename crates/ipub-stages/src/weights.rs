//! Stage `weights`: a seed or a safetensors file to a record of the weights.
//!
//! Inputs: `graph`, `checkpoint` (optional). Parameter: `weights.seed`.
//! Output: `weights` (JSON): the seed, or the digest of the file. Tensors are never stored.

use ipu_ir::graph::Graph;
use ipu_model::{Checkpoint, SeededWeights, WeightSource, check_weights};
use ipub_base::Digest;
use ipub_engine::{StageFailure, StageInputs, StageOutputs};
use serde::{Deserialize, Serialize};

use crate::codec::{from_json, to_json, unpack};
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("weights", run);

/// Which weights: a record from which they can be had again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// Random, by this seed.
    Seed(u64),
    /// A safetensors file with this digest.
    Checkpoint(Digest),
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let graph: Graph = unpack("graph", &inputs.input("graph")?)?;
    let weights = match inputs.digest("checkpoint")? {
        Some(digest) => Weights::Checkpoint(digest),
        None => {
            let seed = inputs.params().int("weights.seed")?;
            Weights::Seed(u64::try_from(seed).map_err(|_| {
                StageFailure::usage(format!("`weights.seed` is {seed}: it must not be negative"))
            })?)
        }
    };
    let source = open(weights, inputs)?;
    check_weights(&graph, source.as_ref()).map_err(|error| {
        let file = inputs.files("checkpoint").ok().and_then(<[_]>::first);
        let file = file.map_or_else(|| "weights".to_owned(), |file| file.name.clone());
        StageFailure::usage(format!("{file}: {error}"))
    })?;
    Ok(StageOutputs::new().with("weights", to_json("weights", &weights)?))
}

/// The weights that the inputs `weights` and `checkpoint` of a stage name.
pub(crate) fn read_weights(
    inputs: &StageInputs<'_>,
) -> Result<Box<dyn WeightSource>, StageFailure> {
    let weights: Weights = from_json("weights", &inputs.input("weights")?)?;
    open(weights, inputs)
}

fn open(weights: Weights, inputs: &StageInputs<'_>) -> Result<Box<dyn WeightSource>, StageFailure> {
    match weights {
        Weights::Seed(seed) => Ok(Box::new(SeededWeights { seed })),
        Weights::Checkpoint(digest) => {
            if inputs.digest("checkpoint")? != Some(digest) {
                return Err(StageFailure::usage(
                    "`checkpoint` is not the file of `weights`",
                ));
            }
            let bytes = inputs.input("checkpoint")?;
            let checkpoint = Checkpoint::new(bytes).map_err(|error| {
                let file = inputs.files("checkpoint").ok().and_then(<[_]>::first);
                let file = file.map_or("checkpoint", |file| file.name.as_str());
                StageFailure::usage(format!("{file}: {error}"))
            })?;
            Ok(Box::new(checkpoint))
        }
    }
}
