//! Kinds of targets: which attributes they have, of which types, with which defaults.
//!
//! A file `rules/kind-<name>.toml`:
//!
//! ```toml
//! kind = "vit-package"
//! doc = "A vision tower compiled to a package."
//!
//! [[attribute]]
//! key = "batch"
//! type = "int"              # bool, int, float, text, list, file; or a list of these
//! default = 1               # or `required = true`; neither: the attribute may be absent
//! doc = "Images per call."
//!
//! [[attribute]]
//! key = "cast.*"            # any key below `cast.`
//! type = "text"
//! values = ["early", "late"]
//! ```

use std::collections::BTreeMap;

use ipub_base::Diagnostic;
use serde::Serialize;

use crate::document::Table;
use crate::label::{quoted_list, suggestion};
use crate::value::Value;

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueType {
    /// true, false
    Bool,
    /// Whole numbers.
    Int,
    /// Numbers.
    Float,
    /// Texts.
    Text,
    /// Lists of values.
    List,
    /// The path of a source file, or a list of them: relative to the target's package, or from
    /// the workspace after `//`, or absolute.
    File,
}

/// One attribute of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct Attribute {
    /// Dotted key; `prefix.*` stands for every key below `prefix.`.
    pub key: String,
    /// Types that its value may have.
    pub types: Vec<ValueType>,
    /// Value where a target gives none.
    pub default: Option<Value>,
    /// Whether each target must give it.
    pub required: bool,
    /// The only values allowed; empty for all.
    pub values: Vec<Value>,
    /// What it means.
    pub doc: String,
}

/// A kind of target.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// What it is.
    pub doc: String,
    /// Attributes by key.
    pub attributes: BTreeMap<String, Attribute>,
}

impl ValueType {
    const ALL: [(&'static str, Self); 6] = [
        ("bool", Self::Bool),
        ("int", Self::Int),
        ("float", Self::Float),
        ("text", Self::Text),
        ("list", Self::List),
        ("file", Self::File),
    ];

    fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, value_type)| *value_type == self)
            .map_or("", |(name, _)| name)
    }

    /// `value` as a value of this type, if it is one.
    fn accept(self, value: &Value) -> Option<Value> {
        let is_texts = |items: &[Value]| items.iter().all(|item| matches!(item, Value::Text(_)));
        match (self, value) {
            (Self::Float, Value::Int(number)) => Some(Value::Float(*number as f64)),
            (Self::Bool, Value::Bool(_))
            | (Self::Int, Value::Int(_))
            | (Self::Float, Value::Float(_))
            | (Self::Text | Self::File, Value::Text(_))
            | (Self::List, Value::List(_)) => Some(value.clone()),
            (Self::File, Value::List(items)) if is_texts(items) => Some(value.clone()),
            _ => None,
        }
    }
}

impl Attribute {
    /// `value` in the form that this attribute keeps, or what is wrong with it.
    pub fn check(&self, value: &Value) -> Result<Value, String> {
        let Some(value) = self
            .types
            .iter()
            .find_map(|value_type| value_type.accept(value))
        else {
            let types: Vec<_> = self
                .types
                .iter()
                .map(|value_type| value_type.name())
                .collect();
            let (found, wanted) = (value.type_name(), types.join(" or "));
            return Err(format!("is {value}, a {found}, where {wanted} is expected"));
        };
        if !self.values.is_empty() && !self.values.contains(&value) {
            let values: Vec<_> = self.values.iter().map(Value::to_string).collect();
            return Err(format!("is {value}; allowed are {}", values.join(", ")));
        }
        Ok(value)
    }

    /// Whether `key` is this attribute's, or one below its `.*`.
    fn covers(&self, key: &str) -> bool {
        match self.key.strip_suffix('*') {
            Some(prefix) => key.len() > prefix.len() && key.starts_with(prefix),
            None => key == self.key,
        }
    }

    fn read(mut table: Table) -> Result<Self, Diagnostic> {
        let place = table.place.clone();
        let key = table.require_text("key")?;
        let mut types = Vec::new();
        for (name, place) in table.require("type")?.into_texts("type")? {
            let found = ValueType::ALL.iter().find(|(known, _)| *known == name);
            let Some((_, value_type)) = found else {
                let known: Vec<_> = ValueType::ALL.iter().map(|(name, _)| *name).collect();
                let help = format!("types are {}", quoted_list(&known));
                return Err(place.error(format!("unknown type `{name}`")).help(help));
            };
            types.push(*value_type);
        }
        let values = match table.take("values") {
            Some(node) => {
                let nodes = node.into_list("values")?.into_iter();
                nodes
                    .map(|node| node.into_value("values"))
                    .collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let default = table
            .take("default")
            .map(|node| node.into_value("default"))
            .transpose()?;
        let required = table.bool("required")?.unwrap_or(false);
        let doc = table.text("doc")?.unwrap_or_default();
        table.finish(&["key", "type", "default", "required", "values", "doc"])?;
        let mut attribute = Self {
            key,
            types,
            default: None,
            required,
            values,
            doc,
        };
        if attribute.key.ends_with('*') && (default.is_some() || required) {
            let message = format!(
                "`{}` stands for many keys: none can be given",
                attribute.key
            );
            return Err(place.error(message));
        }
        if let Some(value) = default {
            let checked = attribute.check(&value);
            let wrong = |why| place.error(format!("the default of `{}` {why}", attribute.key));
            attribute.default = Some(checked.map_err(wrong)?);
        }
        Ok(attribute)
    }
}

impl Kind {
    pub(crate) fn read(mut table: Table) -> Result<Self, Diagnostic> {
        let name = table.require_text("kind")?;
        let doc = table.text("doc")?.unwrap_or_default();
        let mut attributes = BTreeMap::new();
        for entry in table.tables("attribute")? {
            let place = entry.place.clone();
            let attribute = Attribute::read(entry)?;
            if let Some(twice) = attributes.insert(attribute.key.clone(), attribute) {
                return Err(place.error(format!("attribute `{}` is declared twice", twice.key)));
            }
        }
        table.finish(&["kind", "doc", "attribute"])?;
        Ok(Self {
            name,
            doc,
            attributes,
        })
    }

    /// The attribute that `key` belongs to.
    pub fn attribute(&self, key: &str) -> Option<&Attribute> {
        let exact = self.attributes.get(key).filter(|_| !key.ends_with('*'));
        exact.or_else(|| {
            self.attributes
                .values()
                .find(|attribute| attribute.covers(key))
        })
    }

    /// Whether some attribute is `prefix` or lies below `prefix.`.
    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        let below = format!("{prefix}.");
        self.attribute(prefix).is_some()
            || self.attributes.keys().any(|key| key.starts_with(&below))
    }

    /// Help for an attribute `key` that this kind does not have.
    pub(crate) fn suggestion(&self, key: &str) -> String {
        let keys: Vec<_> = self.attributes.keys().map(String::as_str).collect();
        let otherwise = format!("`{}` has {}", self.name, keys.join(", "));
        suggestion(key, keys, &otherwise)
    }
}
