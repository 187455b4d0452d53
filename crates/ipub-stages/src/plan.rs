//! Stage `plan`: graph to candidates.
//!
//! Inputs: `graph`, `families` (contracts that a recipe's context names); `contracts`, `objects` of
//! the kernels, which are priced by simulation; `recipe` (TOML, optional): the only candidate,
//! instead of a search.
//! Parameters: `precision.*`, `attention.*`, `map.*`, `planner.*`; `gemm.*` and `cast.*` override
//! decisions of every recipe; `recipe_mismatch`: whether a recipe of another context is refused, or
//! rebased. Outputs: `candidates` (postcard), `recipe` (TOML of the first), `trail` (JSON).
//! Invariants: outputs hold decisions only, so a recipe's context, remarks and form are not in them;
//! what was dropped from a recipe is in the note `notices`.

use std::collections::BTreeMap;

use ipu_emit::object::Object;
use ipu_ir::contract::Contract;
use ipu_plan::bounds::{Bounds, bounds};
use ipu_plan::{Candidate, Recipe, build, candidates, rebase, result_for};
use ipub_base::KeyWriter;
use ipub_engine::{FailureKind, Params, StageFailure, StageInputs, StageOutputs, Value};
use serde::Serialize;

use crate::candidates::PlannedCandidate;
use crate::codec::{from_json, pack, to_json, unpack};
use crate::context::{Surroundings, refuse};
use crate::kernel_cost::SimulatedCosts;
use crate::names::full_key;
use crate::recipe::RecipeFile;
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("plan", run);

#[derive(Serialize)]
struct TrailEntry {
    estimate_cycles: u64,
    bounds: Bounds,
    recipe: Recipe,
}

/// Candidates, and what the user should know of them.
struct Found {
    candidates: Vec<Candidate>,
    notices: Vec<String>,
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let (device, params) = (&inputs.target().name, inputs.params());
    let (graph, families) = (inputs.input("graph")?, inputs.input("families")?);
    let around = Surroundings::read(device, &graph, &families, params)?;
    let mut found = match given_recipe(inputs)? {
        None => Found {
            candidates: planned(inputs, &around)?,
            notices: Vec::new(),
        },
        Some(file) => {
            let context = file.context.as_ref();
            let is_current = context.is_some_and(|context| around.mismatches(context).is_empty());
            match params.text("recipe_mismatch")? {
                "rebase" if !is_current => rebased(inputs, &around, &file)?,
                _ => followed(&around, file)?,
            }
        }
    };
    override_decisions(&mut found, &around, params)?;
    if found.candidates.is_empty() {
        return Err(no_grid(&around));
    }
    outputs(found)
}

fn no_grid(around: &Surroundings) -> StageFailure {
    let message = format!(
        "no grid of every product fits {} tiles within the operand limits {:?} bytes",
        around.policy.tiles, around.policy.operand_limits
    );
    let mut failure = StageFailure::new(FailureKind::Infeasible, message);
    failure.help = Some("raise `planner.tiles` or `planner.operand_limits`".to_owned());
    failure
}

fn outputs(found: Found) -> Result<StageOutputs, StageFailure> {
    let mut planned = Vec::new();
    let mut trail = Vec::new();
    for candidate in found.candidates {
        planned.push(PlannedCandidate {
            recipe: candidate.recipe.to_string(),
            mid: candidate.mid,
        });
        trail.push(TrailEntry {
            estimate_cycles: candidate.estimate,
            bounds: candidate.bounds,
            recipe: candidate.recipe,
        });
    }
    let outputs = StageOutputs::new()
        .with("recipe", planned[0].recipe.clone())
        .with("candidates", pack("candidates", &planned)?)
        .with("trail", to_json("trail", &trail)?)
        .note("candidates", planned.len());
    // The estimate of a given recipe is not known.
    let outputs = match trail[0].estimate_cycles {
        0 => outputs,
        cycles => outputs.note("estimate_cycles", cycles),
    };
    Ok(match found.notices.is_empty() {
        true => outputs,
        false => outputs.note("notices", found.notices),
    })
}

/// The planner's candidates at simulated kernel costs. A search is remembered whole: overrides of
/// single decisions begin from its result.
fn planned(
    inputs: &StageInputs<'_>,
    around: &Surroundings,
) -> Result<Vec<Candidate>, StageFailure> {
    const MEMO: &str = "candidates.v1";
    let (graph, precision, policy) = (&around.graph, &around.precision, &around.policy);
    let contracts: BTreeMap<String, Contract> =
        from_json("contracts", &inputs.input("contracts")?)?;
    let objects = inputs.input("objects")?;
    let mut key = KeyWriter::digest_only(MEMO);
    key.bytes("graph", &pack("graph", graph)?);
    key.bytes("precision", &pack("precision", precision)?);
    key.bytes("policy", &pack("policy", policy)?);
    key.bytes("contracts", &to_json("contracts", &contracts)?);
    key.bytes("objects", &objects);
    let key = key.finish().digest;
    let known = inputs.memo().get(MEMO, key);
    if let Some(found) = known.and_then(|bytes| unpack(MEMO, &bytes).ok()) {
        return Ok(found);
    }
    let objects: BTreeMap<String, Object> = unpack("objects", &objects)?;
    let costs = SimulatedCosts::new(&contracts, &objects, inputs.memo());
    let found = candidates(graph, precision, policy, &costs).map_err(refuse)?;
    inputs.memo().put(MEMO, key, pack(MEMO, &found)?);
    Ok(found)
}

fn given_recipe(inputs: &StageInputs<'_>) -> Result<Option<RecipeFile>, StageFailure> {
    let Some(bytes) = inputs.optional("recipe")? else {
        return Ok(None);
    };
    let file = inputs.files("recipe")?.first();
    let name = file.map_or("recipe", |file| file.name.as_str());
    let text = String::from_utf8(bytes)
        .map_err(|_| StageFailure::usage(format!("{name}: the text is not UTF-8")))?;
    RecipeFile::parse(name, &text).map(Some)
}

/// The candidate that a recipe of this context decides.
fn followed(around: &Surroundings, file: RecipeFile) -> Result<Found, StageFailure> {
    let mid = around.check(&file)?;
    let candidate = Candidate {
        bounds: bounds(&mid),
        recipe: file.recipe,
        mid,
        estimate: 0,
    };
    Ok(Found {
        candidates: vec![candidate],
        notices: Vec::new(),
    })
}

/// What still applies of a recipe of another context, completed by each of the planner's.
fn rebased(
    inputs: &StageInputs<'_>,
    around: &Surroundings,
    file: &RecipeFile,
) -> Result<Found, StageFailure> {
    let (graph, precision) = (&around.graph, &around.precision);
    let mut found = Found {
        candidates: Vec::new(),
        notices: Vec::new(),
    };
    for planner in planned(inputs, around)? {
        let tiles = around.policy.tiles;
        let after = rebase(graph, precision, tiles, &file.recipe, &planner.recipe);
        let after = after.map_err(refuse)?;
        if found.candidates.is_empty() {
            let parts = match &file.context {
                Some(context) => around.mismatches(context),
                None => Vec::new(),
            };
            let parts: Vec<_> = parts.into_iter().map(|one| one.component).collect();
            found.notices.push(match parts.is_empty() {
                true => "it has no [context] and was rebased".to_owned(),
                false => format!("rebased to another {}", parts.join(", ")),
            });
            for (name, why) in &after.dropped {
                found.notices.push(format!("dropped {name}: {why}"));
            }
            for name in &after.filled {
                let value = value_of(&after.recipe, name);
                found.notices.push(format!("filled in {name} = {value}"));
            }
        }
        if found
            .candidates
            .iter()
            .all(|other| other.recipe != after.recipe)
        {
            found.candidates.push(Candidate {
                bounds: bounds(&after.mid),
                recipe: after.recipe,
                mid: after.mid,
                estimate: planner.estimate,
            });
        }
    }
    Ok(found)
}

/// The line of the decision `gemm.NAME`, `attention.NAME` or `cast.NAME`.
fn value_of(recipe: &Recipe, name: &str) -> String {
    let (section, name) = name.split_once('.').unwrap_or_default();
    let lines = recipe.lines().into_iter().find(|(own, _)| *own == section);
    let line = lines.and_then(|(_, mut lines)| lines.remove(name));
    line.unwrap_or_default()
}

/// Applies `gemm.NAME.grid`, `gemm.NAME.result` and `cast.NAME.OPERAND` to every candidate.
fn override_decisions(
    found: &mut Found,
    around: &Surroundings,
    params: &Params,
) -> Result<(), StageFailure> {
    let overrides: Vec<(&str, &str)> = params
        .iter()
        .filter(|(key, _)| key.starts_with("gemm.") || key.starts_with("cast."))
        .filter_map(|(key, value)| match value {
            Value::Text(text) => Some((key, text.as_str())),
            _ => None,
        })
        .collect();
    if overrides.is_empty() {
        return Ok(());
    }
    let mut changed: Vec<Candidate> = Vec::new();
    for before in std::mem::take(&mut found.candidates) {
        let recipe = overridden(&before.recipe, &overrides, around)?;
        if recipe == before.recipe {
            changed.push(before);
        } else if !changed.iter().any(|other| other.recipe == recipe) {
            let tiles = around.policy.tiles;
            let mid = build(&around.graph, &around.precision, &recipe, tiles).map_err(refuse)?;
            changed.push(Candidate {
                bounds: bounds(&mid),
                recipe,
                mid,
                estimate: before.estimate,
            });
        }
    }
    found.candidates = changed;
    Ok(())
}

fn overridden(
    before: &Recipe,
    overrides: &[(&str, &str)],
    around: &Surroundings,
) -> Result<Recipe, StageFailure> {
    let mut recipe = before.clone();
    let mut set: BTreeMap<String, &str> = BTreeMap::new();
    for (key, text) in overrides {
        let full = full_key(&recipe, key)?;
        let wrong = |why: String| StageFailure::usage(format!("`{key}`: {why}"));
        if let Some(site) = full.strip_prefix("cast.") {
            recipe
                .cast
                .insert(site.to_owned(), text.parse().map_err(wrong)?);
        } else {
            set_product(&mut recipe, &full, text).map_err(wrong)?;
        }
        if let Some(other) = set.insert(full, key) {
            return Err(wrong(format!("`{other}` sets the same")));
        }
    }
    for full in set.keys() {
        let product = full.strip_prefix("gemm.").unwrap_or_default();
        if let Some(operation) = product.strip_suffix(".grid")
            && recipe.gemm.get(operation) != before.gemm.get(operation)
            && !set.contains_key(&format!("gemm.{operation}.result"))
        {
            follow_grid(&mut recipe, operation, around)?;
        }
    }
    Ok(recipe)
}

/// Sets `gemm.NAME.grid` or `gemm.NAME.result`.
fn set_product(recipe: &mut Recipe, full: &str, text: &str) -> Result<(), String> {
    let name = full.strip_prefix("gemm.").unwrap_or(full);
    let (operation, part) = name.rsplit_once('.').unwrap_or((name, ""));
    match (recipe.gemm.get_mut(operation), part) {
        (Some(plan), "grid") => plan.grid = text.parse()?,
        (Some(plan), "result") => plan.result = text.to_owned().try_into()?,
        _ => return Err("a product has `grid` and `result`".to_owned()),
    }
    Ok(())
}

/// A grid that is set without a result grid gets the planner's.
fn follow_grid(
    recipe: &mut Recipe,
    operation: &str,
    around: &Surroundings,
) -> Result<(), StageFailure> {
    let Some(grid) = recipe.gemm.get(operation).map(|plan| plan.grid) else {
        return Ok(());
    };
    let result = result_for(&around.graph, &around.precision, recipe, (operation, grid));
    if let (Some(plan), Some(result)) = (recipe.gemm.get_mut(operation), result.map_err(refuse)?) {
        plan.result = result;
    }
    Ok(())
}
