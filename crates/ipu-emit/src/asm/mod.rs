//! Assembly text to an object.
//!
//! Input: text as after a C preprocessor. Output: an [`Object`], a line table, warnings.
//! Invariants: bundles and `rpt` bodies are 8-byte aligned; the execution mode and the slot rules
//! hold for every instruction; the object does not depend on comments or spacing.
//! Not here: addresses (see [`crate::link`]), files, the C preprocessor.
//!
//! The language: statements end at a newline or `;`. `{ M ; A }` is a bundle and may span lines.
//! Comments are `//`, `/* */` and `#` at the start of a line. Directives, macros, conditionals,
//! repetition and local labels follow the GNU assembler; see [`statement`] for the list.
//! `.set name, $reg` gives a register a second name. A literal branch target, or a number known
//! where it is used, is the word address that the field holds; a label, or a symbol set later, is
//! a byte address.
//!
//! With `.allow_optimizations` the assembler aligns bundles and `rpt` bodies without an executed
//! nop: it pairs a solo instruction before them with the other slot's nop, drops the `fnop` of
//! `{ rpt ; fnop }`, or pads where no path runs. Without it, a misaligned bundle is an error.

mod disassemble;
mod error;
mod expand;
mod finish;
mod item;
mod layout;
mod macros;
mod source;
mod statement;
mod value;

pub use disassemble::disassemble;
pub use error::{AsmError, AsmErrors, Warning};

use crate::object::Object;
use ipu_isa::Mode;
use std::collections::BTreeMap;

/// A named text.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Name for messages.
    pub name: &'a str,
    pub text: &'a str,
}

/// What holds before the first statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Mode until a mode directive.
    pub mode: Mode,
    /// Numbers known from the start, beside the `TAMP_*` names.
    pub defines: BTreeMap<String, i64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Worker,
            defines: BTreeMap::new(),
        }
    }
}

/// The source place of the code or data that starts at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub section: u32,
    pub offset: u32,
    pub file: String,
    pub line: u32,
}

/// Everything made from one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    pub object: Object,
    /// In order of section and offset.
    pub lines: Vec<Line>,
    pub warnings: Vec<Warning>,
}

/// Assemble a text.
pub fn assemble(source: Source<'_>, options: &Options) -> Result<Assembly, AsmErrors> {
    let mut state = item::State::new(options);
    expand::run(&mut state, source);
    finish::finish(state)
}
