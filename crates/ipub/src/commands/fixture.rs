//! `ipub fixture export`: a target's inputs and reference outputs as npy files.

use std::path::Path;

use ipub_base::Diagnostic;
use ipub_stages::{Array, Fixture, decode_graph, fixture_inputs};

use super::build::outputs;
use crate::cli::TargetArgs;
use crate::exit::Outcome;
use crate::{files, open};

pub fn export(target: &TargetArgs, dir: &Path) -> Outcome {
    let engine = open::engine()?;
    let mut request = open::request(target)?;
    let wanted = [
        ("lower", "graph"),
        ("fixture", "fixture"),
        ("reference", "fp32"),
        ("reference", "device"),
    ];
    let [graph, fixture, exact, device] = outputs(&engine, &mut request, wanted)?;
    let graph = decode_graph(&graph).map_err(|failure| failure.diagnostic())?;
    let fixture: Fixture = serde_json::from_slice(&fixture)
        .map_err(|error| Diagnostic::bug(format!("fixture: {error}")))?;
    let Fixture::Seeded { seed, invocations } = fixture else {
        let message = "the inputs of this target are an npy file already";
        return Err(Diagnostic::usage(message));
    };
    let mut shape = vec![u64::from(invocations)];
    let input = graph.value(graph.top.args[0]);
    shape.extend(input.shape.iter().map(|extent| u64::from(*extent)));
    let array = Array {
        shape,
        elements: fixture_inputs(&graph, seed, invocations).concat(),
    };
    let inputs = array
        .to_npy()
        .map_err(|error| Diagnostic::bug(error.to_string()))?;
    for (name, bytes) in [
        ("inputs.npy", inputs),
        ("outputs_fp32.npy", exact),
        ("outputs_device_precision.npy", device),
    ] {
        files::write(&dir.join(name), &bytes)?;
    }
    Ok(())
}
