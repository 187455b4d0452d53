//! Stage `fixture`: which inputs a target is run on.
//!
//! Inputs: `graph`, `images` (npy, optional). Parameters: `fixture.seed`, `fixture.invocations`.
//! Output: `fixture` (JSON): seed and count, or the digest and count of the file.
//! Invariants: seeded inputs are made again from the record, never stored.

use ipu_ir::graph::Graph;
use ipu_model::input_tensor;
use ipub_base::Digest;
use ipub_engine::{StageFailure, StageInputs, StageOutputs};
use serde::{Deserialize, Serialize};

use crate::codec::{from_json, to_json, unpack};
use crate::npy::Array;
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("fixture", run);

/// Most distinct inputs of one run.
const INVOCATIONS_MAX: i64 = 1024;

/// Which inputs: a record from which they can be had again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixture {
    /// Standard normal numbers by this seed, a tensor for each invocation.
    Seeded {
        /// The seed.
        seed: u64,
        /// How many distinct inputs.
        invocations: u32,
    },
    /// The inputs of a file, one after another.
    File {
        /// The file.
        digest: Digest,
        /// How many inputs it holds.
        invocations: u32,
    },
}

impl Fixture {
    /// How many distinct inputs there are.
    pub fn invocations(&self) -> u32 {
        match self {
            Self::Seeded { invocations, .. } | Self::File { invocations, .. } => *invocations,
        }
    }
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let graph: Graph = unpack("graph", &inputs.input("graph")?)?;
    let fixture = match inputs.digest("images")? {
        Some(digest) => Fixture::File {
            digest,
            invocations: read_images(inputs, &graph)?.len() as u32,
        },
        None => seeded(inputs)?,
    };
    Ok(StageOutputs::new().with("fixture", to_json("fixture", &fixture)?))
}

fn seeded(inputs: &StageInputs<'_>) -> Result<Fixture, StageFailure> {
    let (seed, count) = (
        inputs.params().int("fixture.seed")?,
        inputs.params().int("fixture.invocations")?,
    );
    let seed = u64::try_from(seed).map_err(|_| {
        StageFailure::usage(format!("`fixture.seed` is {seed}: it must not be negative"))
    })?;
    if !(2..=INVOCATIONS_MAX).contains(&count) {
        return Err(StageFailure::usage(format!(
            "`fixture.invocations` is {count}: it must be between 2 and {INVOCATIONS_MAX}"
        )));
    }
    Ok(Fixture::Seeded {
        seed,
        invocations: count as u32,
    })
}

/// The inputs that the stage inputs `fixture` and `images` name, in order.
pub(crate) fn read_fixture(
    inputs: &StageInputs<'_>,
    graph: &Graph,
) -> Result<Vec<Vec<f32>>, StageFailure> {
    let fixture: Fixture = from_json("fixture", &inputs.input("fixture")?)?;
    match fixture {
        Fixture::Seeded { seed, invocations } => Ok(fixture_inputs(graph, seed, invocations)),
        Fixture::File { digest, .. } => {
            if inputs.digest("images")? != Some(digest) {
                return Err(StageFailure::usage("`images` is not the file of `fixture`"));
            }
            read_images(inputs, graph)
        }
    }
}

/// Seeded inputs of `graph`.
pub fn fixture_inputs(graph: &Graph, seed: u64, invocations: u32) -> Vec<Vec<f32>> {
    (0..invocations)
        .map(|invocation| input_tensor(graph, seed, invocation))
        .collect()
}

fn read_images(inputs: &StageInputs<'_>, graph: &Graph) -> Result<Vec<Vec<f32>>, StageFailure> {
    let bytes = inputs.input("images")?;
    let file = inputs.files("images")?.first();
    let file = file.map_or("images", |file| file.name.as_str());
    let refuse = |why: String| StageFailure::usage(format!("{file}: {why}"));
    let array = Array::from_npy(&bytes).map_err(|error| refuse(error.to_string()))?;
    let input = graph.value(graph.top.args[0]);
    let length: usize = input.shape.iter().map(|extent| *extent as usize).product();
    if array.elements.is_empty() || array.elements.len() % length != 0 {
        return Err(refuse(format!(
            "shape {:?} is not one or more times {:?}, the shape of `{}`",
            array.shape, input.shape, input.name
        )));
    }
    if let Some(index) = array
        .elements
        .iter()
        .position(|element| !element.is_finite())
    {
        return Err(refuse(format!("element {index} is not a finite number")));
    }
    let mut elements = array.elements;
    round_to_f16(&mut elements);
    Ok(elements.chunks_exact(length).map(<[f32]>::to_vec).collect())
}

/// The host sends F16 numbers.
fn round_to_f16(elements: &mut [f32]) {
    for element in elements {
        *element = half::f16::from_f32(*element).to_f32();
    }
}
