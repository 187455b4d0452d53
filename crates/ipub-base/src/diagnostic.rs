//! Errors meant for the user: what happened, where, and what helps.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What sort of error it is. The `ipub` binary decides the exit code from this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiagnosticKind {
    /// Wrong input or a wrong command.
    Usage,
    /// No program for this input exists, or none was found within the limits.
    Infeasible,
    /// Disk, permissions, network, other processes.
    Environment,
    /// A measured size is above a limit.
    Rejected,
    /// Results differ from the reference by more than the thresholds.
    Verification,
    /// The simulated device stopped.
    DeviceFault,
    /// A broken invariant of ipub itself.
    Bug,
}

impl DiagnosticKind {
    /// The kind as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Infeasible => "infeasible",
            Self::Environment => "environment",
            Self::Rejected => "rejected",
            Self::Verification => "verification",
            Self::DeviceFault => "device-fault",
            Self::Bug => "bug",
        }
    }
}

/// A place in a file. Line and column count from 1; 0 means the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// The file, relative to the workspace where it lies inside it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Location {
    /// The place of byte `offset` in `text`, the content of `file`.
    pub fn of_offset(file: impl Into<String>, text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            file: file.into(),
            line: before.matches('\n').count() as u32 + 1,
            column: before[line_start..].chars().count() as u32 + 1,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// An error for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// What sort of error.
    pub kind: DiagnosticKind,
    /// What happened, in one sentence or several lines.
    pub message: String,
    /// Where, if it has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// What the user can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic without place or help.
    pub fn new(kind: DiagnosticKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            location: None,
            help: None,
        }
    }

    /// A usage error.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(DiagnosticKind::Usage, message)
    }

    /// An environment failure.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(DiagnosticKind::Environment, message)
    }

    /// A broken invariant.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(DiagnosticKind::Bug, message)
    }

    /// Adds the place.
    pub fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    /// Adds what helps.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let text = "a = 1\nb = \"é\" x\n";
        let offset = text.find('x').unwrap();
        let location = Location::of_offset("models/BUILD.toml", text, offset);
        assert_eq!(location.to_string(), "models/BUILD.toml:2:9");
        let error = Diagnostic::usage("unexpected `x`")
            .at(location)
            .help("remove it");
        assert_eq!(
            error.to_string(),
            "models/BUILD.toml:2:9: unexpected `x`\nhelp: remove it"
        );
    }
}
