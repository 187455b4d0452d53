//! Macro definitions, their arguments, and text replacement.

use super::source::Raw;
use ipu_isa::text::split_commas;
use std::rc::Rc;

/// How a macro parameter takes its argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Optional,
    Required,
    /// The rest of the arguments.
    Variable,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    kind: Kind,
    default: String,
}

/// A macro.
#[derive(Debug, Clone)]
pub struct Macro {
    pub name: String,
    parameters: Vec<Parameter>,
    pub body: Rc<[Raw]>,
}

/// Replacement texts by name.
pub type Bindings = Vec<(String, String)>;

fn is_ident(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The leading name of a text and what follows it.
pub fn leading_name(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(is_ident(c) || c == '.'))
        .unwrap_or(text.len());
    text.split_at(end)
}

/// A text without the quotes around it.
pub fn unquote(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

impl Macro {
    /// Parse what follows `.macro`.
    pub fn parse(header: &str, body: Vec<Raw>) -> Result<Macro, String> {
        let (name, mut rest) = leading_name(header.trim());
        if name.is_empty() {
            return Err("macro name expected".into());
        }
        let mut parameters: Vec<Parameter> = Vec::new();
        loop {
            rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
            if rest.is_empty() {
                break;
            }
            let end = rest.find(|c| !is_ident(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("bad macro parameter at `{rest}`"));
            }
            let mut parameter = Parameter {
                name: rest[..end].into(),
                kind: Kind::Optional,
                default: "".into(),
            };
            rest = rest[end..].trim_start();
            for (text, kind) in [(":req", Kind::Required), (":vararg", Kind::Variable)] {
                if let Some(after) = rest.strip_prefix(text) {
                    parameter.kind = kind;
                    rest = after.trim_start();
                }
            }
            if let Some(after) = rest.strip_prefix('=') {
                let after = after.trim_start();
                let end = default_end(after);
                parameter.default = unquote(&after[..end]).into();
                rest = &after[end..];
            }
            if parameters.iter().any(|other| other.name == parameter.name) {
                return Err(format!("macro parameter `{}` twice", parameter.name));
            }
            parameters.push(parameter);
        }
        Ok(Macro {
            name: name.into(),
            parameters,
            body: body.into(),
        })
    }

    /// Bind the arguments of a call.
    pub fn bind(&self, arguments: &str) -> Result<Bindings, String> {
        let mut values: Vec<Option<String>> = vec![None; self.parameters.len()];
        let mut next = 0;
        let pieces = if arguments.trim().is_empty() {
            vec![]
        } else {
            split_commas(arguments)
        };
        for (at, piece) in pieces {
            if let Some((index, value)) = self.named(piece) {
                values[index] = Some(unquote(value).into());
                continue;
            }
            let Some(parameter) = self.parameters.get(next) else {
                return Err(format!("too many arguments for macro `{}`", self.name));
            };
            if parameter.kind == Kind::Variable {
                values[next] = Some(arguments[at..].trim().into());
                break;
            }
            if !piece.is_empty() {
                values[next] = Some(unquote(piece).into());
            }
            next += 1;
        }
        let bind = |(parameter, value): (&Parameter, Option<String>)| {
            if parameter.kind == Kind::Required && value.is_none() {
                return Err(format!("macro `{}` needs `{}`", self.name, parameter.name));
            }
            let value = value.unwrap_or_else(|| parameter.default.clone());
            Ok((parameter.name.clone(), value))
        };
        self.parameters.iter().zip(values).map(bind).collect()
    }

    /// A piece of the form `parameter = value`.
    fn named<'a>(&self, piece: &'a str) -> Option<(usize, &'a str)> {
        let (name, value) = piece.split_once('=')?;
        if value.starts_with('=') {
            return None;
        }
        let index = self.parameters.iter().position(|p| p.name == name.trim())?;
        Some((index, value.trim()))
    }
}

fn default_end(text: &str) -> usize {
    match text.strip_prefix('"').and_then(|rest| rest.find('"')) {
        Some(close) => close + 2,
        None => text
            .find(|c: char| c == ',' || c.is_whitespace())
            .unwrap_or(text.len()),
    }
}

/// Replace `\name`, `\@` and `\()` in a text.
pub fn substitute(text: &str, bindings: &Bindings, count: u32) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        output.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('@') {
            output.push_str(&count.to_string());
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("()") {
            rest = after;
            continue;
        }
        let end = rest.find(|c| !is_ident(c)).unwrap_or(rest.len());
        match bindings.iter().find(|(name, _)| *name == rest[..end]) {
            Some((_, value)) => {
                output.push_str(value);
                rest = &rest[end..];
            }
            None => output.push('\\'),
        }
    }
    output.push_str(rest);
    output
}
