//! Stage `reference`: what the graph gives in FP32, and in the planned precision.
//!
//! Inputs: `graph`, `weights`, `checkpoint` (optional), `fixture`, `images` (optional).
//! Parameters: `precision.*`, `attention.*`, `map.*`. Outputs: `fp32`, `device` (npy,
//! `[invocations, rows, columns]`).
//! Invariants: the key holds what fixes the order of sums.

use ipu_ir::graph::Graph;
use ipu_model::param_matrix;
use ipu_reference::{EvaluateError, Operand, Quantise, evaluate, evaluate_quantised};
use ipub_engine::{StageFailure, StageInputs, StageOutputs};

use crate::codec::unpack;
use crate::fixture::read_fixture;
use crate::npy::Array;
use crate::precision::Formats;
use crate::stage::Stage;
use crate::weights::read_weights;

pub(crate) const STAGE: Stage = Stage {
    identity: || Some(ipu_reference::kernel_identity()),
    ..Stage::new("reference", run)
};

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let graph: Graph = unpack("graph", &inputs.input("graph")?)?;
    let weights = read_weights(inputs)?;
    let fixture = read_fixture(inputs, &graph)?;
    let formats = Formats::read(inputs.params())?;
    let policy = |operation: &str, operand: Operand| quantise(&formats, operation, operand);
    let params = |value| param_matrix(&graph, value, weights.as_ref());
    let (mut exact, mut device) = (Vec::new(), Vec::new());
    let total = 2 * fixture.len() as u64;
    for (index, input) in fixture.into_iter().enumerate() {
        let input = [input];
        inputs.progress("FP32", 2 * index as u64, total);
        exact.push(evaluate(&graph, &params, &input).map_err(refuse)?);
        inputs.progress("device precision", 2 * index as u64 + 1, total);
        device.push(evaluate_quantised(&graph, &params, &input, &policy).map_err(refuse)?);
    }
    Ok(StageOutputs::new()
        .with("fp32", array(&graph, exact)?)
        .with("device", array(&graph, device)?))
}

/// The format of an operand, as it was planned.
fn quantise(formats: &Formats, operation: &str, operand: Operand) -> Option<Quantise> {
    let (qk, pv) = match operation.starts_with("map.") {
        true => (formats.map_qk, formats.map_pv),
        false => (formats.attention_qk, formats.attention_pv),
    };
    let scale = match operand {
        Operand::Activation | Operand::Weight if operation.starts_with("embed.") => formats.embed,
        Operand::Activation | Operand::Weight => formats.dense,
        Operand::Query | Operand::Key => qk,
        Operand::Value | Operand::Probabilities => pv,
    };
    scale.map(|scale| Quantise::F143 {
        scale_exp: i32::from(scale),
    })
}

fn array(graph: &Graph, invocations: Vec<Vec<Vec<f32>>>) -> Result<Vec<u8>, StageFailure> {
    let [output] = graph.top.yields[..] else {
        return Err(StageFailure::bug("a graph has one output"));
    };
    let shape = &graph.value(output).shape;
    let mut extents = vec![invocations.len() as u64];
    extents.extend(shape.iter().map(|extent| u64::from(*extent)));
    let elements = invocations.into_iter().flatten().flatten().collect();
    let array = Array {
        shape: extents,
        elements,
    };
    array
        .to_npy()
        .map_err(|error| StageFailure::bug(error.to_string()))
}

fn refuse(error: EvaluateError) -> StageFailure {
    match error {
        EvaluateError::Weights(error) => StageFailure::usage(error.to_string()),
        other => StageFailure::bug(other.to_string()),
    }
}
