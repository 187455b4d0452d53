//! Events of a build, typed; a terminal, a log or a test receives them.

use std::collections::BTreeMap;

use ipub_base::{Digest, KeyLine};
use ipub_store::OutputRef;
use serde::Serialize;

use crate::failure::FailureKind;
use crate::memo::MemoReport;

/// An output as events show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputInfo {
    /// Its name.
    pub name: String,
    /// Its content.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

impl From<&OutputRef> for OutputInfo {
    fn from(output: &OutputRef) -> Self {
        Self {
            name: output.name.clone(),
            digest: output.digest,
            size: output.size,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A build begins.
    BuildStarted {
        /// The target.
        label: String,
        /// Its rules, in order.
        rules: Vec<String>,
    },
    /// Source files were looked at.
    FilesChecked {
        /// How many.
        files: u64,
        /// How many of them had to be read.
        hashed: u64,
    },
    /// A stage's key is known.
    Key {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// The key.
        key: Digest,
        /// Rules whose outputs it reads.
        needs: Vec<String>,
        /// What the key consists of.
        lines: Vec<KeyLine>,
    },
    /// A stage is over its limit of time and does not end.
    StageOverdue {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// The limit.
        limit_seconds: u64,
    },
    /// A stage begins to run.
    StageStarted {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// Its key.
        key: Digest,
    },
    /// Another process executes the stage; its result will be used.
    StageWaits {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// Its key.
        key: Digest,
    },
    /// A running stage got further.
    StageProgress {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// What it is at.
        message: String,
        /// Steps done.
        done: u64,
        /// Steps in all; 0 if not known.
        total: u64,
    },
    /// A stage's outputs were in the store.
    StageHit {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// Its key.
        key: Digest,
        /// Seconds that it took when it ran.
        seconds_saved: f64,
        /// Its outputs.
        outputs: Vec<OutputInfo>,
    },
    /// A stage ran and made its outputs.
    StageRan {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// Its key.
        key: Digest,
        /// Seconds that it took.
        seconds: f64,
        /// Its outputs.
        outputs: Vec<OutputInfo>,
        /// How its memo served it.
        memo: MemoReport,
        /// Counts and remarks of the stage.
        notes: BTreeMap<String, serde_json::Value>,
    },
    /// A stage failed.
    StageFailed {
        /// The target.
        label: String,
        /// The rule.
        rule: String,
        /// The kind of failure.
        kind: FailureKind,
        /// What happened.
        message: String,
        /// Whether the failure was in the store.
        cached: bool,
    },
    /// An output that a record names was found damaged or gone when it was read; its rule runs
    /// again.
    OutputLost {
        /// The target.
        label: String,
        /// The rule that makes it.
        rule: String,
        /// The output.
        output: String,
    },
    /// The store met something that a user may want to know: damage that healed, a record that does
    /// not hold, an eviction, a limit that is too small.
    StoreNoted {
        /// In words.
        message: String,
        /// Whether the user may want to change something.
        warning: bool,
    },
    /// A build ended.
    BuildFinished {
        /// The target.
        label: String,
        /// Stages that ran.
        ran: u64,
        /// Stages whose outputs were in the store.
        hit: u64,
        /// Stages that failed.
        failed: u64,
        /// Bytes that stages read.
        bytes_read: u64,
        /// Bytes of the outputs of stages that ran.
        bytes_written: u64,
        /// Seconds that the stages took whose outputs were in the store.
        seconds_saved: f64,
        /// Seconds.
        seconds: f64,
    },
}

/// Receives events, from any thread.
pub trait EventSink: Send + Sync {
    /// One event.
    fn event(&self, event: &Event);
}

/// Receives events and does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _: &Event) {}
}
