//! Which decisions a graph needs, short names for them, and carrying them over to another graph.
//!
//! Input: graph, precision, recipes. Output: names; a recipe that is legal for the graph.
//! Invariants: deterministic; a rebased recipe is complete and can be built; each decision of it is
//! either the old one or that of the planner, and every change is listed.
//! Not here: files, contexts, what decisions mean (`build`).

use std::collections::BTreeSet;

use ipu_ir::graph::{Graph, OpKind};
use ipu_ir::mid::Mid;
use thiserror::Error;

use crate::build::casts::column_grain;
use crate::build::columns::extents;
use crate::build::{PlanError, build};
use crate::cost::result_grid;
use crate::policy::Precision;
use crate::recipe::{CastSite, Grid, Recipe, ResultGrid};
use crate::sweep::attention_casts;

/// The names of a complete recipe, by section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    pub gemm: BTreeSet<String>,
    pub attention: BTreeSet<String>,
    pub cast: BTreeSet<String>,
}

impl Decisions {
    /// What a recipe of this graph decides: every product, every attention, every cast site.
    pub fn of(graph: &Graph, precision: &Precision) -> Self {
        let mut names = Self::default();
        for op in &graph.ops {
            match &op.kind {
                OpKind::Gemm { .. } => {
                    names.gemm.insert(op.name.clone());
                    if precision.gemm(&op.name).is_f143() {
                        names.cast.insert(format!("{}.x", op.name));
                    }
                }
                OpKind::Attention { .. } => {
                    names.attention.insert(op.name.clone());
                    let roles = attention_casts(precision.attention(&op.name));
                    let sites = roles.iter().map(|role| format!("{}.{role}", op.name));
                    names.cast.extend(sites);
                }
                _ => {}
            }
        }
        names
    }

    /// The names of one section of a recipe.
    pub fn section(&self, section: &str) -> &BTreeSet<String> {
        match section {
            "gemm" => &self.gemm,
            "attention" => &self.attention,
            _ => &self.cast,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("it names no decision of the recipe")]
    Unknown,
    #[error("it could be any of {}", .0.join(", "))]
    Ambiguous(Vec<String>),
}

/// Operations of the repeated layer, which short names mean first.
const ENCODER: &str = "encoder.";

/// The name that `wanted` means: one of `names`, or the last parts of exactly one, or of exactly one
/// of the encoder's.
pub fn resolve<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<&'a str, NameError> {
    let mut matches = Vec::new();
    for name in names {
        if name == wanted {
            return Ok(name);
        }
        let rest = name.strip_suffix(wanted);
        if rest.is_some_and(|rest| rest.ends_with('.')) {
            matches.push(name);
        }
    }
    match matches[..] {
        [one] => Ok(one),
        [] => Err(NameError::Unknown),
        _ => {
            let mut own = matches.iter().filter(|name| name.starts_with(ENCODER));
            if let (Some(one), None) = (own.next(), own.next()) {
                return Ok(one);
            }
            let matches = matches.into_iter().map(str::to_owned).collect();
            Err(NameError::Ambiguous(matches))
        }
    }
}

/// The result grid that the planner gives the product `operation` for a grid; `None` if there is no
/// such product, or a part of it would be empty.
pub fn result_for(
    graph: &Graph,
    precision: &Precision,
    recipe: &Recipe,
    (operation, grid): (&str, Grid),
) -> Result<Option<ResultGrid>, PlanError> {
    let Some(op) = graph.op_named(operation).map(|id| graph.op(id)) else {
        return Ok(None);
    };
    let rows = graph.rows(op.results[0]);
    let grain = column_grain(graph, precision, recipe, op.results[0]);
    let column_units = extents(graph, precision)?[op.results[0].0 as usize].size() / grain;
    let least = [rows / grid.rows, column_units / grid.columns];
    if least.contains(&0) {
        return Ok(None);
    }
    let row_part = rows.div_ceil(grid.rows);
    let column_part = column_units.div_ceil(grid.columns) * grain;
    Ok(Some(
        result_grid(grid.inner, least, [row_part, column_part], grain).0,
    ))
}

/// A recipe carried over to a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebased {
    pub recipe: Recipe,
    pub mid: Mid,
    /// Decisions that no longer apply, and why.
    pub dropped: Vec<(String, String)>,
    /// Decisions that the planner made instead, or because there was none.
    pub filled: Vec<String>,
}

/// Keeps every decision of `old` that applies to the graph; takes the others from `planner`, a
/// complete recipe of it.
pub fn rebase(
    graph: &Graph,
    precision: &Precision,
    tiles: u32,
    old: &Recipe,
    planner: &Recipe,
) -> Result<Rebased, PlanError> {
    let names = Decisions::of(graph, precision);
    let mut recipe = planner.clone();
    let mut dropped = Vec::new();
    let mut filled = Vec::new();
    let mut gone = |section: &str, name: &str, why: &str| {
        dropped.push((format!("{section}.{name}"), why.to_owned()));
    };
    macro_rules! carry {
        ($section:ident, $why:expr) => {
            for (name, decision) in &old.$section {
                match recipe.$section.get_mut(name) {
                    Some(slot) => *slot = *decision,
                    None => gone(stringify!($section), name, $why),
                }
            }
            for name in &names.$section {
                if !old.$section.contains_key(name) {
                    filled.push(format!("{}.{name}", stringify!($section)));
                }
            }
        };
    }
    carry!(gemm, "the graph has no such product");
    carry!(attention, "the graph has no such attention");
    carry!(cast, "there is no such cast site");
    loop {
        let (operation, what) = match build(graph, precision, &recipe, tiles) {
            Ok(mid) => {
                return Ok(Rebased {
                    recipe,
                    mid,
                    dropped,
                    filled,
                });
            }
            Err(PlanError::Illegal { operation, what }) => (operation, what),
            Err(error) => return Err(error),
        };
        let replaced = replace(&mut recipe, planner, &operation);
        if replaced.is_empty() {
            return Err(PlanError::Illegal { operation, what });
        }
        for name in replaced {
            dropped.push((name.clone(), what.clone()));
            filled.push(name);
        }
    }
}

/// Gives the decisions of `operation` back to the planner; names those that this changes. A cast
/// of the planner's that another product's old decision rules out becomes late.
fn replace(recipe: &mut Recipe, planner: &Recipe, operation: &str) -> Vec<String> {
    let mut replaced = Vec::new();
    if let (Some(own), Some(theirs)) = (recipe.gemm.get_mut(operation), planner.gemm.get(operation))
        && own != theirs
    {
        *own = *theirs;
        replaced.push(format!("gemm.{operation}"));
    }
    if let (Some(own), Some(theirs)) = (
        recipe.attention.get_mut(operation),
        planner.attention.get(operation),
    ) && own != theirs
    {
        *own = *theirs;
        replaced.push(format!("attention.{operation}"));
    }
    let site = format!("{operation}.x");
    if let (Some(own), Some(theirs)) = (recipe.cast.get_mut(&site), planner.cast.get(&site)) {
        if own != theirs {
            *own = *theirs;
            replaced.push(format!("cast.{site}"));
        } else if replaced.is_empty() && *own == CastSite::Early {
            *own = CastSite::Late;
            replaced.push(format!("cast.{site}"));
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_the_last_parts_of_one() {
        let names = ["encoder.mlp_down", "encoder.qkv", "map.mlp_down", "mlp"];
        assert_eq!(resolve("mlp_down", names), Ok("encoder.mlp_down"));
        let names = ["a.mlp_down", "encoder.qkv", "map.mlp_down", "mlp"];
        assert_eq!(resolve("qkv", names), Ok("encoder.qkv"));
        assert_eq!(resolve("map.mlp_down", names), Ok("map.mlp_down"));
        assert_eq!(resolve("mlp", names), Ok("mlp"));
        assert_eq!(resolve("down", names), Err(NameError::Unknown));
        assert_eq!(resolve("", names), Err(NameError::Unknown));
        let both = ["a.mlp_down", "map.mlp_down"].map(str::to_owned);
        let ambiguous = NameError::Ambiguous(both.to_vec());
        assert_eq!(resolve("mlp_down", names), Err(ambiguous));
    }
}
