//! Stage `plan`: graph to candidates.
//!
//! Inputs: `graph`; `contracts`, `objects` of the kernels, which are priced by simulation; `recipe`
//! (TOML, optional): the only candidate, instead of a sweep.
//! Parameters: `precision.*`, `attention.*`, `map.*`, `planner.*`; `gemm.*` and `cast.*` override
//! decisions of every recipe. Outputs: `candidates` (postcard), `recipe` (TOML of the first),
//! `trail` (JSON).

use std::collections::BTreeMap;

use ipu_emit::object::Object;
use ipu_ir::contract::Contract;
use ipu_ir::graph::Graph;
use ipu_plan::bounds::{Bounds, bounds};
use ipu_plan::{
    AttentionFormats, Candidate, Format, PlanError, PlannerPolicy, Precision, Recipe, build,
    candidates,
};
use ipub_base::{KeyWriter, Location};
use ipub_engine::{FailureKind, Params, StageFailure, StageInputs, StageOutputs, Value};
use serde::Serialize;

use crate::candidates::PlannedCandidate;
use crate::codec::{from_json, pack, to_json, unpack};
use crate::kernel_cost::SimulatedCosts;
use crate::precision::Formats;
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("plan", run);

#[derive(Serialize)]
struct TrailEntry {
    estimate_cycles: u64,
    bounds: Bounds,
    recipe: Recipe,
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let graph: Graph = unpack("graph", &inputs.input("graph")?)?;
    let params = inputs.params();
    let precision = precision(&Formats::read(params)?);
    let policy: PlannerPolicy = params.section("planner")?;
    if policy.tiles == 0 || policy.tiles > ipu_target::TILES {
        let (tiles, most) = (policy.tiles, ipu_target::TILES);
        let message = format!("`planner.tiles` is {tiles}: it must be between 1 and {most}");
        return Err(StageFailure::usage(message));
    }
    let mut found = match given_recipe(inputs)? {
        Some(recipe) => vec![candidate(&graph, &precision, recipe, &policy)?],
        None => search(inputs, &graph, &precision, &policy)?,
    };
    override_decisions(&mut found, &graph, &precision, &policy, params)?;
    if found.is_empty() {
        let message = format!(
            "no grid of every product fits {} tiles within the operand limits {:?} bytes",
            policy.tiles, policy.operand_limits
        );
        let mut failure = StageFailure::new(FailureKind::Infeasible, message);
        failure.help = Some("raise `planner.tiles` or `planner.operand_limits`".to_owned());
        return Err(failure);
    }
    outputs(found)
}

/// The planner's candidates at simulated kernel costs. A search is remembered whole: overrides of
/// single decisions begin from its result.
fn search(
    inputs: &StageInputs<'_>,
    graph: &Graph,
    precision: &Precision,
    policy: &PlannerPolicy,
) -> Result<Vec<Candidate>, StageFailure> {
    const MEMO: &str = "candidates.v1";
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

fn outputs(found: Vec<Candidate>) -> Result<StageOutputs, StageFailure> {
    let mut planned = Vec::new();
    let mut trail = Vec::new();
    for candidate in found {
        planned.push(PlannedCandidate {
            recipe: recipe_text(&candidate.recipe)?,
            mid: candidate.mid,
        });
        trail.push(TrailEntry {
            estimate_cycles: candidate.estimate,
            bounds: candidate.bounds,
            recipe: candidate.recipe,
        });
    }
    Ok(StageOutputs::new()
        .with("recipe", planned[0].recipe.clone())
        .with("candidates", pack("candidates", &planned)?)
        .with("trail", to_json("trail", &trail)?)
        .note("candidates", planned.len())
        .note("estimate_cycles", trail[0].estimate_cycles))
}

fn recipe_text(recipe: &Recipe) -> Result<String, StageFailure> {
    toml::to_string(recipe)
        .map_err(|error| StageFailure::bug(format!("the recipe cannot be written: {error}")))
}

fn precision(formats: &Formats) -> Precision {
    let format = |scale: Option<i8>| scale.map_or(Format::F16, Format::F143);
    let attention = |qk, pv| AttentionFormats {
        qk: format(qk),
        pv: format(pv),
    };
    Precision {
        embed: format(formats.embed),
        dense: format(formats.dense),
        attention: attention(formats.attention_qk, formats.attention_pv),
        map: attention(formats.map_qk, formats.map_pv),
    }
}

fn given_recipe(inputs: &StageInputs<'_>) -> Result<Option<Recipe>, StageFailure> {
    let Some(bytes) = inputs.optional("recipe")? else {
        return Ok(None);
    };
    let file = inputs.files("recipe")?.first();
    let file = file.map_or("recipe", |file| file.name.as_str());
    let text = String::from_utf8(bytes)
        .map_err(|_| StageFailure::usage(format!("{file}: the text is not UTF-8")))?;
    toml::from_str(&text).map(Some).map_err(|error| {
        let mut failure = StageFailure::usage(error.message());
        let offset = error.span().map_or(0, |span| span.start);
        failure.location = Some(Location::of_offset(file, &text, offset));
        failure
    })
}

/// A candidate that a recipe decides alone. Its estimate is not known.
fn candidate(
    graph: &Graph,
    precision: &Precision,
    recipe: Recipe,
    policy: &PlannerPolicy,
) -> Result<Candidate, StageFailure> {
    let mid = build(graph, precision, &recipe, policy.tiles).map_err(refuse)?;
    let bounds = bounds(&mid);
    Ok(Candidate {
        recipe,
        mid,
        estimate: 0,
        bounds,
    })
}

/// Applies `gemm.NAME.grid`, `gemm.NAME.result` and `cast.NAME.OPERAND` to every candidate.
fn override_decisions(
    found: &mut Vec<Candidate>,
    graph: &Graph,
    precision: &Precision,
    policy: &PlannerPolicy,
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
    for before in found.drain(..) {
        let mut recipe = before.recipe.clone();
        for (name, text) in &grids {
            set_grid(&mut recipe, name, text)?;
        }
        for (name, text) in &casts {
            set_cast(&mut recipe, name, text)?;
        }
        if recipe == before.recipe {
            changed.push(before);
        } else if !changed.iter().any(|other| other.recipe == recipe) {
            let after = candidate(graph, precision, recipe, policy)?;
            changed.push(Candidate {
                estimate: before.estimate,
                ..after
            });
        }
    }
    *found = changed;
    Ok(())
}

fn set_grid(recipe: &mut Recipe, name: &str, text: &str) -> Result<(), StageFailure> {
    let key = format!("gemm.{name}");
    let (operation, part) = name.rsplit_once('.').unwrap_or((name, ""));
    let names: Vec<String> = recipe.gemm.keys().cloned().collect();
    let Some(plan) = recipe.gemm.get_mut(operation) else {
        return Err(unknown(&key, &names, ".grid"));
    };
    let wrong = |why: String| StageFailure::usage(format!("`{key}`: {why}"));
    match part {
        "grid" => plan.grid = text.parse().map_err(wrong)?,
        "result" => plan.result = text.to_owned().try_into().map_err(wrong)?,
        _ => return Err(wrong("a product has `grid` and `result`".to_owned())),
    }
    Ok(())
}

fn set_cast(recipe: &mut Recipe, name: &str, text: &str) -> Result<(), StageFailure> {
    use ipu_plan::CastSite::{Early, Late};
    let key = format!("cast.{name}");
    let names: Vec<String> = recipe.cast.keys().cloned().collect();
    let Some(site) = recipe.cast.get_mut(name) else {
        return Err(unknown(&key, &names, ""));
    };
    *site = match text {
        "early" => Early,
        "late" => Late,
        _ => {
            let message = format!("`{key}` is `{text}`: it must be early or late");
            return Err(StageFailure::usage(message));
        }
    };
    Ok(())
}

fn unknown(key: &str, names: &[String], suffix: &str) -> StageFailure {
    let mut failure = StageFailure::usage(format!("`{key}` names no decision of the recipe"));
    let known: Vec<_> = names.iter().map(|name| format!("{name}{suffix}")).collect();
    failure.help = Some(format!("there are {}", known.join(", ")));
    failure
}

fn refuse(error: PlanError) -> StageFailure {
    match error {
        PlanError::Mid(_) => StageFailure::bug(error.to_string()),
        _ => StageFailure::usage(error.to_string()),
    }
}
