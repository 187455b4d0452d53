//! Stage `verify`: outputs against their references.
//!
//! Inputs: `outputs`, `fp32`, `device`. Parameter: `verify.cosine_min`. Output: `report` (JSON).
//! Invariants: there is a report only if outputs are finite and the smallest cosine of a row
//! against FP32 is above the threshold; otherwise the failure carries it.

use ipu_reference::{Metrics, compare};
use ipub_engine::{FailureKind, StageFailure, StageInputs, StageOutputs};
use serde::{Deserialize, Serialize};

use crate::codec::to_json;
use crate::npy::Array;
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("verify", run);

/// How far outputs are from their references.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub passed: bool,
    pub rows: u64,
    /// Smallest cosine of a row against FP32. The threshold is not here: another one that is also
    /// exceeded gives the same report.
    pub cosine_min: f64,
    pub cosine_min_row: u64,
    pub max_abs_error: f64,
    /// Against the reference in device precision.
    pub cosine_min_device: f64,
    pub max_abs_error_device: f64,
    pub finite: bool,
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let threshold = inputs.params().float("verify.cosine_min")?;
    let outputs = read(inputs, "outputs")?;
    let exact = metrics(&outputs, &read(inputs, "fp32")?)?;
    let device = metrics(&outputs, &read(inputs, "device")?)?;
    let report = Report {
        passed: exact.finite() && exact.cosine_min > threshold,
        rows: exact.rows,
        cosine_min: exact.cosine_min,
        cosine_min_row: exact.cosine_min_row,
        max_abs_error: exact.max_abs_error,
        cosine_min_device: device.cosine_min,
        max_abs_error_device: device.max_abs_error,
        finite: exact.finite(),
    };
    let bytes = to_json("report", &report)?;
    if report.passed {
        return Ok(StageOutputs::new().with("report", bytes));
    }
    let message = match report.finite {
        false => format!("{} numbers of the outputs are not finite", exact.non_finite),
        true => format!(
            "row {} of the outputs has cosine {:.6} against FP32; `verify.cosine_min` is {threshold}",
            report.cosine_min_row, report.cosine_min
        ),
    };
    Err(StageFailure::new(FailureKind::Verification, message).with_payload(bytes))
}

fn read(inputs: &StageInputs<'_>, name: &str) -> Result<Array, StageFailure> {
    Array::from_npy(&inputs.input(name)?)
        .map_err(|error| StageFailure::usage(format!("`{name}`: {error}")))
}

fn metrics(outputs: &Array, reference: &Array) -> Result<Metrics, StageFailure> {
    if outputs.shape != reference.shape {
        let (found, wanted) = (&outputs.shape, &reference.shape);
        return Err(StageFailure::bug(format!(
            "outputs have shape {found:?}, their reference {wanted:?}"
        )));
    }
    let columns = outputs.shape.last().copied().unwrap_or(1).max(1);
    Ok(compare(
        &outputs.elements,
        &reference.elements,
        columns as usize,
    ))
}
