//! Comparison with the events of a build elsewhere: why a result of there is not one of here.
//!
//! Input: the events of a build as JSON lines, a target here.
//! Output: for each stage, whether the keys are equal, and the first line that differs.
//! Not here: how the events came here.

use std::collections::BTreeMap;
use std::fmt;

use ipub_base::{Diagnostic, Digest, Key, KeyLine};
use ipub_store::Outcome;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::explain::Change;
use crate::key::key;
use crate::label::Label;
use crate::resolve::{NodeInput, Plan};

/// What the events of a build elsewhere tell of its stages.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    stages: BTreeMap<String, RecordedStage>,
}

#[derive(Clone, Debug)]
struct RecordedStage {
    key: Digest,
    lines: Vec<KeyLine>,
    outputs: BTreeMap<String, Digest>,
}

/// The fields of an event that count here.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    label: String,
    #[serde(default)]
    rule: String,
    key: Option<Digest>,
    #[serde(default)]
    lines: Vec<KeyLine>,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    digest: Digest,
}

impl Recorded {
    /// The last build of `label` in `text`, events as JSON lines; `file` is for messages.
    pub fn parse(file: &str, text: &str, label: &Label) -> Result<Self, Diagnostic> {
        let label = label.to_string();
        let mut recorded = Self::default();
        for (number, text) in text.lines().enumerate() {
            if text.trim().is_empty() {
                continue;
            }
            let line: Line = serde_json::from_str(text).map_err(|error| {
                let message = format!("{file}, line {}: no event: {error}", number + 1);
                Diagnostic::usage(message).help("`ipub build --events FILE` writes such a file")
            })?;
            if line.label != label {
                continue;
            }
            let known = recorded.stages.get_mut(&line.rule);
            match (line.event.as_str(), line.key, known) {
                ("build_started", ..) => recorded.stages.clear(),
                ("key", Some(key), _) => {
                    let stage = RecordedStage {
                        key,
                        lines: line.lines,
                        outputs: BTreeMap::new(),
                    };
                    recorded.stages.insert(line.rule, stage);
                }
                ("stage_ran" | "stage_hit", Some(key), Some(stage)) if stage.key == key => {
                    let outputs = line.outputs.into_iter();
                    stage.outputs = outputs.map(|output| (output.name, output.digest)).collect();
                }
                _ => {}
            }
        }
        match recorded.stages.is_empty() {
            true => Err(Diagnostic::usage(format!("{file}: no keys of {label}"))
                .help(format!("it must hold the events of `ipub build {label}`"))),
            false => Ok(recorded),
        }
    }
}

/// How a stage here compares with that of there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgainstState {
    /// The keys are equal.
    Same,
    /// They differ.
    Differs,
    /// It reads a stage whose outputs are not known here.
    Waits,
    /// The events hold no key of it.
    NotThere,
}

/// One stage, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Against {
    /// The rule.
    pub rule: String,
    /// How it compares.
    pub state: AgainstState,
    /// The key here, if all inputs are known.
    pub here: Option<Digest>,
    /// The key there.
    pub there: Option<Digest>,
    /// The first line that differs: `old` is the value there, `new` that of here.
    pub first: Option<Change>,
    /// How many more lines differ.
    pub more: usize,
    /// The first stage whose outputs are not known.
    pub waits_for: Option<String>,
}

impl Engine {
    /// Compares the keys of `label` here with those of a build elsewhere. Runs nothing.
    pub fn against(
        &self,
        label: &Label,
        sets: &[String],
        recorded: &Recorded,
    ) -> Result<Vec<Against>, Diagnostic> {
        let target = self.workspace.target(label, sets)?;
        let plan = Plan::new(&self.workspace, &self.store, &target, &[])?;
        let mut outputs: Vec<Option<BTreeMap<String, Digest>>> = Vec::new();
        let mut found: Vec<Against> = Vec::new();
        for (node, planned) in plan.nodes.iter().enumerate() {
            let rule = planned.rule;
            let there = recorded.stages.get(&rule.name);
            let mut against = Against {
                rule: rule.name.clone(),
                state: AgainstState::Waits,
                here: None,
                there: there.map(|there| there.key),
                first: None,
                more: 0,
                waits_for: None,
            };
            let known = |maker: usize, name: &str| outputs[maker].as_ref()?.get(name).copied();
            let made = match plan.given(node, known) {
                Err(maker) => {
                    let first = found[maker].waits_for.clone();
                    against.waits_for = first.or_else(|| Some(found[maker].rule.clone()));
                    None
                }
                Ok(given) => {
                    let fingerprint = self.stages[&rule.stage].fingerprint();
                    let key = key(rule, fingerprint, &self.device, &given, &planned.params);
                    compare(&mut against, &plan, node, &key, there);
                    self.outputs_of(key.digest, there)?
                }
            };
            outputs.push(made);
            found.push(against);
        }
        Ok(found)
    }

    /// The outputs under `key`: from the store, or as the events have them.
    fn outputs_of(
        &self,
        key: Digest,
        there: Option<&RecordedStage>,
    ) -> Result<Option<BTreeMap<String, Digest>>, Diagnostic> {
        if let Some(record) = self.store.get_record(key)?
            && let Outcome::Ok { outputs } = record.outcome
        {
            let outputs = outputs.into_iter();
            return Ok(Some(
                outputs.map(|output| (output.name, output.digest)).collect(),
            ));
        }
        let same = there.filter(|there| there.key == key && !there.outputs.is_empty());
        Ok(same.map(|there| there.outputs.clone()))
    }
}

fn compare(
    against: &mut Against,
    plan: &Plan<'_>,
    node: usize,
    key: &Key,
    there: Option<&RecordedStage>,
) {
    against.here = Some(key.digest);
    let Some(there) = there else {
        against.state = AgainstState::NotThere;
        return;
    };
    if there.key == key.digest {
        against.state = AgainstState::Same;
        return;
    }
    against.state = AgainstState::Differs;
    let mut changes = key.changes_since(&there.lines);
    against.more = changes.len().saturating_sub(1);
    // The first in the order of the key, which goes from the rule to its parameters.
    let lines = key.lines.iter().chain(&there.lines);
    let mut places =
        lines.filter_map(|line| changes.iter().position(|(path, ..)| *path == line.path));
    if let Some(place) = places.next() {
        let (path, old, new) = changes.swap_remove(place);
        let input = path.strip_prefix("input.");
        let input = input.and_then(|input| plan.nodes[node].inputs.get(input));
        let made_by = match input {
            Some(NodeInput::Output { node, output }) => {
                Some(format!("{}:{output}", plan.nodes[*node].rule.name))
            }
            _ => None,
        };
        against.first = Some(Change {
            path,
            old,
            new,
            made_by,
        });
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:10} ", self.rule)?;
        match self.state {
            AgainstState::Same => f.write_str("same key"),
            AgainstState::NotThere => f.write_str("no key there"),
            AgainstState::Waits => {
                let first = self.waits_for.as_deref().unwrap_or("another stage");
                write!(f, "cannot be compared before {first} is made here")
            }
            AgainstState::Differs => {
                f.write_str("another key")?;
                let Some(first) = &self.first else {
                    return Ok(());
                };
                write!(f, ": {}", first.path)?;
                if let Some(made_by) = &first.made_by {
                    write!(f, " ({made_by})")?;
                }
                let side = |value: &Option<String>| value.clone().unwrap_or("(none)".to_owned());
                write!(f, "\n    there {}", side(&first.old))?;
                write!(f, "\n    here  {}", side(&first.new))?;
                match self.more {
                    0 => Ok(()),
                    1 => f.write_str("\n    and 1 more line"),
                    more => write!(f, "\n    and {more} more lines"),
                }
            }
        }
    }
}
