//! A statement split into mnemonic and operands.

use super::TextError;
use super::expr::{Expr, parse_expr};
use super::reg::{Reg, Suffix};
use crate::csr::{self, Csr};

/// One operand as written.
#[derive(Debug, Clone)]
pub enum Arg {
    Reg(Reg, Suffix),
    Csr(Csr),
    Expr(Expr),
}

/// A mnemonic and its operands, each with its offset in the text.
#[derive(Debug, Clone)]
pub struct Statement {
    pub mnemonic: String,
    pub args: Vec<(usize, Arg)>,
}

/// Parse the text of a statement.
pub fn parse_statement(text: &str) -> Result<Statement, TextError> {
    let start = text.len() - text.trim_start().len();
    let rest = &text[start..];
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')))
        .unwrap_or(rest.len());
    let mnemonic = &rest[..end];
    if mnemonic.is_empty() {
        return Err(TextError::new(start, "instruction expected"));
    }
    let operands = &rest[end..];
    let mut args = Vec::new();
    if !operands.trim().is_empty() {
        if !operands.starts_with(char::is_whitespace) {
            return Err(TextError::new(
                start + end,
                "unexpected character after the mnemonic",
            ));
        }
        for (at, piece) in split_commas(operands) {
            let at = start + end + at;
            args.push((at, parse_arg(piece).map_err(|error| error.shifted(at))?));
        }
    }
    Ok(Statement {
        mnemonic: mnemonic.to_string(),
        args,
    })
}

/// The pieces between commas outside parentheses and strings, trimmed, with their offsets.
pub fn split_commas(text: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let (mut start, mut depth, mut quoted) = (0, 0usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                pieces.push(trimmed(text, start, at));
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(trimmed(text, start, text.len()));
    pieces
}

fn trimmed(text: &str, start: usize, end: usize) -> (usize, &str) {
    let piece = &text[start..end];
    (start + piece.len() - piece.trim_start().len(), piece.trim())
}

fn parse_arg(text: &str) -> Result<Arg, TextError> {
    match text.strip_prefix('$') {
        Some(name) => parse_register(name).map_err(|error| error.shifted(1)),
        None if text.is_empty() => Err(TextError::new(0, "operand expected")),
        None => Ok(Arg::Expr(parse_expr(text)?)),
    }
}

fn parse_register(text: &str) -> Result<Arg, TextError> {
    let name_end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let name = &text[..name_end];
    let Some(mut reg) = Reg::by_name(name) else {
        return match csr::by_name(name) {
            Some(csr) if name_end == text.len() => Ok(Arg::Csr(csr)),
            _ => Err(TextError::new(0, format!("no such register `${name}`"))),
        };
    };
    let mut rest = &text[name_end..];
    if let Some(range) = rest.strip_prefix(':')
        && range.starts_with(|c: char| c.is_ascii_digit())
    {
        let end = range
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(range.len());
        reg = reg.range(&range[..end])?;
        rest = &range[end..];
    }
    match Suffix::parse(rest) {
        Some(suffix) => Ok(Arg::Reg(reg, suffix)),
        None if rest.starts_with(char::is_whitespace) => {
            Err(TextError::new(text.len() - rest.len(), "comma expected"))
        }
        None => Err(TextError::new(
            text.len() - rest.len(),
            format!("unknown register suffix `{rest}`"),
        )),
    }
}
