//! The engine: a workspace, a store and stages; builds targets.

use std::collections::BTreeMap;
use std::time::Instant;

use ipub_base::{Diagnostic, Digest};
use ipub_store::{OutputRef, Store};
use serde::Serialize;

use crate::artifacts::Artifact;
use crate::event::{Event, EventSink};
use crate::exec::Execution;
use crate::failure::StageFailure;
use crate::inputs::StageImpl;
use crate::label::{Label, suggestion};
use crate::memo::MemoReport;
use crate::resolve::Plan;
use crate::workspace::Workspace;

/// The device that is built for, as keys name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetId {
    /// Its name and version.
    pub name: String,
    /// A digest of its facts.
    pub digest: Digest,
}

/// Builds targets of one workspace.
pub struct Engine {
    pub(crate) workspace: Workspace,
    pub(crate) store: Store,
    pub(crate) stages: BTreeMap<String, Box<dyn StageImpl>>,
    pub(crate) device: TargetId,
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Request {
    /// The target.
    pub label: Label,
    /// Attribute overrides, `key=value`.
    pub sets: Vec<String>,
    /// Rules to make, with all that they need; empty for all goal rules.
    pub until: Vec<String>,
    /// How many stages may run at once.
    pub jobs: usize,
    /// Whether stages that do not depend on a failed one still run.
    pub keep_going: bool,
    /// A limit for every stage, in place of `timeout_seconds` of its rule.
    pub timeout_seconds: Option<u64>,
    /// Files to be written from outputs. Those of rules that are not made are left alone.
    pub artifacts: Vec<Artifact>,
    /// Whether later explanations compare with this build. Trials and look-ups are no such builds.
    pub is_latest: bool,
}

impl Request {
    /// Builds all of `label`.
    pub fn new(label: Label) -> Self {
        let (sets, until, artifacts) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            label,
            sets,
            until,
            jobs: 2,
            keep_going: false,
            timeout_seconds: None,
            artifacts,
            is_latest: true,
        }
    }
}

/// How a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StageStatus {
    /// Its outputs were in the store.
    Hit,
    /// It ran.
    Ran,
    /// It ran and failed.
    Failed,
    /// Its failure was in the store.
    FailedBefore,
    /// It did not come to run, because another failed.
    Skipped,
}

/// What a build knows of one stage.
#[derive(Clone, Debug)]
pub struct StageResult {
    /// The rule.
    pub rule: String,
    /// How it ended.
    pub status: StageStatus,
    /// Its key; `None` if it did not come to that.
    pub key: Option<Digest>,
    /// Seconds that this build spent on it.
    pub seconds: f64,
    /// Seconds that the execution took that made its outputs.
    pub made_seconds: f64,
    /// Its outputs, in the order that the rule declares.
    pub outputs: Vec<OutputRef>,
    /// Bytes that it read in this build.
    pub read_bytes: u64,
    /// Counts and remarks of that execution.
    pub notes: BTreeMap<String, serde_json::Value>,
    /// How its memo served it in this build.
    pub memo: MemoReport,
    /// Why it failed.
    pub failure: Option<StageFailure>,
}

impl StageResult {
    /// The digest of the output `name`.
    pub fn output(&self, name: &str) -> Option<&OutputRef> {
        self.outputs.iter().find(|output| output.name == name)
    }
}

/// What a build did.
#[derive(Clone, Debug)]
pub struct BuildResult {
    /// The target.
    pub label: Label,
    /// Its stages, each after those that it reads from.
    pub stages: Vec<StageResult>,
    /// Source files that had to be read.
    pub files_hashed: u64,
    /// Artifacts that had to be written.
    pub artifacts_written: u64,
    /// Seconds.
    pub seconds: f64,
}

impl BuildResult {
    /// The stage of `rule`.
    pub fn stage(&self, rule: &str) -> Option<&StageResult> {
        self.stages.iter().find(|stage| stage.rule == rule)
    }

    /// The first failure, in the order of the stages.
    pub fn failure(&self) -> Option<(&str, &StageFailure)> {
        let failed = |stage: &'_ StageResult| stage.failure.is_some();
        let stage = self.stages.iter().find(|stage| failed(stage))?;
        Some((&stage.rule, stage.failure.as_ref()?))
    }

    /// How many stages ended as `status`.
    pub fn count(&self, status: StageStatus) -> u64 {
        self.stages
            .iter()
            .filter(|stage| stage.status == status)
            .count() as u64
    }
}

impl Engine {
    /// An engine; every rule of the workspace must have its stage.
    pub fn new(
        workspace: Workspace,
        store: Store,
        stages: Vec<Box<dyn StageImpl>>,
        device: TargetId,
    ) -> Result<Self, Diagnostic> {
        let stages: BTreeMap<String, Box<dyn StageImpl>> = stages
            .into_iter()
            .map(|stage| (stage.name().to_owned(), stage))
            .collect();
        for rule in workspace.rules.values() {
            if !stages.contains_key(&rule.stage) {
                let names: Vec<_> = stages.keys().map(String::as_str).collect();
                let otherwise = format!("stages are {}", names.join(", "));
                let help = suggestion(&rule.stage, names, &otherwise);
                let message = format!("rule `{}`: unknown stage `{}`", rule.name, rule.stage);
                return Err(rule.place.error(message).help(help));
            }
        }
        Ok(Self {
            workspace,
            store,
            stages,
            device,
        })
    }

    /// The workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The stage named `name`.
    pub fn stage(&self, name: &str) -> Option<&dyn StageImpl> {
        self.stages.get(name).map(|stage| stage.as_ref())
    }

    /// Builds. Errors are those of the request and the environment before any stage runs, and of
    /// writing artifacts; a stage's failure is part of the result.
    pub fn build(
        &self,
        request: &Request,
        events: &dyn EventSink,
    ) -> Result<BuildResult, Diagnostic> {
        let start = Instant::now();
        let was_empty = self.store_is_empty();
        let target = self.workspace.target(&request.label, &request.sets)?;
        let plan = Plan::new(&self.workspace, &self.store, &target, &request.until)?;
        let label = request.label.to_string();
        let rules = plan
            .nodes
            .iter()
            .map(|node| node.rule.name.clone())
            .collect();
        events.event(&Event::BuildStarted {
            label: label.clone(),
            rules,
        });
        events.event(&Event::FilesChecked {
            files: plan.files,
            hashed: plan.hashed,
        });
        let execution = Execution::new(
            self,
            &plan,
            &label,
            (request.keep_going, request.timeout_seconds),
            events,
        );
        execution.run(request.jobs);
        let written = execution.write_artifacts(&request.artifacts);
        let stages = execution.finish();
        let is_whole = stages.iter().all(|stage| stage.failure.is_none());
        let artifacts_written = match written {
            Err(error) if is_whole => return Err(error),
            written => written.unwrap_or(0),
        };
        let result = BuildResult {
            label: request.label.clone(),
            stages,
            files_hashed: plan.hashed,
            artifacts_written,
            seconds: start.elapsed().as_secs_f64(),
        };
        let keyed = result.stages.iter().filter(|_| request.is_latest);
        let keyed = keyed.filter_map(|stage| Some((stage.rule.clone(), stage.key?)));
        let noted = self
            .store
            .note_last_keys(&label, &keyed.collect::<Vec<_>>());
        // A failure of a stage is the first to be told; a full disk, say, causes both.
        if result.failure().is_none() {
            noted?;
        }
        self.tend_store(events);
        self.tell_end(&result, was_empty, events);
        Ok(result)
    }

    /// Whether the store holds no record at all.
    fn store_is_empty(&self) -> bool {
        let any = self.store.record_path(self.device.digest);
        // A file in a folder of its first digits.
        let records = any.ancestors().find(|path| path.ends_with("records"));
        let entries = records.and_then(|path| std::fs::read_dir(path).ok());
        entries.is_none_or(|mut entries| entries.next().is_none())
    }

    fn tell_end(&self, result: &BuildResult, was_empty: bool, events: &dyn EventSink) {
        use StageStatus::{Failed, FailedBefore, Hit, Ran};
        let (ran, hit) = (result.count(Ran), result.count(Hit));
        if hit == 0 && ran > 0 && !was_empty {
            events.event(&Event::StoreNoted {
                message: format!(
                    "0 percent of {ran} stages were in the store, which is not empty; `ipub \
                     explain` tells what changed"
                ),
                warning: true,
            });
        }
        let of = |status| {
            result
                .stages
                .iter()
                .filter(move |stage| stage.status == status)
        };
        let written = of(Ran).flat_map(|stage| &stage.outputs);
        events.event(&Event::BuildFinished {
            label: result.label.to_string(),
            ran,
            hit,
            failed: result.count(Failed) + result.count(FailedBefore),
            bytes_read: result.stages.iter().map(|stage| stage.read_bytes).sum(),
            bytes_written: written.map(|output| output.size).sum(),
            seconds_saved: of(Hit).map(|stage| stage.made_seconds).sum(),
            seconds: result.seconds,
        });
    }
}
