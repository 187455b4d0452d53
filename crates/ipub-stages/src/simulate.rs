//! What `run` and `time` share: reading a package, simulated cycles and their parts, failures.

use ipu_package::{Package, StepKind};
use ipu_sim::{CycleCount, SessionError};
use ipub_engine::{FailureKind, StageFailure};
use serde::{Deserialize, Serialize};

/// Cycles by what they were spent on. Each list sums to `cycles`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub cycles: u64,
    pub by_kind: Vec<KindPart>,
    pub by_operation: Vec<OperationPart>,
    pub by_step: Vec<StepPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KindPart {
    pub kind: StepKind,
    pub cycles: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OperationPart {
    pub operation: String,
    pub cycles: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepPart {
    pub operation: String,
    pub label: String,
    pub kind: StepKind,
    pub cycles: u64,
}

impl Counts {
    pub fn new(parts: &CycleCount, package: &Package) -> Self {
        let steps = &package.steps;
        let (by_step, outside) = parts.by_step();
        let mut all: Vec<StepPart> = steps
            .iter()
            .zip(by_step)
            .map(|(step, &cycles)| StepPart {
                operation: step.operation.clone(),
                label: step.label.clone(),
                kind: step.kind,
                cycles,
            })
            .collect();
        if outside > 0 {
            all.push(StepPart {
                operation: String::new(),
                label: "outside steps".to_owned(),
                kind: StepKind::Control,
                cycles: outside,
            });
        }
        let by_kind = parts.by_kind(steps).into_iter();
        let by_operation = parts.by_operation(steps).into_iter();
        Self {
            cycles: parts.total(),
            by_kind: by_kind
                .map(|part| KindPart {
                    kind: part.kind,
                    cycles: part.cycles,
                })
                .collect(),
            by_operation: by_operation
                .map(|part| OperationPart {
                    operation: part.operation,
                    cycles: part.cycles,
                })
                .collect(),
            by_step: all,
        }
    }
}

pub(crate) fn read_package(file: &[u8]) -> Result<Package, StageFailure> {
    ipu_package::read(file)
        .map_err(|error| StageFailure::usage(format!("the package cannot be read: {error}")))
}

/// A device fault is one; what the host did not give is ours.
pub(crate) fn refuse(error: SessionError) -> StageFailure {
    match &error {
        SessionError::Fault(fault) => {
            StageFailure::new(FailureKind::DeviceFault, fault.to_string())
        }
        SessionError::Load(_) => {
            StageFailure::usage(format!("the package cannot be loaded: {error}"))
        }
        _ => StageFailure::bug(error.to_string()),
    }
}
