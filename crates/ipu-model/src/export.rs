//! Writes the weights of a graph as a safetensors file in Hugging Face names and shapes.
//!
//! Input: a graph, its weights, a writer. Output: the file's bytes, in F32.
//! Invariants: tensors are in name order; a tensor is never held whole.
//! Not here: opening files.

use std::collections::BTreeMap;
use std::io::{self, Write};

use ipu_ir::graph::Graph;
use serde_json::json;
use thiserror::Error;

use crate::checkpoint::PREFIX;
use crate::weights::{CheckpointTensor, WeightError, WeightSource, checkpoint_tensors};

/// Elements read and written at once.
const CHUNK: usize = 1 << 20;
/// The data of a safetensors file begins at a multiple of this.
const ALIGN: usize = 8;

#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Weights(#[from] WeightError),
    #[error("the checkpoint cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// Write every tensor that the graph reads, under its name with the prefix `vision_model.`.
pub fn export_safetensors(
    graph: &Graph,
    weights: &dyn WeightSource,
    writer: &mut dyn Write,
) -> Result<(), ExportError> {
    let tensors = checkpoint_tensors(graph)?;
    let header = header(&tensors);
    writer.write_all(&(header.len() as u64).to_le_bytes())?;
    writer.write_all(&header)?;
    let mut elements = Vec::new();
    let mut bytes = Vec::new();
    for tensor in &tensors {
        weights.check(tensor)?;
        let total = tensor.elements();
        for first in (0..total).step_by(CHUNK) {
            elements.resize(CHUNK.min(total - first), 0.0);
            weights.read(tensor, first, &mut elements)?;
            bytes.clear();
            bytes.extend(elements.iter().flat_map(|element| element.to_le_bytes()));
            writer.write_all(&bytes)?;
        }
    }
    writer.flush()?;
    Ok(())
}

fn header(tensors: &[CheckpointTensor]) -> Vec<u8> {
    let mut entries = BTreeMap::from([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.elements() * size_of::<f32>();
        let entry = json!({
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": [offset, end],
        });
        entries.insert(format!("{PREFIX}{}", tensor.name), entry);
        offset = end;
    }
    let mut header = serde_json::to_vec(&entries).expect("a map with text keys is valid JSON");
    header.resize(header.len().next_multiple_of(ALIGN), b' ');
    header
}
