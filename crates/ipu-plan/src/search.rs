//! Candidates: the sweep's recipe under each limit, improved decision by decision by its price.
//!
//! Input: graph, precision, planner policy, kernel costs. Output: complete candidates, cheapest
//! price first.
//! Invariants: deterministic for any number of threads: alternatives are compared in order, and
//! a decision changes only for a strictly lower price; the budget counts prices, never seconds;
//! each candidate is built in full and carries the peak-live bounds of its fullest tile.
//! Not here: schedules, addresses.

use ipu_ir::graph::Graph;
use ipu_ir::mid::Mid;
use ipub_base::KernelCost;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bounds::{Bounds, bounds};
use crate::build::{PlanError, build, draft};
use crate::cost::{PricedGemm, PricedGrid};
use crate::policy::Precision;
use crate::price::Prices;
use crate::recipe::{CastSite, GemmPlan, Grid, Recipe};
use crate::sweep::{Choices, Sweep, recipe, sweep};

/// Grids of an operation that are priced in full: the first of the closed-form rank.
const ALTERNATIVES: usize = 8;

/// What the planner may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannerPolicy {
    /// Logical tiles of the target.
    pub tiles: u32,
    /// Bytes of one tile that one operation's operands and results may take, most first: each
    /// limit gives a candidate.
    pub operand_limits: Vec<u32>,
    /// Recipes priced in full around each candidate.
    pub search_steps: u32,
}

/// A recipe, what it decides, and what it is thought to cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub recipe: Recipe,
    pub mid: Mid,
    /// Simulated cycles of its kernel calls and closed-form cycles of its exchanges: a rank, not a
    /// figure to show.
    pub estimate: u64,
    pub bounds: Bounds,
}

/// All candidates, cheapest estimate first.
pub fn candidates(
    graph: &Graph,
    precision: &Precision,
    policy: &PlannerPolicy,
    costs: &dyn KernelCost,
) -> Result<Vec<Candidate>, PlanError> {
    let sweep = sweep(graph, precision, policy.tiles)?;
    let mut starts: Vec<(u32, Recipe)> = Vec::new();
    for limit in &policy.operand_limits {
        let Some(recipe) = recipe(&sweep, *limit) else {
            continue;
        };
        if !starts.iter().any(|(_, other)| *other == recipe) {
            starts.push((*limit, recipe));
        }
    }
    let search = Search {
        graph,
        precision,
        policy,
        prices: Prices::new(costs),
        sweep: &sweep,
    };
    let mut priced = Vec::new();
    for (limit, recipe) in starts {
        priced.push((search.price(&recipe)?, recipe.clone()));
        let (recipe, estimate) = search.improve(recipe, limit)?;
        priced.push((estimate, recipe));
    }
    let mut found: Vec<Candidate> = Vec::new();
    for (estimate, recipe) in priced {
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

/// One decision otherwise made.
enum Change<'a> {
    /// A grid, together with the cast site that it was ranked for.
    Gemm((&'a str, GemmPlan), Option<(String, CastSite)>),
    Cast(String, CastSite),
    Qk(&'a str, Grid),
    Pv(&'a str, Grid),
}

struct Search<'a> {
    graph: &'a Graph,
    precision: &'a Precision,
    policy: &'a PlannerPolicy,
    prices: Prices<'a>,
    sweep: &'a Sweep,
}

impl Search<'_> {
    fn price(&self, recipe: &Recipe) -> Result<u64, PlanError> {
        let mid = draft(self.graph, self.precision, recipe, self.policy.tiles)?;
        self.prices.price(&mid)
    }

    /// Decision by decision, again and again until none gets cheaper or the budget is used.
    fn improve(&self, mut recipe: Recipe, limit: u32) -> Result<(Recipe, u64), PlanError> {
        let mut best = self.price(&recipe)?;
        let mut left = self.policy.search_steps as usize;
        let decisions = self.decisions(limit);
        let mut unchanged = 0;
        for changes in decisions.iter().cycle() {
            if unchanged == decisions.len() || left == 0 {
                break;
            }
            let variants: Vec<Recipe> = changes
                .iter()
                .map(|change| self.with(&recipe, change))
                .filter(|variant| *variant != recipe)
                .take(left)
                .collect();
            left -= variants.len();
            // A decision that is illegal beside the others has no price.
            let prices: Vec<Option<u64>> = variants
                .par_iter()
                .map(|variant| self.price(variant).ok())
                .collect();
            let priced = variants.into_iter().zip(prices);
            let priced = priced.filter_map(|(variant, price)| Some((price?, variant)));
            unchanged += 1;
            if let Some((price, variant)) = priced.min_by_key(|(price, _)| *price)
                && price < best
            {
                (best, recipe, unchanged) = (price, variant, 0);
            }
        }
        Ok((recipe, best))
    }

    /// The alternatives of each decision, within `limit` bytes.
    fn decisions<'s>(&'s self, limit: u32) -> Vec<Vec<Change<'s>>> {
        let mut decisions = Vec::new();
        for (name, choices) in self.sweep {
            match choices {
                Choices::Gemm {
                    sites,
                    reader,
                    is_cast,
                } => {
                    let within = |plans: &'s [PricedGemm]| {
                        let within = plans.iter().filter(|plan| plan.bytes <= limit);
                        within
                            .take(ALTERNATIVES)
                            .map(|plan| (name.as_str(), plan.plan))
                    };
                    let mut changes = Vec::new();
                    for (site, plans) in sites {
                        let cast = is_cast.then(|| (format!("{name}.x"), *site));
                        changes.extend(within(plans).map(|plan| Change::Gemm(plan, cast.clone())));
                    }
                    if let Some((site, early)) = reader {
                        // The cast of the reader decides where this product may be cut.
                        for (site_of, plans) in
                            [(CastSite::Early, early), (CastSite::Late, &sites[0].1)]
                        {
                            let cast = Some((site.clone(), site_of));
                            changes
                                .extend(within(plans).map(|plan| Change::Gemm(plan, cast.clone())));
                        }
                    }
                    decisions.push(changes);
                }
                Choices::Attention { grids, casts } => {
                    let within = |grids: &[PricedGrid], change: fn(&'s str, Grid) -> Change<'s>| {
                        let within = grids.iter().filter(|grid| grid.bytes <= limit);
                        let first = within.take(ALTERNATIVES);
                        first.map(|grid| change(name, grid.grid)).collect()
                    };
                    decisions.push(within(&grids.qk, Change::Qk));
                    decisions.push(within(&grids.pv, Change::Pv));
                    let sites = [CastSite::Early, CastSite::Late];
                    decisions.extend(casts.iter().map(|role| {
                        let site = |site| Change::Cast(format!("{name}.{role}"), site);
                        sites.into_iter().map(site).collect()
                    }));
                }
            }
        }
        decisions.retain(|changes: &Vec<Change<'s>>| changes.len() > 1);
        decisions
    }

    fn with(&self, recipe: &Recipe, change: &Change<'_>) -> Recipe {
        let mut recipe = recipe.clone();
        match change {
            Change::Gemm((name, plan), cast) => {
                recipe.gemm.insert((*name).to_owned(), *plan);
                recipe.cast.extend(cast.clone());
            }
            Change::Cast(name, site) => {
                recipe.cast.insert(name.clone(), *site);
            }
            Change::Qk(name, grid) => self.attention(&mut recipe, name, Some(*grid), None),
            Change::Pv(name, grid) => self.attention(&mut recipe, name, None, Some(*grid)),
        }
        recipe
    }

    fn attention(&self, recipe: &mut Recipe, name: &str, qk: Option<Grid>, pv: Option<Grid>) {
        let grids = self
            .sweep
            .iter()
            .find_map(|(other, choices)| match choices {
                Choices::Attention { grids, .. } if other == name => Some(grids),
                _ => None,
            });
        if let (Some(grids), Some(plan)) = (grids, recipe.attention.get_mut(name)) {
            *plan = grids.plan(qk.unwrap_or(plan.qk), pv.unwrap_or(plan.pv));
        }
    }
}
