//! How a stage can fail. Failures that follow from the key alone are results and are stored.

use ipub_base::{Diagnostic, DiagnosticKind, Location};
use ipub_store::StoreError;
use serde::Serialize;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It was proven that there is no solution.
    Infeasible,
    /// None was found within the limits given.
    GaveUp,
    /// A measured size is above a limit.
    Rejected,
    /// Results are not within the thresholds.
    Verification,
    /// The simulated device stopped.
    DeviceFault,
    /// An input is wrong.
    Usage,
    /// Disk, memory, other processes.
    Environment,
    /// A broken invariant.
    Bug,
}

impl FailureKind {
    const ALL: [(&'static str, Self, DiagnosticKind); 8] = [
        ("infeasible", Self::Infeasible, DiagnosticKind::Infeasible),
        ("gave-up", Self::GaveUp, DiagnosticKind::Infeasible),
        ("rejected", Self::Rejected, DiagnosticKind::Rejected),
        (
            "verification",
            Self::Verification,
            DiagnosticKind::Verification,
        ),
        (
            "device-fault",
            Self::DeviceFault,
            DiagnosticKind::DeviceFault,
        ),
        ("usage", Self::Usage, DiagnosticKind::Usage),
        (
            "environment",
            Self::Environment,
            DiagnosticKind::Environment,
        ),
        ("bug", Self::Bug, DiagnosticKind::Bug),
    ];

    /// The kind as a word, as records hold it.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The kind that a word names.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(word, ..)| *word == name)
            .map(|(_, kind, _)| *kind)
    }

    /// What it is to the user.
    pub fn diagnostic_kind(self) -> DiagnosticKind {
        Self::ALL[self as usize].2
    }

    /// Whether the failure is a result that is stored under its key.
    pub fn cacheable(self) -> bool {
        matches!(
            self,
            Self::Infeasible | Self::GaveUp | Self::Rejected | Self::Verification
        )
    }
}

/// A failure of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFailure {
    /// Its kind.
    pub kind: FailureKind,
    /// What happened: which tile, which allocation, how many bytes.
    pub message: String,
    /// Typed detail in a form of the stage.
    pub payload: Option<Vec<u8>>,
    /// Where, if an input has a place.
    pub location: Option<Location>,
    /// What helps.
    pub help: Option<String>,
}

impl StageFailure {
    /// A failure with a message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            payload: None,
            location: None,
            help: None,
        }
    }

    /// An error in an input.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message)
    }

    /// A broken invariant.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Bug, message)
    }

    /// Adds typed detail.
    pub fn with_payload(mut self, payload: Vec<u8>) -> Self {
        self.payload = Some(payload);
        self
    }

    /// The failure for the user.
    pub fn diagnostic(&self) -> Diagnostic {
        Diagnostic {
            kind: self.kind.diagnostic_kind(),
            message: self.message.clone(),
            location: self.location.clone(),
            help: self.help.clone(),
        }
    }
}

impl From<Diagnostic> for StageFailure {
    fn from(diagnostic: Diagnostic) -> Self {
        let find = |kind| {
            FailureKind::ALL
                .iter()
                .find(|(.., to_user)| *to_user == kind)
        };
        Self {
            kind: find(diagnostic.kind).map_or(FailureKind::Bug, |(_, kind, _)| *kind),
            message: diagnostic.message,
            payload: None,
            location: diagnostic.location,
            help: diagnostic.help,
        }
    }
}

impl From<StoreError> for StageFailure {
    fn from(error: StoreError) -> Self {
        Diagnostic::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_the_order_of_the_table() {
        for (name, kind, _) in FailureKind::ALL {
            assert_eq!(
                (kind.name(), FailureKind::from_name(name)),
                (name, Some(kind))
            );
        }
    }
}
