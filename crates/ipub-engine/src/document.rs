//! TOML files whose every value remembers its place, so that errors can name it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ipub_base::{Diagnostic, Location};
use toml::de::{DeTable, DeValue};

use crate::label::suggestion;
use crate::value::Value;

/// A file: its name within the workspace, and its text.
#[derive(Debug)]
pub(crate) struct Source {
    file: String,
    text: String,
}

/// A place in a file, resolved to line and column only when it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    source: Arc<Source>,
    offset: usize,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) item: Item,
    pub(crate) place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Leaf(Value),
    List(Vec<Node>),
    Table(Table),
}

/// A table. Keys are taken out one by one; what is left over at the end is unknown.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Keys in order, with the place of each key and its value.
    pub(crate) entries: BTreeMap<String, (Place, Node)>,
    pub(crate) place: Place,
}

type Result<T> = std::result::Result<T, Diagnostic>;

impl Place {
    pub(crate) fn location(&self) -> Location {
        Location::of_offset(self.source.file.clone(), &self.source.text, self.offset)
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::usage(message).at(self.location())
    }
}

/// Reads a TOML file; `root` is cut from its name in messages.
pub(crate) fn read(path: &Path, root: &Path) -> Result<Table> {
    let file = path
        .strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string();
    let text = std::fs::read(path)
        .map_err(|error| Diagnostic::usage(format!("cannot read {file}: {error}")))?;
    let text = String::from_utf8(text).map_err(|error| {
        let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let location = Location::of_offset(file.clone(), &valid, valid.len());
        Diagnostic::usage("the file is not UTF-8 text").at(location)
    })?;
    parse(file, text)
}

/// Parses TOML text.
pub(crate) fn parse(file: String, text: String) -> Result<Table> {
    let source = Arc::new(Source { file, text });
    let place = |offset| Place {
        source: source.clone(),
        offset,
    };
    let root = DeTable::parse(&source.text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let message = error.message().trim().replace('\n', ", ");
        place(offset).error(format!("malformed TOML: {message}"))
    })?;
    table(root.get_ref(), place(0), &source)
}

fn table(table: &DeTable<'_>, place: Place, source: &Arc<Source>) -> Result<Table> {
    let mut entries = BTreeMap::new();
    for (key, value) in table.iter() {
        let at = |offset| Place {
            source: source.clone(),
            offset,
        };
        let node = node(value.get_ref(), at(value.span().start), source)?;
        entries.insert(key.get_ref().to_string(), (at(key.span().start), node));
    }
    Ok(Table { entries, place })
}

fn node(value: &DeValue<'_>, place: Place, source: &Arc<Source>) -> Result<Node> {
    let item = match value {
        DeValue::String(text) => Item::Leaf(Value::Text(text.to_string())),
        DeValue::Boolean(value) => Item::Leaf(Value::Bool(*value)),
        DeValue::Integer(value) => {
            let number = i64::from_str_radix(value.as_str(), value.radix());
            let number = number.map_err(|_| place.error("the number does not fit into 64 bits"))?;
            Item::Leaf(Value::Int(number))
        }
        DeValue::Float(value) => match value.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Item::Leaf(Value::Float(number)),
            _ => return Err(place.error("the number is not finite")),
        },
        DeValue::Datetime(_) => return Err(place.error("dates have no use here")),
        DeValue::Array(items) => {
            let at = |offset| Place {
                source: source.clone(),
                offset,
            };
            let nodes = items
                .iter()
                .map(|item| node(item.get_ref(), at(item.span().start), source));
            Item::List(nodes.collect::<Result<_>>()?)
        }
        DeValue::Table(inner) => Item::Table(table(inner, place.clone(), source)?),
    };
    Ok(Node { item, place })
}

impl Node {
    fn error_type(&self, name: &str, wanted: &str) -> Diagnostic {
        let found = match &self.item {
            Item::Leaf(value) => value.type_name(),
            Item::List(_) => "list",
            Item::Table(_) => "table",
        };
        self.place.error(format!(
            "`{name}` is a {found} where a {wanted} is expected"
        ))
    }

    pub(crate) fn into_text(self, name: &str) -> Result<String> {
        match self.item {
            Item::Leaf(Value::Text(text)) => Ok(text),
            _ => Err(self.error_type(name, "text")),
        }
    }

    pub(crate) fn into_bool(self, name: &str) -> Result<bool> {
        match self.item {
            Item::Leaf(Value::Bool(value)) => Ok(value),
            _ => Err(self.error_type(name, "bool")),
        }
    }

    pub(crate) fn into_list(self, name: &str) -> Result<Vec<Node>> {
        match self.item {
            Item::List(nodes) => Ok(nodes),
            _ => Err(self.error_type(name, "list")),
        }
    }

    pub(crate) fn into_table(self, name: &str) -> Result<Table> {
        match self.item {
            Item::Table(table) => Ok(table),
            _ => Err(self.error_type(name, "table")),
        }
    }

    /// A text, or a list of texts, each with its place.
    pub(crate) fn into_texts(self, name: &str) -> Result<Vec<(String, Place)>> {
        let nodes = match self.item {
            Item::List(nodes) => nodes,
            _ => vec![self],
        };
        let text = |node: Node| {
            let place = node.place.clone();
            Ok((node.into_text(name)?, place))
        };
        nodes.into_iter().map(text).collect()
    }

    /// A value without tables.
    pub(crate) fn into_value(self, name: &str) -> Result<Value> {
        match self.item {
            Item::Leaf(value) => Ok(value),
            Item::List(nodes) => {
                let values = nodes.into_iter().map(|node| node.into_value(name));
                Ok(Value::List(values.collect::<Result<_>>()?))
            }
            Item::Table(_) => Err(self.error_type(name, "plain value")),
        }
    }
}

impl Table {
    /// Takes out `key`.
    pub(crate) fn take(&mut self, key: &str) -> Option<Node> {
        self.entries.remove(key).map(|(_, node)| node)
    }

    /// Takes out `key`, which must be there.
    pub(crate) fn require(&mut self, key: &str) -> Result<Node> {
        self.take(key)
            .ok_or_else(|| self.place.error(format!("`{key}` is missing")))
    }

    /// Takes out the text `key`, which must be there.
    pub(crate) fn require_text(&mut self, key: &str) -> Result<String> {
        self.require(key)?.into_text(key)
    }

    /// Takes out the text `key`.
    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.take(key).map(|node| node.into_text(key)).transpose()
    }

    /// Takes out the truth value `key`.
    pub(crate) fn bool(&mut self, key: &str) -> Result<Option<bool>> {
        self.take(key).map(|node| node.into_bool(key)).transpose()
    }

    /// Takes out the whole number `key`, which must be above 0.
    pub(crate) fn positive(&mut self, key: &str) -> Result<Option<u64>> {
        let Some(node) = self.take(key) else {
            return Ok(None);
        };
        match node.item {
            Item::Leaf(Value::Int(number)) if number > 0 => Ok(Some(number as u64)),
            Item::Leaf(Value::Int(_)) => Err(node.place.error(format!("`{key}` must be above 0"))),
            _ => Err(node.error_type(key, "int")),
        }
    }

    /// Takes out the text or list of texts `key`; empty if it is not there.
    pub(crate) fn texts(&mut self, key: &str) -> Result<Vec<(String, Place)>> {
        self.take(key)
            .map_or(Ok(Vec::new()), |node| node.into_texts(key))
    }

    /// Takes out the list of tables `key`; empty if it is not there.
    pub(crate) fn tables(&mut self, key: &str) -> Result<Vec<Table>> {
        let Some(node) = self.take(key) else {
            return Ok(Vec::new());
        };
        node.into_list(key)?
            .into_iter()
            .map(|node| node.into_table(key))
            .collect()
    }

    /// Everything must have been taken out; `known` are the keys that there could be.
    pub(crate) fn finish(self, known: &[&str]) -> Result<()> {
        let Some((key, (place, _))) = self.entries.into_iter().next() else {
            return Ok(());
        };
        let otherwise = format!("known here: {}", known.join(", "));
        let help = suggestion(&key, known.iter().copied(), &otherwise);
        Err(place.error(format!("unknown key `{key}`")).help(help))
    }
}
