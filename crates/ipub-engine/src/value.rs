//! Attribute values.

use std::fmt;

use ipub_base::{KeyWriter, Keyed};
use serde::{Deserialize, Serialize};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
}

impl Value {
    /// The name of the value's type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "text",
            Self::List(_) => "list",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List(items) => f.debug_list().entries(items.iter().map(Shown)).finish(),
        }
    }
}

struct Shown<'a>(&'a Value);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}

/// Writes `value` as `name`.
pub(crate) fn write_value(writer: &mut KeyWriter, name: &str, value: &Value) {
    match value {
        Value::Bool(value) => writer.bool(name, *value),
        Value::Int(value) => writer.i64(name, *value),
        Value::Float(value) => writer.f64(name, *value),
        Value::Text(value) => writer.text(name, value),
        Value::List(items) => writer.list(name, items, |writer, item| item.write_key(writer)),
    }
}

impl Keyed for Value {
    fn write_key(&self, writer: &mut KeyWriter) {
        write_value(writer, "value", self);
    }
}
