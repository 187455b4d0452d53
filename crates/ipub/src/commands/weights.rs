//! `ipub weights export`: a target's weights as a safetensors file.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use ipu_model::{ExportError, SeededWeights, export_safetensors};
use ipub_base::Diagnostic;
use ipub_stages::{Weights, decode_graph};

use super::build::outputs;
use crate::cli::TargetArgs;
use crate::exit::Outcome;
use crate::{files, open};

pub fn export(target: &TargetArgs, path: &Path) -> Outcome {
    let engine = open::engine()?;
    let mut request = open::request(target)?;
    let wanted = [("lower", "graph"), ("weights", "weights")];
    let [graph, weights] = outputs(&engine, &mut request, wanted)?;
    let graph = decode_graph(&graph).map_err(|failure| failure.diagnostic())?;
    let weights: Weights = serde_json::from_slice(&weights)
        .map_err(|error| Diagnostic::bug(format!("weights: {error}")))?;
    let Weights::Seed(seed) = weights else {
        let message = "the weights of this target are a safetensors file already";
        return Err(Diagnostic::usage(message));
    };
    let file = File::create(path).map_err(|error| files::unwritable(path, &error))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    export_safetensors(&graph, &SeededWeights { seed }, &mut writer).map_err(|error| {
        // What is left of the file is useless; the error that matters is the first.
        let _ = std::fs::remove_file(path);
        match error {
            ExportError::Write(error) => files::unwritable(path, &error),
            ExportError::Weights(error) => Diagnostic::bug(error.to_string()),
        }
    })
}
