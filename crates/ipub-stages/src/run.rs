//! Stage `run`: the package on the simulated device.
//!
//! Inputs: `package`, `graph`, `weights`, `checkpoint` (optional), `fixture`, `images` (optional).
//! Outputs: `outputs` (npy, `[invocations, rows, columns]`), `samples` (JSON).
//! Invariants: parameters are uploaded once; each distinct input is run once and the first is then
//! repeated, which must give the same bytes and the same cycles; every invocation takes the same
//! simulated cycles.

use std::collections::BTreeMap;

use ipu_ir::graph::{Graph, ValueId};
use ipu_model::{WeightError, WeightSource, param_matrix};
use ipu_sim::{Invocation, Session};
use ipub_engine::{FailureKind, StageFailure, StageInputs, StageOutputs};
use serde::Serialize;

use crate::codec::{to_json, unpack};
use crate::fixture::read_fixture;
use crate::npy::Array;
use crate::simulate::{Counts, read_package, refuse};
use crate::stage::Stage;
use crate::weights::read_weights;

pub(crate) const STAGE: Stage = Stage::new("run", run);

#[derive(Serialize)]
struct Samples {
    invocations: u32,
    /// Distinct inputs; the rest of the invocations repeats the first.
    distinct: u32,
    repeat_matches: bool,
    #[serde(flatten)]
    counts: Counts,
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let graph: Graph = unpack("graph", &inputs.input("graph")?)?;
    let file = inputs.input("package")?;
    let package = read_package(&file)?;
    let weights = read_weights(inputs)?;
    let fixture = read_fixture(inputs, &graph)?;
    let mut session = Session::new(&package).map_err(refuse)?;
    let total = fixture.len() as u64 + 2;
    inputs.progress("parameters", 0, total);
    initialize(&mut session, &graph, weights.as_ref())?;
    let mut results = Vec::new();
    for (index, input) in fixture.iter().enumerate() {
        inputs.progress("invocation", 1 + index as u64, total);
        results.push(invoke(&mut session, input)?);
    }
    inputs.progress("repeated invocation", total - 1, total);
    let repeat = invoke(&mut session, &fixture[0])?;
    check_repeat(&results[0], &repeat)?;
    for (index, result) in results.iter().enumerate().skip(1) {
        if result.cycles != results[0].cycles {
            return Err(StageFailure::bug(format!(
                "invocation {index} takes {} simulated cycles, the first {}",
                result.cycles, results[0].cycles
            )));
        }
    }
    let samples = Samples {
        invocations: results.len() as u32 + 1,
        distinct: results.len() as u32,
        repeat_matches: true,
        counts: Counts::new(&results[0].parts, &package),
    };
    let outputs = StageOutputs::new().note("cycles", results[0].cycles);
    Ok(outputs
        .with("samples", to_json("samples", &samples)?)
        .with("outputs", array(&graph, results)?))
}

fn initialize(
    session: &mut Session<'_>,
    graph: &Graph,
    weights: &dyn WeightSource,
) -> Result<(), StageFailure> {
    let values: BTreeMap<&str, ValueId> = graph
        .values
        .iter()
        .enumerate()
        .map(|(index, value)| (value.name.as_str(), ValueId(index as u32)))
        .collect();
    let mut wrong: Option<WeightError> = None;
    let done = session.initialize(&mut |tensor| {
        let value = values.get(tensor.name.as_str())?;
        match param_matrix(graph, *value, weights) {
            Ok(matrix) => Some(matrix),
            Err(error) => {
                wrong.get_or_insert(error);
                None
            }
        }
    });
    match wrong {
        Some(error) => Err(StageFailure::usage(error.to_string())),
        None => done.map_err(refuse),
    }
}

fn invoke(session: &mut Session<'_>, input: &[f32]) -> Result<Invocation, StageFailure> {
    session
        .invoke(&mut |_| Some(input.to_vec()))
        .map_err(refuse)
}

fn check_repeat(first: &Invocation, repeat: &Invocation) -> Result<(), StageFailure> {
    let differ = |what: String| {
        let message = format!("the same input gives another result when it is repeated: {what}");
        Err(StageFailure::new(FailureKind::Verification, message))
    };
    if first.cycles != repeat.cycles {
        let (a, b) = (first.cycles, repeat.cycles);
        return differ(format!("{a} and {b} simulated cycles"));
    }
    for (name, before) in &first.outputs {
        let after = repeat.outputs.get(name).map_or(&[][..], Vec::as_slice);
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
        if before.len() != after.len() {
            return differ(format!("`{name}` has another length"));
        }
        if let Some(index) = before.iter().zip(after).position(|pair| !same(pair)) {
            let (a, b) = (before[index], after[index]);
            return differ(format!("`{name}` element {index} is {a}, then {b}"));
        }
    }
    Ok(())
}

fn array(graph: &Graph, results: Vec<Invocation>) -> Result<Vec<u8>, StageFailure> {
    let [output] = graph.top.yields[..] else {
        return Err(StageFailure::bug("a graph has one output"));
    };
    let output = graph.value(output);
    let mut shape = vec![results.len() as u64];
    shape.extend(output.shape.iter().map(|extent| u64::from(*extent)));
    let mut elements = Vec::new();
    for mut result in results {
        let matrix = result.outputs.remove(&output.name);
        elements.extend(matrix.ok_or_else(|| {
            StageFailure::bug(format!("the package has no output `{}`", output.name))
        })?);
    }
    let array = Array { shape, elements };
    array
        .to_npy()
        .map_err(|error| StageFailure::bug(error.to_string()))
}
