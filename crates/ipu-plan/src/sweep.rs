//! Candidates from a closed-form sweep of all legal grids under memory limits.
//!
//! Input: graph, precision, planner policy. Output: complete candidates, cheapest estimate first.
//! Invariants: deterministic; nothing is picked by the name of a model; each candidate is built in
//! full and carries the peak-live bounds of its fullest tile.
//! Not here: simulated kernel costs, schedules, addresses.

use ipu_ir::graph::{Graph, OpKind, ValueDef};
use ipu_ir::mid::Mid;
use serde::{Deserialize, Serialize};

use crate::bounds::{Bounds, bounds};
use crate::build::columns::extents;
use crate::build::{PlanError, build};
use crate::cost::{PricedGemm, attention_plan, gemm_plans};
use crate::policy::Precision;
use crate::recipe::{CastSite, GemmPlan, Recipe};

/// What the planner may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannerPolicy {
    /// Logical tiles of the target.
    pub tiles: u32,
    /// Bytes of one tile that one operation's operands and results may take, most first: each
    /// limit gives a candidate.
    pub operand_limits: Vec<u32>,
}

/// A recipe, what it decides, and what it is thought to cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub recipe: Recipe,
    pub mid: Mid,
    /// Closed-form cycles: a rank, not a figure to show.
    pub estimate: u64,
    pub bounds: Bounds,
}

/// All candidates, cheapest estimate first.
pub fn candidates(
    graph: &Graph,
    precision: &Precision,
    policy: &PlannerPolicy,
) -> Result<Vec<Candidate>, PlanError> {
    let mut found: Vec<Candidate> = Vec::new();
    for limit in &policy.operand_limits {
        let Some((recipe, estimate)) = recipe(graph, precision, policy.tiles, *limit)? else {
            continue;
        };
        if found.iter().any(|other| other.recipe == recipe) {
            continue;
        }
        let mid = build(graph, precision, &recipe, policy.tiles)?;
        let bounds = bounds(&mid);
        found.push(Candidate {
            recipe,
            mid,
            estimate,
            bounds,
        });
    }
    found.sort_by_key(|candidate| candidate.estimate);
    Ok(found)
}

/// The cheapest legal decisions whose operands stay within `limit` bytes of a tile, or near it.
fn recipe(
    graph: &Graph,
    precision: &Precision,
    tiles: u32,
    limit: u32,
) -> Result<Option<(Recipe, u64)>, PlanError> {
    let extents = extents(graph, precision)?;
    let mut recipe = Recipe::default();
    let mut estimate = 0;
    for op in &graph.ops {
        match &op.kind {
            OpKind::Gemm { x, .. } => {
                let format = precision.gemm(&op.name);
                let site = if from_rows(graph, *x) {
                    CastSite::Early
                } else {
                    CastSite::Late
                };
                let rows = graph.rows(op.results[0]);
                let inner = extents[x.0 as usize].size();
                let columns = extents[op.results[0].0 as usize].size();
                let plans = gemm_plans(rows, columns, inner, format, site, tiles);
                let Some(best) = cheapest_within(plans, limit) else {
                    return Ok(None);
                };
                estimate += best.cycles;
                let GemmPlan { grid, result } = best.plan;
                recipe
                    .gemm
                    .insert(op.name.clone(), GemmPlan { grid, result });
                if format.is_f143() {
                    recipe.cast.insert(format!("{}.x", op.name), site);
                }
            }
            OpKind::Attention { q, k, .. } => {
                let shape = &graph.value(*q).shape;
                let formats = precision.attention(&op.name);
                let plan =
                    attention_plan(shape[0], shape[1], graph.rows(*k), shape[2], formats, tiles);
                let Some((plan, cycles)) = plan else {
                    return Ok(None);
                };
                estimate += cycles;
                recipe.attention.insert(op.name.clone(), plan);
            }
            _ => {}
        }
    }
    Ok(Some((recipe, estimate)))
}

/// The cheapest plan within `limit` bytes; the smallest one when there is none.
fn cheapest_within(plans: Vec<PricedGemm>, limit: u32) -> Option<PricedGemm> {
    plans.into_iter().min_by_key(|plan| {
        let excess = plan.bytes.saturating_sub(limit);
        (excess, plan.cycles, plan.plan.grid)
    })
}

/// Whether a value stands on row owners: there a cast before the copies is always legal.
fn from_rows(graph: &Graph, value: ipu_ir::graph::ValueId) -> bool {
    match graph.value(value).def {
        ValueDef::Result(op) => matches!(
            graph.op(op).kind,
            OpKind::LayerNorm { .. } | OpKind::Add { .. } | OpKind::Repeat { .. }
        ),
        _ => true,
    }
}
