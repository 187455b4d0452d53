//! Rules: which stage makes which outputs from which inputs and parameters.
//!
//! A file `rules/<name>.toml`:
//!
//! ```toml
//! name = "plan"
//! stage = "plan"                    # the built-in stage that implements it; default: the name
//! kinds = ["vit-package"]           # kinds of targets that have it; default: all
//! goal = true                       # made when a build names no stage; default: true
//! doc = "Graph to ordered candidates."
//! params = ["precision", "planner"] # attributes it reads: a key, or everything below it
//! outputs = ["candidates", "trail"]
//! timeout_seconds = 3600            # how long it may run; default: no limit
//! inputs = [
//!     { name = "graph", from = "lower" },                # the output of the same name
//!     { name = "cost", from = "kernel", output = "objects" },
//!     { name = "recipe", file_attr = "recipe", optional = true },
//!     { name = "kernels", files = ["kernels/**"] },      # every match, by path
//! ]
//! ```

use ipub_base::{Diagnostic, KeyWriter, Keyed};

use crate::document::{Place, Table};
use crate::stage_dir::{PAYLOAD, RESULT};

/// Where an input comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// An output of another rule of the same target.
    Rule {
        /// The rule.
        rule: String,
        /// Its output.
        output: String,
    },
    /// The source file or files that an attribute names.
    FileAttr {
        /// The attribute.
        attribute: String,
    },
    /// All source files that match one of these patterns, relative to the workspace.
    Files {
        /// The patterns.
        patterns: Vec<String>,
    },
}

/// An input of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInput {
    /// The name under which the stage reads it.
    pub name: String,
    /// Where it comes from.
    pub source: InputSource,
    /// Whether it may be absent: the attribute is not set, or the target has no such rule.
    pub optional: bool,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The stage that implements it.
    pub stage: String,
    /// Kinds of targets that have it; empty for all.
    pub kinds: Vec<String>,
    /// Whether a build that names no stage makes it.
    pub goal: bool,
    /// What it does.
    pub doc: String,
    /// Inputs, in the order declared.
    pub inputs: Vec<RuleInput>,
    /// Attribute keys or prefixes that it reads.
    pub params: Vec<String>,
    /// Names of its outputs.
    pub outputs: Vec<String>,
    /// How long it may run. No part of any key.
    pub timeout_seconds: Option<u64>,
    pub(crate) place: Place,
}

impl Rule {
    pub(crate) fn read(mut table: Table) -> Result<Self, Diagnostic> {
        let place = table.place.clone();
        let texts = |texts: Vec<(String, Place)>| texts.into_iter().map(|(text, _)| text).collect();
        let name = name(table.require_text("name")?, &place)?;
        let stage = table.text("stage")?.unwrap_or_else(|| name.clone());
        let kinds = texts(table.texts("kinds")?);
        let goal = table.bool("goal")?.unwrap_or(true);
        let doc = table.text("doc")?.unwrap_or_default();
        let params = texts(table.texts("params")?);
        let outputs: Vec<String> = texts(table.texts("outputs")?);
        for output in &outputs {
            self::name(output.clone(), &place)?;
            if [PAYLOAD, RESULT].contains(&output.as_str()) {
                let message = format!("an output cannot be named `{output}`: stage folders use it");
                return Err(place.error(message));
            }
        }
        let timeout_seconds = table.positive("timeout_seconds")?;
        let inputs = table.tables("inputs")?.into_iter().map(RuleInput::read);
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        table.finish(&[
            "name",
            "stage",
            "kinds",
            "goal",
            "doc",
            "params",
            "outputs",
            "inputs",
            "timeout_seconds",
        ])?;
        if outputs.is_empty() {
            return Err(place.error(format!("rule `{name}` declares no outputs")));
        }
        for (what, mut names) in [
            ("output", outputs.clone()),
            (
                "input",
                inputs.iter().map(|input| input.name.clone()).collect(),
            ),
        ] {
            names.sort();
            if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                let message = format!("rule `{name}` declares the {what} `{}` twice", twice[0]);
                return Err(place.error(message));
            }
        }
        Ok(Self {
            name,
            stage,
            kinds,
            goal,
            doc,
            inputs,
            params,
            outputs,
            timeout_seconds,
            place,
        })
    }

    /// The file that declares it, relative to the workspace.
    pub(crate) fn file(&self) -> String {
        self.place.location().file
    }

    /// Whether targets of `kind` have this rule.
    pub fn applies_to(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|name| name == kind)
    }

    /// Whether the rule reads the attribute `key`.
    pub fn reads(&self, key: &str) -> bool {
        self.params.iter().any(|param| {
            key.strip_prefix(param.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

impl RuleInput {
    fn read(mut table: Table) -> Result<Self, Diagnostic> {
        let place = table.place.clone();
        let name = name(table.require_text("name")?, &place)?;
        let optional = table.bool("optional")?.unwrap_or(false);
        let (from, output) = (table.text("from")?, table.text("output")?);
        let attribute = table.text("file_attr")?;
        let patterns: Vec<_> = table
            .texts("files")?
            .into_iter()
            .map(|(text, _)| text)
            .collect();
        table.finish(&["name", "from", "output", "file_attr", "files", "optional"])?;
        let source = match (from, attribute, patterns.is_empty()) {
            (Some(rule), None, true) => {
                let output = output.unwrap_or_else(|| name.clone());
                InputSource::Rule { rule, output }
            }
            (None, Some(attribute), true) if output.is_none() => {
                InputSource::FileAttr { attribute }
            }
            (None, None, false) if output.is_none() => InputSource::Files { patterns },
            _ => {
                let message = format!("input `{name}` needs one of `from`, `file_attr`, `files`");
                return Err(place.error(message));
            }
        };
        Ok(Self {
            name,
            source,
            optional,
        })
    }
}

/// Names of rules, inputs and outputs are file names in a stage folder.
fn name(text: String, place: &Place) -> Result<String, Diagnostic> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(plain) {
        let message = format!("`{text}` is no name: letters, digits and `-_.` only");
        return Err(place.error(message));
    }
    Ok(text)
}

/// The canonical definition: everything that decides what the stage is given and must give.
impl Keyed for Rule {
    fn write_key(&self, writer: &mut KeyWriter) {
        writer.text("name", &self.name);
        writer.text("stage", &self.stage);
        writer.list("inputs", &self.inputs, |writer, input| {
            writer.text("name", &input.name);
            writer.bool("optional", input.optional);
            match &input.source {
                InputSource::Rule { rule, output } => {
                    writer.text("from", rule);
                    writer.text("output", output);
                }
                InputSource::FileAttr { attribute } => writer.text("file_attr", attribute),
                InputSource::Files { patterns } => {
                    writer.list("files", patterns, |writer, pattern| {
                        writer.text("glob", pattern)
                    });
                }
            }
        });
        writer.list("params", &self.params, |writer, param| {
            writer.text("key", param)
        });
        writer.list("outputs", &self.outputs, |writer, output| {
            writer.text("name", output)
        });
    }
}
