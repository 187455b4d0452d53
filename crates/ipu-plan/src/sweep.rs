//! Closed-form sweep: the legal grids of every operation of a graph, ranked.
//!
//! Input: graph, precision, tiles. Output: for each operation its grids with closed-form cycles and
//! bytes; recipes that stay within a limit of bytes.
//! Invariants: deterministic; nothing is picked by the name of a model.
//! Not here: what a recipe costs in full (`price`), the search around it (`search`).

use ipu_ir::graph::{Graph, OpKind, ValueDef, ValueId};

use crate::build::PlanError;
use crate::build::casts::cast_reader;
use crate::build::columns::extents;
use crate::cost::{AttentionGrids, GemmShape, PricedGemm, PricedGrid, gemm_plans};
use crate::policy::{AttentionFormats, Precision};
use crate::recipe::{CastSite, Recipe};

/// What an operation can choose from.
pub enum Choices {
    Gemm {
        /// Where the left operand may be cast, the better first, with the grids of each, cheapest
        /// first; for F16 operands one entry.
        sites: Vec<(CastSite, Vec<PricedGemm>)>,
        /// The cast site of the product that reads the result, and the grids for an early cast
        /// there.
        reader: Option<(String, Vec<PricedGemm>)>,
        is_cast: bool,
    },
    Attention {
        grids: AttentionGrids,
        /// Cast sites that are to be decided: queries and keys, if they are F143.
        casts: &'static [&'static str],
    },
}

/// The operations that have a choice, in program order.
pub type Sweep = Vec<(String, Choices)>;

/// All legal grids.
pub fn sweep(graph: &Graph, precision: &Precision, tiles: u32) -> Result<Sweep, PlanError> {
    let extents = extents(graph, precision)?;
    let mut found = Vec::new();
    for op in &graph.ops {
        let choices = match &op.kind {
            OpKind::Gemm { x, .. } => {
                let format = precision.gemm(&op.name);
                let shape = |site, column_grain| GemmShape {
                    rows: graph.rows(op.results[0]),
                    columns: extents[op.results[0].0 as usize].size(),
                    inner: extents[x.0 as usize].size(),
                    format,
                    site,
                    column_grain,
                };
                let sites = match (format.is_f143(), from_rows(graph, *x)) {
                    (false, _) => vec![CastSite::Late],
                    (true, true) => vec![CastSite::Early, CastSite::Late],
                    (true, false) => vec![CastSite::Late, CastSite::Early],
                };
                let reader = cast_reader(graph, precision, op.results[0]);
                let reader = reader.filter(|_| extents[op.results[0].0 as usize].size() % 32 == 0);
                let first = sites[0];
                let plans = |site| (site, gemm_plans(shape(site, 16), tiles));
                Choices::Gemm {
                    sites: sites.into_iter().map(plans).collect(),
                    reader: reader
                        .map(|name| (format!("{name}.x"), gemm_plans(shape(first, 32), tiles))),
                    is_cast: format.is_f143(),
                }
            }
            OpKind::Attention { q, k, .. } => {
                let shape = &graph.value(*q).shape;
                let extents = [shape[0], shape[1], graph.rows(*k), shape[2]];
                let formats = precision.attention(&op.name);
                Choices::Attention {
                    grids: AttentionGrids::new(extents, formats, tiles),
                    casts: attention_casts(formats),
                }
            }
            _ => continue,
        };
        found.push((op.name.clone(), choices));
    }
    Ok(found)
}

/// Operands of an attention whose cast site is decided; probabilities and values are cast where
/// they are made.
pub(crate) fn attention_casts(formats: AttentionFormats) -> &'static [&'static str] {
    if formats.qk.is_f143() {
        &["q", "k"]
    } else {
        &[]
    }
}

/// Whether a value stands on row owners: there a cast before the copies is always legal.
fn from_rows(graph: &Graph, value: ValueId) -> bool {
    match graph.value(value).def {
        ValueDef::Result(op) => matches!(
            graph.op(op).kind,
            OpKind::LayerNorm { .. } | OpKind::Add { .. } | OpKind::Repeat { .. }
        ),
        _ => true,
    }
}

/// The cheapest decisions whose operands stay within `limit` bytes of a tile, or near it; `None`
/// where an operation has no legal grid.
pub fn recipe(sweep: &Sweep, limit: u32) -> Option<Recipe> {
    let mut recipe = Recipe::default();
    for (name, choices) in sweep {
        match choices {
            Choices::Gemm { sites, is_cast, .. } => {
                let (site, plans) = sites.first()?;
                let best = plans.iter().min_by_key(|plan| {
                    let excess = plan.bytes.saturating_sub(limit);
                    (excess, plan.cycles, plan.plan.grid)
                })?;
                recipe.gemm.insert(name.clone(), best.plan);
                if *is_cast {
                    recipe.cast.insert(format!("{name}.x"), *site);
                }
            }
            Choices::Attention { grids, casts } => {
                let best = |grids: &[PricedGrid]| {
                    let rank = |grid: &&PricedGrid| (grid.bytes.saturating_sub(limit), **grid);
                    grids.iter().min_by_key(rank).map(|best| best.grid)
                };
                let plan = grids.plan(best(&grids.qk)?, best(&grids.pv)?);
                recipe.attention.insert(name.clone(), plan);
                for role in *casts {
                    recipe.cast.insert(format!("{name}.{role}"), CastSite::Late);
                }
            }
        }
    }
    Some(recipe)
}
