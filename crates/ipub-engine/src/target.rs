//! Targets: a kind and attribute values, from `BUILD.toml`.
//!
//! ```toml
//! [[target]]
//! name = "siglip-tiny"
//! kind = "vit-package"
//! spec = "specs/siglip-tiny.toml"
//!
//! [[target]]
//! name = "siglip-tiny-bs2"
//! extends = "siglip-tiny"     # kind and attributes of another target of this file
//! batch = 2
//! ```

use std::collections::BTreeMap;

use ipub_base::{Diagnostic, Location};

use crate::document::{Item, Node, Place, Table};
use crate::label::{Label, suggestion};
use crate::schema::Kind;
use crate::value::Value;

/// Where an attribute's value comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Default,
    File(Place),
    Set,
}

/// An attribute's value in effect.
#[derive(Clone, Debug)]
pub struct AttributeValue {
    /// The value.
    pub value: Value,
    pub(crate) origin: Origin,
}

impl AttributeValue {
    /// Where it comes from: a place, `--set`, or `default`.
    pub fn origin(&self) -> String {
        match &self.origin {
            Origin::Default => "default".to_owned(),
            Origin::File(place) => place.location().to_string(),
            Origin::Set => "--set".to_owned(),
        }
    }

    pub(crate) fn location(&self) -> Option<Location> {
        match &self.origin {
            Origin::File(place) => Some(place.location()),
            Origin::Default | Origin::Set => None,
        }
    }
}

/// A target with all attributes in effect.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its label.
    pub label: Label,
    /// The name of its kind.
    pub kind: String,
    /// What it is.
    pub doc: String,
    /// Attributes by dotted key; one that is optional and not given is absent.
    pub attributes: BTreeMap<String, AttributeValue>,
}

impl Target {
    /// Applies `key=value`. The value is read as TOML; what is not TOML is text.
    pub fn set(&mut self, kind: &Kind, assignment: &str) -> Result<(), Diagnostic> {
        let refuse = |why: String| Diagnostic::usage(format!("--set {assignment}: {why}"));
        let Some((key, text)) = assignment.split_once('=') else {
            return Err(refuse("there is no `=`".to_owned()).help("write --set key=value"));
        };
        let (key, text) = (key.trim(), text.trim());
        let Some(attribute) = kind.attribute(key) else {
            let message = format!("`{}` has no attribute `{key}`", kind.name);
            return Err(refuse(message).help(kind.suggestion(key)));
        };
        let parsed = parse_value(text).map(|value| attribute.check(&value));
        let value = match parsed {
            Some(Ok(value)) => value,
            // A text may look like a number, or need no quotes.
            other => match (attribute.check(&Value::Text(text.to_owned())), other) {
                (Ok(value), _) => value,
                (Err(why), None) | (_, Some(Err(why))) => {
                    return Err(refuse(format!("`{key}` {why}")));
                }
                (Err(_), Some(Ok(value))) => value,
            },
        };
        self.attributes.insert(
            key.to_owned(),
            AttributeValue {
                value,
                origin: Origin::Set,
            },
        );
        Ok(())
    }
}

fn parse_value(text: &str) -> Option<Value> {
    let mut table = crate::document::parse("--set".to_owned(), format!("value = {text}")).ok()?;
    if text.contains('\n') {
        return None;
    }
    table.take("value")?.into_value("value").ok()
}

/// A target as its file has it.
#[derive(Debug)]
struct RawTarget {
    name: String,
    kind: Option<String>,
    extends: Option<String>,
    doc: String,
    place: Place,
    attributes: BTreeMap<String, (Place, Value)>,
}

/// The targets of one BUILD.toml.
#[derive(Debug)]
pub(crate) struct BuildFile {
    package: String,
    targets: Vec<RawTarget>,
}

impl BuildFile {
    pub(crate) fn read(package: &str, mut root: Table) -> Result<Self, Diagnostic> {
        let mut targets: Vec<RawTarget> = Vec::new();
        for table in root.tables("target")? {
            let target = RawTarget::read(table)?;
            let label = format!("//{package}:{}", target.name);
            label
                .parse::<Label>()
                .map_err(|error| error.at(target.place.location()))?;
            if targets.iter().any(|other| other.name == target.name) {
                return Err(target
                    .place
                    .error(format!("target `{}` is here twice", target.name)));
            }
            targets.push(target);
        }
        root.finish(&["target"])?;
        Ok(Self {
            package: package.to_owned(),
            targets,
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|target| target.name.as_str())
    }

    fn raw(&self, name: &str) -> Option<&RawTarget> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// The target `name` with defaults and inherited attributes, checked; `None` if there is none.
    pub(crate) fn target(
        &self,
        name: &str,
        kinds: &BTreeMap<String, Kind>,
    ) -> Result<Option<Target>, Diagnostic> {
        let Some(own) = self.raw(name) else {
            return Ok(None);
        };
        let chain = self.chain(own)?;
        let Some(kind_name) = chain.iter().find_map(|target| target.kind.clone()) else {
            return Err(own.place.error(format!("target `{name}` has no `kind`")));
        };
        let Some(kind) = kinds.get(&kind_name) else {
            let names = kinds.keys().map(String::as_str);
            let help = suggestion(&kind_name, names, "kinds are declared in rules/kind-*.toml");
            return Err(own
                .place
                .error(format!("unknown kind `{kind_name}`"))
                .help(help));
        };
        let mut attributes = BTreeMap::new();
        for attribute in kind.attributes.values() {
            if let Some(value) = attribute.default.clone() {
                let value = AttributeValue {
                    value,
                    origin: Origin::Default,
                };
                attributes.insert(attribute.key.clone(), value);
            }
        }
        for (key, (place, value)) in chain.iter().rev().flat_map(|target| &target.attributes) {
            let Some(attribute) = kind.attribute(key) else {
                let message = format!("`{kind_name}` has no attribute `{key}`");
                return Err(place.error(message).help(kind.suggestion(key)));
            };
            let value = attribute.check(value);
            let value = value.map_err(|why| place.error(format!("`{key}` {why}")))?;
            let origin = Origin::File(place.clone());
            attributes.insert(key.clone(), AttributeValue { value, origin });
        }
        for attribute in kind.attributes.values() {
            if attribute.required && !attributes.contains_key(&attribute.key) {
                let message = format!("target `{name}` lacks the attribute `{}`", attribute.key);
                return Err(own.place.error(message).help(attribute.doc.clone()));
            }
        }
        let label = Label {
            package: self.package.clone(),
            name: name.to_owned(),
        };
        Ok(Some(Target {
            label,
            kind: kind_name,
            doc: own.doc.clone(),
            attributes,
        }))
    }

    /// The target and what it extends, nearest first.
    fn chain<'a>(&'a self, own: &'a RawTarget) -> Result<Vec<&'a RawTarget>, Diagnostic> {
        let mut chain = vec![own];
        while let Some(last) = chain.last()
            && let Some(base) = &last.extends
        {
            let Some(next) = self.raw(base) else {
                let help = suggestion(base, self.names(), "it must be a target of this file");
                let message = format!("`{}` extends unknown target `{base}`", last.name);
                return Err(last.place.error(message).help(help));
            };
            if chain.iter().any(|target| target.name == next.name) {
                return Err(own.place.error(format!("`{}` extends itself", next.name)));
            }
            chain.push(next);
        }
        Ok(chain)
    }
}

impl RawTarget {
    fn read(mut table: Table) -> Result<Self, Diagnostic> {
        let place = table.place.clone();
        let mut target = Self {
            name: table.require_text("name")?,
            kind: table.text("kind")?,
            extends: table.text("extends")?,
            doc: table.text("doc")?.unwrap_or_default(),
            place,
            attributes: BTreeMap::new(),
        };
        flatten(table, "", &mut target.attributes)?;
        Ok(target)
    }
}

/// Nested tables become dotted keys.
fn flatten(
    table: Table,
    prefix: &str,
    into: &mut BTreeMap<String, (Place, Value)>,
) -> Result<(), Diagnostic> {
    for (key, (place, node)) in table.entries {
        let key = if prefix.is_empty() {
            key
        } else {
            format!("{prefix}.{key}")
        };
        match node {
            Node {
                item: Item::Table(inner),
                ..
            } => flatten(inner, &key, into)?,
            node => {
                let value = node.into_value(&key)?;
                into.insert(key, (place, value));
            }
        }
    }
    Ok(())
}
