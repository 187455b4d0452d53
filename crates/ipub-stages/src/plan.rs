//! Stage `plan`: graph to candidates.
//!
//! Inputs: `graph`, `families` (contracts that a recipe's context names); `recipe` (TOML, optional):
//! the only candidate, instead of a sweep.
//! Parameters: `precision.*`, `attention.*`, `map.*`, `planner.*`; `gemm.*` and `cast.*` override
//! decisions of every recipe; `recipe_mismatch`: whether a recipe of another context is refused, or
//! rebased. Outputs: `candidates` (postcard), `recipe` (TOML of the first), `trail` (JSON).
//! Invariants: outputs hold decisions only, so a recipe's context, remarks and form are not in them;
//! what was dropped from a recipe is in the note `notices`.

use std::collections::BTreeMap;

use ipu_plan::bounds::{Bounds, bounds};
use ipu_plan::{Candidate, NameError, Recipe, build, candidates, rebase, resolve, result_for};
use ipub_engine::{FailureKind, Params, StageFailure, StageInputs, StageOutputs, Value, nearest};
use serde::Serialize;

use crate::candidates::PlannedCandidate;
use crate::codec::{pack, to_json};
use crate::context::{Surroundings, refuse};
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
            candidates: planned(&around)?,
            notices: Vec::new(),
        },
        Some(file) => {
            let context = file.context.as_ref();
            let is_current = context.is_some_and(|context| around.mismatches(context).is_empty());
            match params.text("recipe_mismatch")? {
                "rebase" if !is_current => rebased(&around, &file)?,
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

/// What the planner finds without a recipe.
fn planned(around: &Surroundings) -> Result<Vec<Candidate>, StageFailure> {
    candidates(&around.graph, &around.precision, &around.policy).map_err(refuse)
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
fn rebased(around: &Surroundings, file: &RecipeFile) -> Result<Found, StageFailure> {
    let (graph, precision) = (&around.graph, &around.precision);
    let mut found = Found {
        candidates: Vec::new(),
        notices: Vec::new(),
    };
    for planner in planned(around)? {
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
                true => format!("{}: it has no [context] and was rebased", file.name),
                false => format!("{}: rebased to another {}", file.name, parts.join(", ")),
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
    let texts = |prefix: &'static str| {
        let below = params.iter().filter_map(move |(key, value)| {
            let name = key.strip_prefix(prefix)?;
            match value {
                Value::Text(text) => Some((name.to_owned(), text.clone())),
                _ => None,
            }
        });
        below.collect::<BTreeMap<_, _>>()
    };
    let (grids, casts) = (texts("gemm."), texts("cast."));
    if grids.is_empty() && casts.is_empty() {
        return Ok(());
    }
    let mut changed: Vec<Candidate> = Vec::new();
    for before in std::mem::take(&mut found.candidates) {
        let mut recipe = before.recipe.clone();
        for (name, text) in &casts {
            set_cast(&mut recipe, name, text)?;
        }
        let mut set = Vec::new();
        for (name, text) in &grids {
            set.push(set_grid(&mut recipe, name, text)?);
        }
        for (operation, _) in set.iter().filter(|(_, part)| part == "grid") {
            if !set.contains(&(operation.clone(), "result".to_owned())) {
                follow_grid(&mut recipe, operation, around)?;
            }
        }
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

/// Sets one part of a product's decision; gives the product and the part.
fn set_grid(recipe: &mut Recipe, name: &str, text: &str) -> Result<(String, String), StageFailure> {
    let key = format!("gemm.{name}");
    let (operation, part) = name.rsplit_once('.').unwrap_or((name, ""));
    let names = recipe.gemm.keys().map(String::as_str);
    let operation = match resolve(operation, names.clone()) {
        Ok(operation) => operation.to_owned(),
        Err(error) => return Err(unknown(&key, operation, names, part, &error)),
    };
    let wrong = |why: String| StageFailure::usage(format!("`{key}`: {why}"));
    if let Some(plan) = recipe.gemm.get_mut(&operation) {
        match part {
            "grid" => plan.grid = text.parse().map_err(wrong)?,
            "result" => plan.result = text.to_owned().try_into().map_err(wrong)?,
            _ => return Err(wrong("a product has `grid` and `result`".to_owned())),
        }
    }
    Ok((operation, part.to_owned()))
}

/// A result grid with more parts than a new grid has partials becomes the planner's for that grid.
fn follow_grid(
    recipe: &mut Recipe,
    operation: &str,
    around: &Surroundings,
) -> Result<(), StageFailure> {
    if let Some(plan) = recipe.gemm.get_mut(operation)
        && plan.result.rows * plan.result.columns > plan.grid.inner
    {
        let result = result_for(&around.graph, &around.precision, operation, plan.grid);
        if let Some(result) = result.map_err(refuse)? {
            plan.result = result;
        }
    }
    Ok(())
}

fn set_cast(recipe: &mut Recipe, name: &str, text: &str) -> Result<(), StageFailure> {
    let key = format!("cast.{name}");
    let names = recipe.cast.keys().map(String::as_str);
    let site = match resolve(name, names.clone()) {
        Ok(site) => site.to_owned(),
        Err(error) => return Err(unknown(&key, name, names, "", &error)),
    };
    let value = text.parse();
    let value = value.map_err(|why| StageFailure::usage(format!("`{key}`: {why}")))?;
    recipe.cast.insert(site, value);
    Ok(())
}

fn unknown<'a>(
    key: &str,
    wanted: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    part: &str,
    error: &NameError,
) -> StageFailure {
    let mut failure = StageFailure::usage(format!("`{key}`: {error}"));
    if *error == NameError::Unknown {
        let whole = |name: &str| match part {
            "" => format!("`{name}`"),
            part => format!("`{name}.{part}`"),
        };
        let near = nearest(wanted, names.clone());
        let help = match near.is_empty() {
            true => (
                "there are ",
                names.map(whole).collect::<Vec<_>>().join(", "),
            ),
            false => {
                let near: Vec<_> = near.into_iter().map(whole).collect();
                ("did you mean ", near.join(" or ") + "?")
            }
        };
        failure.help = Some(format!("{}{}", help.0, help.1));
    }
    failure
}
