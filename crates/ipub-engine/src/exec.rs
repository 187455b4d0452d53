//! Execution of a plan: look up, claim, run, record.
//!
//! Input: a plan, the store, the stages.
//! Output: a result for each node, records and blobs in the store, events.
//! Invariants: a stage runs only while its claim is held and no record of its key is whole; a
//! record is written after its blobs; results do not depend on how many stages run at once.
//! Not here: what keys consist of; which rules there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use ipub_base::{Digest, Key};
use ipub_store::{FailedOutcome, Outcome, OutputRef, Provenance, Record};

use crate::engine::{Engine, StageResult, StageStatus};
use crate::event::{Event, EventSink, OutputInfo};
use crate::failure::{FailureKind, StageFailure};
use crate::guard::{Guard, GuardedMemo, run_guarded};
use crate::inputs::{Given, StageImpl, StageInputs, StageOutputs};
use crate::key::key;
use crate::memo::{MemoReport, StageMemo};
use crate::resolve::{Node, NodeInput, Plan};

/// How often lost inputs of one stage are made again before the build gives up.
const REMAKES_MAX: usize = 3;

pub(crate) struct Execution<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) label: &'a str,
    keep_going: bool,
    /// A limit for every stage, in place of those of the rules.
    timeout_seconds: Option<u64>,
    pub(crate) events: &'a dyn EventSink,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ready: BTreeSet<usize>,
    /// For each node, how many of its makers have not succeeded yet.
    waits_for: Vec<usize>,
    running: usize,
    stopped: bool,
    results: Vec<Option<StageResult>>,
}

/// How one attempt to run a stage ended.
enum Attempt {
    Done(Box<StageResult>),
    LostInput(Digest),
}

impl<'a> Execution<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        plan: &'a Plan<'a>,
        label: &'a str,
        (keep_going, timeout_seconds): (bool, Option<u64>),
        events: &'a dyn EventSink,
    ) -> Self {
        let waits_for: Vec<_> = plan.nodes.iter().map(|node| node.makers.len()).collect();
        let ready = (0..waits_for.len())
            .filter(|&node| waits_for[node] == 0)
            .collect();
        let results = plan.nodes.iter().map(|_| None).collect();
        let state = State {
            ready,
            waits_for,
            running: 0,
            stopped: false,
            results,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self {
            engine,
            plan,
            label,
            keep_going,
            timeout_seconds,
            events,
            state,
            changed,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs all nodes, `jobs` at once.
    pub(crate) fn run(&self, jobs: usize) {
        std::thread::scope(|scope| {
            for _ in 1..jobs.min(self.plan.nodes.len()) {
                scope.spawn(|| self.work());
            }
            self.work();
        });
    }

    fn work(&self) {
        while let Some(node) = self.next() {
            let result = self.make(node);
            let mut state = self.state();
            state.running -= 1;
            if result.failure.is_none() {
                for &reader in &self.plan.nodes[node].readers {
                    state.waits_for[reader] -= 1;
                    if state.waits_for[reader] == 0 {
                        state.ready.insert(reader);
                    }
                }
            } else if !self.keep_going {
                state.stopped = true;
            }
            state.results[node] = Some(result);
            drop(state);
            self.changed.notify_all();
        }
        self.changed.notify_all();
    }

    /// The next node to make; waits for one. `None` when there will be no more.
    fn next(&self) -> Option<usize> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(node) = state.ready.pop_first() {
                state.running += 1;
                return Some(node);
            }
            if state.running == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The results, in the order of the plan.
    pub(crate) fn finish(self) -> Vec<StageResult> {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let nodes = self.plan.nodes.iter();
        let skipped = |node: &Node| StageResult::of(node, StageStatus::Skipped, None);
        let results = state.results.into_iter().zip(nodes);
        results
            .map(|(result, node)| result.unwrap_or_else(|| skipped(node)))
            .collect()
    }

    /// The outputs of a node that was made.
    pub(crate) fn outputs(&self, node: usize) -> Option<Vec<OutputRef>> {
        let state = self.state();
        let result = state.results[node].as_ref()?;
        result.failure.is_none().then(|| result.outputs.clone())
    }

    fn given(&self, node: usize) -> Result<BTreeMap<String, Given>, StageFailure> {
        let state = self.state();
        let output = |maker: usize, name: &str| {
            state.results[maker]
                .as_ref()?
                .output(name)
                .map(|output| output.digest)
        };
        let given = self.plan.given(node, output);
        given.map_err(|_| StageFailure::bug("a stage runs before one that it reads from"))
    }

    /// Makes one node: from the store, or by running its stage.
    fn make(&self, node: usize) -> StageResult {
        let start = Instant::now();
        let mut result = self
            .try_make(node)
            .unwrap_or_else(|failure| self.failed(&self.plan.nodes[node], None, failure, false));
        result.seconds = start.elapsed().as_secs_f64();
        result
    }

    fn try_make(&self, node_index: usize) -> Result<StageResult, StageFailure> {
        let node = &self.plan.nodes[node_index];
        let stage = self.engine.stages[&node.rule.stage].as_ref();
        let given = self.given(node_index)?;
        let device = &self.engine.device;
        let key = key(node.rule, stage.fingerprint(), device, &given, &node.params);
        self.tell_key(node, &key);
        if let Some(result) = self.look_up(node, key.digest)? {
            return Ok(result);
        }
        for _ in 0..=REMAKES_MAX {
            let claim = self.claim(&node.rule.name, key.digest)?;
            // Another process may have run it while we waited for the claim.
            if let Some(result) = self.look_up(node, key.digest)? {
                return Ok(result);
            }
            let attempt = self.run_stage(node, stage, &key, &given)?;
            drop(claim);
            match attempt {
                Attempt::Done(result) => return Ok(*result),
                Attempt::LostInput(digest) => self.remake(node, digest)?,
            }
        }
        let message = format!(
            "inputs of `{}` vanish from the store again and again",
            node.rule.name
        );
        Err(StageFailure::new(FailureKind::Environment, message))
    }

    fn tell_key(&self, node: &Node, key: &Key) {
        let needs = node.makers.iter();
        self.events.event(&Event::Key {
            label: self.label.to_owned(),
            rule: node.rule.name.clone(),
            key: key.digest,
            needs: needs
                .map(|&maker| self.plan.nodes[maker].rule.name.clone())
                .collect(),
            lines: key.lines.clone(),
        });
    }

    /// The result that the store has for `key`.
    fn look_up(&self, node: &Node, key: Digest) -> Result<Option<StageResult>, StageFailure> {
        let Some(record) = self.recorded(key)? else {
            return Ok(None);
        };
        match &record.outcome {
            Outcome::Ok { outputs } => {
                let mut result = StageResult::of(node, StageStatus::Hit, Some(key));
                result.made_seconds = record.wall_seconds();
                result.outputs.clone_from(outputs);
                result.notes.clone_from(&record.notes);
                self.events.event(&Event::StageHit {
                    label: self.label.to_owned(),
                    rule: node.rule.name.clone(),
                    key,
                    seconds_saved: result.made_seconds,
                    outputs: outputs.iter().map(OutputInfo::from).collect(),
                });
                Ok(Some(result))
            }
            Outcome::Failed(failed) => {
                let Some(kind) = FailureKind::from_name(&failed.kind) else {
                    return Ok(None);
                };
                let mut failure = StageFailure::new(kind, failed.message.clone());
                if let Some(payload) = &failed.payload {
                    match self.engine.store.get_blob(payload.digest) {
                        Ok(bytes) => failure.payload = Some(bytes),
                        Err(error) if error.lost_blob().is_some() => return Ok(None),
                        Err(error) => return Err(error.into()),
                    }
                }
                let mut result = self.failed(node, Some(key), failure, true);
                result.made_seconds = record.wall_seconds();
                Ok(Some(result))
            }
        }
    }

    /// Runs a stage once and records how it ended.
    fn run_stage(
        &self,
        node: &Node,
        stage: &dyn StageImpl,
        key: &Key,
        given: &BTreeMap<String, Given>,
    ) -> Result<Attempt, StageFailure> {
        let start = Instant::now();
        let (label, rule) = (self.label.to_owned(), node.rule.name.clone());
        self.events.event(&Event::StageStarted {
            label,
            rule,
            key: key.digest,
        });
        let store = &self.engine.store;
        let memo = StageMemo::new(store, stage, self.label);
        let limit = self.timeout_seconds.or(node.rule.timeout_seconds);
        let guard = Guard::new(&node.rule.name, limit, start);
        let progress = |message: &str, done, total| {
            guard.check();
            let (label, rule) = (self.label.to_owned(), node.rule.name.clone());
            let message = message.to_owned();
            self.events.event(&Event::StageProgress {
                label,
                rule,
                message,
                done,
                total,
            });
        };
        let inputs = StageInputs {
            given: given.clone(),
            params: node.params.clone(),
            target: &self.engine.device,
            memo: &GuardedMemo(&memo, &guard),
            store: Some(store),
            progress: &progress,
            lost: Mutex::new(None),
            read_bytes: AtomicU64::new(0),
        };
        let run = || run_guarded(stage, &inputs, &node.rule.outputs);
        let ran = guard.watch(self.events, self.label, run);
        let read_bytes = inputs.read_bytes.load(Ordering::Relaxed);
        let wall = start.elapsed();
        let lost = inputs
            .lost
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = lost {
            return Ok(Attempt::LostInput(digest));
        }
        let record = self.record(node, key, wall.as_micros() as u64);
        let mut result = match ran {
            Ok(outputs) => self.keep_outputs(node, record, outputs, memo)?,
            Err(failure) => self.keep_failure(node, record, failure, memo)?,
        };
        result.read_bytes = read_bytes;
        Ok(Attempt::Done(Box::new(result)))
    }

    /// Stores the outputs of a stage that ran: blobs first, then the record.
    fn keep_outputs(
        &self,
        node: &Node,
        mut record: Record,
        outputs: StageOutputs,
        memo: StageMemo<'_>,
    ) -> Result<StageResult, StageFailure> {
        let store = &self.engine.store;
        let mut refs = Vec::new();
        for name in &node.rule.outputs {
            refs.push(store.put_output(name, &outputs.blobs[name])?);
        }
        record.notes = outputs.notes;
        record.outcome = Outcome::Ok { outputs: refs };
        store.put_record(&record)?;
        let usage = memo.save()?;
        Ok(self.ran(node, &record, usage))
    }

    /// Stores the failure of a stage, if it is a result.
    fn keep_failure(
        &self,
        node: &Node,
        mut record: Record,
        failure: StageFailure,
        memo: StageMemo<'_>,
    ) -> Result<StageResult, StageFailure> {
        let cacheable = failure.kind.cacheable();
        if cacheable {
            let store = &self.engine.store;
            let payload = failure.payload.as_deref();
            let payload = payload.map(|bytes| store.put_output("payload", bytes));
            record.outcome = Outcome::Failed(FailedOutcome {
                kind: failure.kind.name().to_owned(),
                message: failure.message.clone(),
                payload: payload.transpose()?,
            });
            store.put_record(&record)?;
            memo.save()?;
        }
        let key = cacheable.then_some(record.key);
        let mut result = self.failed(node, key, failure, false);
        result.made_seconds = record.wall_seconds();
        Ok(result)
    }

    fn record(&self, node: &Node, key: &Key, wall_micros: u64) -> Record {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Record {
            key: key.digest,
            rule: node.rule.name.clone(),
            label: self.label.to_owned(),
            key_lines: key.lines.clone(),
            outcome: Outcome::Ok {
                outputs: Vec::new(),
            },
            wall_micros,
            notes: BTreeMap::new(),
            provenance: Provenance {
                made_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
                tool: concat!("ipub ", env!("CARGO_PKG_VERSION")).to_owned(),
                executed: "local".to_owned(),
            },
        }
    }

    fn ran(&self, node: &Node, record: &Record, memo: MemoReport) -> StageResult {
        let mut result = StageResult::of(node, StageStatus::Ran, Some(record.key));
        result.made_seconds = record.wall_seconds();
        result.outputs = record.blobs().to_vec();
        result.notes.clone_from(&record.notes);
        result.memo = memo.clone();
        self.events.event(&Event::StageRan {
            label: self.label.to_owned(),
            rule: node.rule.name.clone(),
            key: record.key,
            seconds: result.made_seconds,
            outputs: result.outputs.iter().map(OutputInfo::from).collect(),
            memo,
            notes: result.notes.clone(),
        });
        result
    }

    fn failed(
        &self,
        node: &Node,
        key: Option<Digest>,
        failure: StageFailure,
        cached: bool,
    ) -> StageResult {
        self.events.event(&Event::StageFailed {
            label: self.label.to_owned(),
            rule: node.rule.name.clone(),
            kind: failure.kind,
            message: failure.message.clone(),
            cached,
        });
        let status = if cached {
            StageStatus::FailedBefore
        } else {
            StageStatus::Failed
        };
        let mut result = StageResult::of(node, status, key);
        result.failure = Some(failure);
        result
    }

    /// Makes the input `digest` of `node` again, by the rule that made it.
    fn remake(&self, node: &Node, digest: Digest) -> Result<(), StageFailure> {
        for input in node.inputs.values() {
            let NodeInput::Output {
                node: maker,
                output,
            } = input
            else {
                continue;
            };
            let is_it = |made: &OutputRef| made.name == *output && made.digest == digest;
            if self
                .outputs(*maker)
                .is_some_and(|outputs| outputs.iter().any(is_it))
            {
                return self.remake_output(*maker, output, digest);
            }
        }
        Err(StageFailure::bug(format!(
            "no rule made the lost blob {digest}"
        )))
    }

    /// Makes `node` again, whose output `output` with `digest` was lost.
    pub(crate) fn remake_output(
        &self,
        node: usize,
        output: &str,
        digest: Digest,
    ) -> Result<(), StageFailure> {
        let rule = self.plan.nodes[node].rule.name.clone();
        let (label, name) = (self.label.to_owned(), output.to_owned());
        self.events.event(&Event::OutputLost {
            label,
            rule: rule.clone(),
            output: name,
        });
        let result = self.make(node);
        if let Some(failure) = result.failure {
            return Err(failure);
        }
        let made = result.output(output).map(|made| made.digest);
        if made != Some(digest) {
            let message = format!(
                "rule `{rule}` is not deterministic: its output `{output}` was {digest}, \
                 and is now {}",
                made.map_or("absent".to_owned(), |made| made.hex())
            );
            return Err(StageFailure::bug(message));
        }
        self.state().results[node] = Some(result);
        Ok(())
    }
}

impl StageResult {
    fn of(node: &Node, status: StageStatus, key: Option<Digest>) -> Self {
        Self {
            rule: node.rule.name.clone(),
            status,
            key,
            seconds: 0.0,
            made_seconds: 0.0,
            outputs: Vec::new(),
            read_bytes: 0,
            notes: BTreeMap::new(),
            memo: MemoReport::default(),
            failure: None,
        }
    }
}
