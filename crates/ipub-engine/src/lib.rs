//! The build engine: labels, targets, rules, keys, order, early cut-off, explanations, events.
//!
//! Input: a workspace (`workspace.toml`, `rules/*.toml`, `BUILD.toml` files), a store, and the
//! stages that a caller gives as `StageImpl`.
//! Output: records and blobs in the store, events, a `BuildResult`.
//! Invariants: a stage runs only if no record of its key is whole; a key holds the digests of the
//! blobs that the stage reads and nothing about how they came to be.
//! Not here: any compiler, any terminal, any network.

mod against;
mod artifacts;
mod document;
mod engine;
mod event;
mod exec;
mod explain;
mod failure;
mod files;
mod guard;
mod inputs;
mod key;
mod label;
pub mod limits;
mod memo;
mod query;
mod remote;
mod resolve;
mod rules;
mod schema;
mod stage_dir;
mod store;
mod target;
mod value;
mod workspace;

pub use against::{Against, AgainstState, Recorded};
pub use artifacts::Artifact;
pub use engine::{BuildResult, Engine, Request, StageResult, StageStatus, TargetId};
pub use event::{Event, EventSink, NoEvents, OutputInfo};
pub use explain::{Change, ExplainState, Explanation};
pub use failure::{FailureKind, StageFailure};
pub use inputs::{InputFile, Params, StageImpl, StageInputs, StageOutputs};
pub use label::{Label, nearest};
pub use memo::MemoReport;
pub use query::{Action, ActionState, Affected, Answer, QueryNode, expand_patterns};
pub use remote::Remote;
pub use rules::{InputSource, Rule, RuleInput};
pub use schema::{Attribute, Kind, ValueType};
pub use stage_dir::{StageDirResult, run_stage_dir};
pub use target::{AttributeValue, Target};
pub use value::Value;
pub use workspace::Workspace;
