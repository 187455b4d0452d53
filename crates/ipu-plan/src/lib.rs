//! Graph to mid by a recipe.
//!
//! Input: graph, precision policy, planner policy, kernel costs. Output: ordered complete
//! candidates, each a recipe with its mid and an estimate.
//! Invariants: deterministic; the mid follows from graph, precision and recipe alone.
//! Not here: addresses, schedules, admission.

pub mod bounds;
pub mod build;
pub mod cost;
pub mod decisions;
pub mod policy;
pub mod price;
pub mod recipe;
pub mod search;
pub mod sweep;

pub use build::{PlanError, build};
pub use decisions::{Decisions, NameError, Rebased, rebase, resolve, result_for};
pub use policy::{AttentionFormats, Format, Precision};
pub use recipe::{AttentionPlan, CastSite, GemmPlan, Grid, Recipe, ResultGrid};
pub use search::{Candidate, PlannerPolicy, candidates};
