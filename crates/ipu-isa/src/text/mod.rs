//! Statements as text: registers, expressions, aliases, form selection, printing.
//!
//! Input: the text of one statement without label, comment or braces. Output: instructions whose
//! operands are values, or expressions that a later stage resolves; and the way back.
//! Invariants: what [`print`] writes with [`word_target`] parses to the same word.
//! Not here: labels, directives, bundles, layout (the assembler).

mod expr;
mod print;
mod reg;
mod select;
mod statement;

pub use expr::{BinaryOp, Expr, Name, UnaryOp, parse_expr};
pub use print::{byte_target, print, print_register, word_target};
pub use reg::{Reg, RegFile, Suffix};
pub use select::{Context, Insn, Pending, Selection, immediate, out_of_range, select};
pub use statement::{Arg, Statement, parse_statement, split_commas};

use crate::form::{EncodeError, Mode, encode};
use thiserror::Error;

/// A fault at a byte offset of the statement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct TextError {
    pub at: usize,
    pub reason: String,
}

impl TextError {
    pub fn new(at: usize, reason: impl Into<String>) -> TextError {
        TextError {
            at,
            reason: reason.into(),
        }
    }

    /// The same fault in a text of which this one starts at `offset`.
    pub fn shifted(mut self, offset: usize) -> TextError {
        self.at += offset;
        self
    }
}

/// Assemble one statement that has no symbols.
pub fn assemble_statement(text: &str, mode: Mode) -> Result<Vec<u32>, TextError> {
    let statement = parse_statement(text)?;
    let selection = select(
        &statement,
        Context {
            mode,
            in_bundle: false,
        },
    )?;
    let mut words = Vec::new();
    for insn in &selection.insns {
        if let Some(pending) = insn.pending.first() {
            return Err(TextError::new(pending.at, "unresolved symbol"));
        }
        let word = encode(insn.form, &insn.ops)
            .map_err(|error: EncodeError| TextError::new(0, error.to_string()))?;
        words.push(word);
        words.extend(insn.inline_word());
    }
    Ok(words)
}
