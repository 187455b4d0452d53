//! Stage `lower`: model specification and batch to graph.
//!
//! Input: `spec` (TOML). Parameter: `batch`. Output: `graph` (postcard).

use ipu_model::{ModelSpec, SpecError};
use ipub_base::Location;
use ipub_engine::{StageFailure, StageInputs, StageOutputs};

use crate::codec::pack;
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("lower", run);

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let bytes = inputs.input("spec")?;
    let file = inputs.files("spec")?.first();
    let file = file.map_or_else(|| "spec".to_owned(), |file| file.name.clone());
    let text = String::from_utf8(bytes)
        .map_err(|_| StageFailure::usage(format!("{file}: the text is not UTF-8")))?;
    let at = |error: SpecError| refuse(error, &file, &text);
    let spec = ModelSpec::parse(&text).map_err(at)?;
    let batch = inputs.params().int("batch")?;
    let batch = u32::try_from(batch)
        .map_err(|_| StageFailure::usage(format!("`batch` is {batch}: it must be positive")))?;
    let graph = ipu_model::lower(&spec, batch).map_err(at)?;
    let outputs = StageOutputs::new().with("graph", pack("graph", &graph)?);
    Ok(outputs.note("operations", graph.ops.len()))
}

/// A fault in the specification, with its place.
fn refuse(error: SpecError, file: &str, text: &str) -> StageFailure {
    let (message, offset) = match &error {
        SpecError::Toml(error) => (
            error.message().to_owned(),
            error.span().map(|span| span.start),
        ),
        SpecError::Field { field, .. } => (error.to_string(), field_offset(text, field)),
    };
    let mut failure = StageFailure::usage(message);
    failure.location = Some(match offset {
        Some(offset) => Location::of_offset(file, text, offset),
        None => Location {
            file: file.to_owned(),
            line: 0,
            column: 0,
        },
    });
    failure
}

/// Where the line that sets `field` begins.
fn field_offset(text: &str, field: &str) -> Option<usize> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let rest = line.trim_start().strip_prefix(field);
        if rest.is_some_and(|rest| rest.trim_start().starts_with('=')) {
            return Some(offset);
        }
        offset += line.len();
    }
    None
}
