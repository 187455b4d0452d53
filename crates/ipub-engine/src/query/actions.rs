//! The stages of a target with their keys, and what a build would do with each.

use ipub_base::{Diagnostic, Digest};
use ipub_store::{Outcome, OutputRef};
use serde::Serialize;

use crate::engine::Engine;
use crate::key::key;
use crate::label::Label;
use crate::resolve::Plan;

/// What a build would do with a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionState {
    /// Its outputs are in the store.
    Hit,
    /// It would run.
    WouldRun,
    /// Its failure is in the store.
    FailedBefore,
    /// A stage that it reads would run first, so that its key is not known yet.
    Waits,
}

impl ActionState {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::WouldRun => "would run",
            Self::FailedBefore => "failed before",
            Self::Waits => "waits",
        }
    }
}

/// A stage of a target as an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// The target.
    pub label: Label,
    /// The rule.
    pub rule: String,
    /// Its key, if the digests of all inputs are known.
    pub key: Option<Digest>,
    /// What a build would do.
    pub state: ActionState,
    /// For one that waits: the stages that it waits for.
    pub waits_for: Vec<String>,
}

impl Engine {
    /// The stages of `label` with `sets`, each after those that it reads. Runs nothing.
    pub fn actions(&self, label: &Label, sets: &[String]) -> Result<Vec<Action>, Diagnostic> {
        let target = self.workspace.target(label, sets)?;
        let plan = Plan::new(&self.workspace, &self.store, &target, &[])?;
        let mut outputs: Vec<Option<Vec<OutputRef>>> = Vec::new();
        let mut actions: Vec<Action> = Vec::new();
        for (node, planned) in plan.nodes.iter().enumerate() {
            let known = |maker: usize, name: &str| {
                let made = outputs[maker].as_ref()?;
                let output = made.iter().find(|output| output.name == name)?;
                Some(output.digest)
            };
            let mut action = Action {
                label: label.clone(),
                rule: planned.rule.name.clone(),
                key: None,
                state: ActionState::Waits,
                waits_for: Vec::new(),
            };
            let mut made = None;
            if let Ok(given) = plan.given(node, known) {
                let fingerprint = self.stages[&planned.rule.stage].fingerprint();
                let key = key(
                    planned.rule,
                    fingerprint,
                    &self.device,
                    &given,
                    &planned.params,
                );
                action.key = Some(key.digest);
                let record = self.store.get_record(key.digest)?;
                action.state = match record.map(|record| record.outcome) {
                    Some(Outcome::Ok { outputs }) => {
                        made = Some(outputs);
                        ActionState::Hit
                    }
                    Some(Outcome::Failed(_)) => ActionState::FailedBefore,
                    None => ActionState::WouldRun,
                };
            } else {
                let open = planned
                    .makers
                    .iter()
                    .filter(|&&maker| outputs[maker].is_none());
                action.waits_for = open.map(|&maker| actions[maker].rule.clone()).collect();
            }
            outputs.push(made);
            actions.push(action);
        }
        Ok(actions)
    }
}
