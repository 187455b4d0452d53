//! Explanations: why a stage runs, or ran last, in terms of the lines of its key.

use std::fmt;

use ipub_base::{Diagnostic, Digest, Key};
use ipub_store::{Outcome, OutputRef, Record};
use serde::Serialize;

use crate::engine::Engine;
use crate::key::key;
use crate::label::Label;
use crate::resolve::{NodeInput, Plan};

/// One line of a key that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The line's path.
    pub path: String,
    /// Its value before; `None` if there was no such line.
    pub old: Option<String>,
    /// Its value now; `None` if there is no such line.
    pub new: Option<String>,
    /// For an input that another rule makes: `rule:output`.
    pub made_by: Option<String>,
}

/// What a build would do with a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplainState {
    /// The key is that of the latest build and its outputs are there.
    UpToDate,
    /// The key differs from that of the latest build, and its outputs are there.
    WillHit,
    /// It will run: the key differs.
    WillRun,
    /// It will run: the key is the same, but outputs are gone from the store.
    OutputsGone,
    /// It will run: this target was never built so far.
    NeverBuilt,
    /// It failed with this key, and will not run again.
    FailedBefore,
    /// That depends on the outputs of another stage, which will run first or has failed.
    Waits,
}

/// Why a stage of a target runs or does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The target.
    pub label: String,
    /// The rule.
    pub rule: String,
    /// What a build would do.
    pub state: ExplainState,
    /// The key now, if all inputs are known.
    pub key: Option<Digest>,
    /// The key that it is compared with: that of the latest build, or if that is the same, the
    /// one before it.
    pub compared_with: Option<Digest>,
    /// The lines that differ.
    pub changes: Vec<Change>,
    /// The stage that must run first.
    pub waits_for: Option<Box<Explanation>>,
}

impl Engine {
    /// Explains what a build of `label` with `sets` would do with `rule`. Runs nothing.
    pub fn explain(
        &self,
        label: &Label,
        sets: &[String],
        rule: &str,
    ) -> Result<Explanation, Diagnostic> {
        let target = self.workspace.target(label, sets)?;
        let until = [rule.to_owned()];
        let plan = Plan::new(&self.workspace, &self.store, &target, &until)?;
        let last = plan.nodes.len() - 1;
        let mut outputs = Vec::new();
        let mut explained: Vec<Option<Explanation>> = Vec::new();
        for (node, planned) in plan.nodes.iter().enumerate() {
            let known = |maker: usize, name: &str| {
                let outputs: &Option<Vec<OutputRef>> = &outputs[maker];
                outputs
                    .as_ref()?
                    .iter()
                    .find(|o| o.name == name)
                    .map(|output| output.digest)
            };
            let explanation = match plan.given(node, known) {
                Ok(given) => {
                    let stage = &self.stages[&planned.rule.stage];
                    let fingerprint = stage.fingerprint();
                    let key = key(
                        planned.rule,
                        fingerprint,
                        &self.device,
                        &given,
                        &planned.params,
                    );
                    let record = self.store.get_record(key.digest)?;
                    outputs.push(match record.as_ref().map(|record| &record.outcome) {
                        Some(Outcome::Ok { outputs }) => Some(outputs.clone()),
                        _ => None,
                    });
                    self.compare(&plan, label, node, &key, record.as_ref())?
                }
                Err(maker) => {
                    outputs.push(None);
                    let first = explained[maker].clone();
                    // The chain of waiting stages ends at the one that has a reason of its own.
                    let root = first
                        .map(|mut first| first.waits_for.take().unwrap_or_else(|| Box::new(first)));
                    Explanation {
                        label: label.to_string(),
                        rule: planned.rule.name.clone(),
                        state: ExplainState::Waits,
                        key: None,
                        compared_with: None,
                        changes: Vec::new(),
                        waits_for: root,
                    }
                }
            };
            explained.push(Some(explanation));
        }
        // The plan's last node is the one asked for: everything else is there because it needs it.
        explained
            .swap_remove(last)
            .ok_or_else(|| Diagnostic::bug("an empty plan"))
    }

    fn compare(
        &self,
        plan: &Plan<'_>,
        label: &Label,
        node: usize,
        key: &Key,
        record: Option<&Record>,
    ) -> Result<Explanation, Diagnostic> {
        let rule = plan.nodes[node].rule;
        let last = self.store.last_keys(&label.to_string(), &rule.name)?;
        let is_last = last.is_some_and(|last| last.key == key.digest);
        let state = match (record.map(|record| &record.outcome), is_last) {
            (Some(Outcome::Failed(_)), _) => ExplainState::FailedBefore,
            (Some(Outcome::Ok { .. }), true) => ExplainState::UpToDate,
            (Some(Outcome::Ok { .. }), false) => ExplainState::WillHit,
            (None, true) => ExplainState::OutputsGone,
            (None, false) if last.is_some() => ExplainState::WillRun,
            (None, false) => ExplainState::NeverBuilt,
        };
        let compared_with = last.and_then(|last| {
            if is_last {
                last.previous
            } else {
                Some(last.key)
            }
        });
        let old = match compared_with {
            Some(old) => self.store.find_record(old)?,
            None => None,
        };
        let changes = old.map_or_else(Vec::new, |old| key.changes_since(&old.key_lines));
        let made_by = |path: &str| {
            let input = plan.nodes[node].inputs.get(path.strip_prefix("input.")?)?;
            let NodeInput::Output { node, output } = input else {
                return None;
            };
            Some(format!("{}:{output}", plan.nodes[*node].rule.name))
        };
        let changes = changes.into_iter().map(|(path, old, new)| {
            let made_by = made_by(&path);
            Change {
                path,
                old,
                new,
                made_by,
            }
        });
        Ok(Explanation {
            label: label.to_string(),
            rule: rule.name.clone(),
            state,
            key: Some(key.digest),
            compared_with,
            changes: changes.collect(),
            waits_for: None,
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(made_by) = &self.made_by {
            write!(f, " ({made_by})")?;
        }
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
        write!(f, ": {} -> {}", side(&self.old), side(&self.new))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.label, self.rule)?;
        let (head, changed) = match self.state {
            ExplainState::UpToDate => ("up to date", "it was last made because"),
            ExplainState::WillHit => ("not as in the latest build, but in the store", "since then"),
            ExplainState::WillRun => ("will run", "because"),
            ExplainState::OutputsGone => (
                "will run, because its outputs are gone from the store",
                "it was last made because",
            ),
            ExplainState::NeverBuilt => ("will run, because it was never built", ""),
            ExplainState::FailedBefore => (
                "failed, and would fail again with the same key",
                "it last ran because",
            ),
            ExplainState::Waits => ("depends on another stage", ""),
        };
        f.write_str(head)?;
        if self.state == ExplainState::WillRun && self.changes.is_empty() {
            f.write_str("; the record to compare with is gone")?;
        } else if !self.changes.is_empty() {
            write!(f, "\n  {changed}")?;
            for change in &self.changes {
                write!(f, "\n    {change}")?;
            }
        }
        match &self.waits_for {
            Some(first) => write!(f, "\n{first}"),
            None => Ok(()),
        }
    }
}
