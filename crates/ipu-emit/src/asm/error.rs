//! Faults and warnings of the assembler.

use std::fmt;

/// One fault, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct AsmError {
    pub file: String,
    pub line: u32,
    pub column: u32,
    /// The statement as it was read, macros replaced.
    pub statement: String,
    pub reason: String,
    /// The macro calls and repetitions around it, innermost first.
    pub context: Vec<String>,
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            self.file, self.line, self.column, self.reason
        )?;
        if !self.statement.is_empty() {
            write!(f, "\n    {}", self.statement)?;
        }
        for context in &self.context {
            write!(f, "\n    in {context}")?;
        }
        Ok(())
    }
}

/// All faults of a text, in order; at most [`ERRORS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct AsmErrors(pub Vec<AsmError>);

/// Faults after which the assembler stops.
pub const ERRORS_MAX: usize = 20;

impl fmt::Display for AsmErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

/// Something odd that does not stop the assembly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(pub AsmError);
