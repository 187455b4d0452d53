//! `ipub recipe`: the decisions that a target is built by, as a file that people edit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ipub_base::Diagnostic;
use ipub_engine::{Engine, ExplainState, Explanation, InputSource, Label, Request, Rule, Target};
use ipub_stages::{Context, RecipeFile};
use serde_json::json;

use crate::cli::{Recipe, TargetArgs};
use crate::exit::Outcome;
use crate::recipes::{self, Effective};
use crate::{files, open};

pub fn recipe(command: &Recipe) -> Outcome {
    match command {
        Recipe::Show { target } => show(target),
        Recipe::Save {
            target,
            output,
            force,
        } => save(target, output.as_deref(), *force),
        Recipe::Rebase { what, target } => rebase(what, target.as_deref()),
        Recipe::Diff { a, b, json } => diff(a, b, *json),
        Recipe::Check { what, target, json } => check(what, target.as_deref(), *json),
    }
}

fn text_of(label: &Label, effective: &Effective) -> String {
    let remark = format!("Decisions of {label}, by names.");
    RecipeFile::write(&remark, &effective.recipe.recipe, Some(&effective.context))
}

fn tell(effective: &Effective) {
    for change in &effective.changes {
        eprintln!("notice: {change}");
    }
}

fn show(target: &TargetArgs) -> Outcome {
    let engine = open::engine()?;
    let request = open::request(target)?;
    let effective = recipes::effective(&engine, &request)?;
    tell(&effective);
    print!("{}", text_of(&request.label, &effective));
    Ok(())
}

fn save(target: &TargetArgs, output: Option<&Path>, force: bool) -> Outcome {
    let engine = open::engine()?;
    let request = open::request(target)?;
    let (workspace, label) = (engine.workspace(), &request.label);
    let own = format!("recipes/{}.toml", label.name);
    let path = match output {
        Some(path) => files::absolute(path)?,
        None => workspace.root.join(&label.package).join(&own),
    };
    let name = recipes::shown(workspace, &path);
    if path.exists() && !force {
        let message = format!("{name} is there already");
        return Err(Diagnostic::usage(message).help("--force replaces it; -o names another file"));
    }
    let effective = recipes::effective(&engine, &request)?;
    tell(&effective);
    recipes::write(&path, &text_of(label, &effective))?;
    println!("wrote {name}");
    let target = workspace.target(label, &[])?;
    if output.is_none() && recipes::path(workspace, &target).as_ref() != Some(&path) {
        println!("a target with `recipe = \"{own}\"` follows it");
    }
    Ok(())
}

/// A recipe file and a target that it is for.
struct Subject {
    request: Request,
    path: PathBuf,
}

/// `what` is a target with a recipe, or a file; `target` is what a file is for, where targets do not
/// tell.
fn subject(engine: &Engine, what: &str, target: Option<&str>) -> Result<Subject, Diagnostic> {
    let workspace = engine.workspace();
    let given = target.map(str::parse::<Label>).transpose()?;
    if what.starts_with("//") {
        if given.is_some() {
            return Err(Diagnostic::usage(
                "--for goes with a file, not with a target",
            ));
        }
        let label: Label = what.parse()?;
        let found = workspace.target(&label, &[])?;
        let Some(path) = recipes::path(workspace, &found) else {
            let message = format!("{label} has no recipe");
            let help = format!("`ipub recipe save {label}` writes one");
            return Err(Diagnostic::usage(message).help(help));
        };
        let request = Request::new(label);
        return Ok(Subject { request, path });
    }
    let path = files::absolute(Path::new(what))?;
    let canonical = path.canonicalize();
    let canonical = canonical.map_err(|error| Diagnostic::usage(format!("{what}: {error}")))?;
    let is_same = |target: &Target| {
        let own = recipes::path(workspace, target)?.canonicalize().ok()?;
        (own == canonical).then(|| target.label.clone())
    };
    let users: Vec<Label> = workspace.targets()?.iter().filter_map(is_same).collect();
    let label = match (given, &users[..]) {
        (Some(label), _) => label,
        (None, [label]) => label.clone(),
        (None, users) => {
            let names: Vec<_> = users.iter().map(Label::to_string).collect();
            let message = match names.is_empty() {
                true => format!("no target uses {what}"),
                false => format!("{what} is used by {}", names.join(", ")),
            };
            return Err(Diagnostic::usage(message).help("say which one by --for TARGET"));
        }
    };
    let mut request = Request::new(label.clone());
    if !users.contains(&label) {
        request.sets.push(open::set_file("recipe", &canonical)?);
    }
    let path = canonical;
    Ok(Subject { request, path })
}

fn rebase(what: &str, target: Option<&str>) -> Outcome {
    let engine = open::engine()?;
    let Subject { mut request, path } = subject(&engine, what, target)?;
    let workspace = engine.workspace();
    let file = recipes::read(workspace, &path)?;
    // Without a context every decision is judged anew.
    let bare = RecipeFile::write("", &file.recipe, None);
    let folder =
        tempfile::tempdir().map_err(|error| files::unwritable(&std::env::temp_dir(), &error))?;
    let copy = folder.path().join("recipe.toml");
    files::write(&copy, bare.as_bytes())?;
    request.sets.push(open::set_file("recipe", &copy)?);
    request.sets.push("recipe_mismatch=rebase".to_owned());
    let effective = recipes::effective(&engine, &request)?;
    let text = file.rewrite(&effective.recipe.recipe, &effective.context);
    // The first tells of the copy.
    for change in effective.changes.iter().skip(1) {
        println!("{change}");
    }
    for (name, before, after) in changes(
        &context_values(file.context.as_ref()),
        &context_values(Some(&effective.context)),
    ) {
        println!("{name}: {} -> {}", short(before), short(after));
    }
    let name = recipes::shown(workspace, &path);
    let now = files::read(&path)?;
    if now == text.as_bytes() {
        println!("{name} is as it should be");
        return Ok(());
    }
    recipes::write(&path, &text)?;
    println!("wrote {name}");
    Ok(())
}

fn short(digest: Option<String>) -> String {
    digest.map_or("(none)".to_owned(), |digest| digest[..12].to_owned())
}

fn context_values(context: Option<&Context>) -> Values {
    let mut values = BTreeMap::new();
    let Some(context) = context else {
        return values;
    };
    for (name, digest) in [
        ("graph", context.graph),
        ("target", context.target),
        ("policy", context.policy),
    ] {
        values.insert(format!("context.{name}"), digest.hex());
    }
    for (name, digests) in [
        ("contracts", &context.contracts),
        ("objects", &context.objects),
    ] {
        for (family, digest) in digests {
            values.insert(format!("context.{name}.{family}"), digest.hex());
        }
    }
    values
}

/// Texts by dotted path.
type Values = BTreeMap<String, String>;
type Difference = (String, Option<String>, Option<String>);

fn changes(a: &Values, b: &Values) -> Vec<Difference> {
    let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let all = names.into_iter();
    let all = all.map(|name| (name.clone(), a.get(name).cloned(), b.get(name).cloned()));
    all.filter(|(_, a, b)| a != b).collect()
}

/// Decisions by path, and context if there is one, of a file or a target.
fn loaded(engine: &Engine, what: &str) -> Result<(Values, Values), Diagnostic> {
    let (recipe, context) = match what.starts_with("//") {
        true => {
            let effective = recipes::effective(engine, &Request::new(what.parse()?))?;
            tell(&effective);
            (effective.recipe.recipe, Some(effective.context))
        }
        false => {
            let path = files::absolute(Path::new(what))?;
            let file = recipes::read(engine.workspace(), &path)?;
            (file.recipe, file.context)
        }
    };
    Ok((recipe.values(), context_values(context.as_ref())))
}

fn diff(a: &str, b: &str, json: bool) -> Outcome {
    let engine = open::engine()?;
    let (own, own_context) = loaded(&engine, a)?;
    let (other, other_context) = loaded(&engine, b)?;
    let mut found = changes(&own, &other);
    let decisions = found.len();
    // A recipe without context differs from another in its decisions alone.
    if !own_context.is_empty() && !other_context.is_empty() {
        found.extend(changes(&own_context, &other_context));
    }
    if json {
        let changes: Vec<_> = found
            .iter()
            .map(|(name, a, b)| json!({ "name": name, "a": a, "b": b }))
            .collect();
        println!("{}", json!({ "a": a, "b": b, "changes": changes }));
        return Ok(());
    }
    if found.is_empty() {
        println!("no difference");
    }
    let width = found.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    for (index, (name, a, b)) in found.into_iter().enumerate() {
        let side = |value: Option<String>| match value {
            Some(digest) if index >= decisions => digest[..12].to_owned(),
            Some(value) => value,
            None => "(none)".to_owned(),
        };
        println!("{name:<width$}  {} -> {}", side(a), side(b));
    }
    Ok(())
}

fn check(what: &str, target: Option<&str>, json: bool) -> Outcome {
    let engine = open::engine()?;
    let Subject { request, path } = subject(&engine, what, target)?;
    let workspace = engine.workspace();
    let stages = forecast(&engine, &request)?;
    let file = recipes::read(workspace, &path)?;
    let build = recipes::built(&engine, &request, &["lower", "kernel"])?;
    let around = recipes::surroundings(&engine, &request, &build)?;
    around.check(&file).map_err(recipes::refuse)?;
    let (name, label) = (recipes::shown(workspace, &path), &request.label);
    if json {
        let stages: Vec<_> = stages
            .iter()
            .map(|(stage, state, why)| json!({ "stage": stage, "state": state, "why": why }))
            .collect();
        let document = json!({ "file": name, "target": label, "valid": true, "stages": stages });
        println!("{document}");
        return Ok(());
    }
    println!("{name}: complete and legal for {label}");
    for (stage, state, why) in stages {
        println!("  {}", format!("{stage:<10} {state} {why}").trim_end());
    }
    Ok(())
}

/// What a build would do with each stage, told from keys alone: the stage, `hit` or `would run`, why.
fn forecast(
    engine: &Engine,
    request: &Request,
) -> Result<Vec<(String, &'static str, String)>, Diagnostic> {
    let target = engine.workspace().target(&request.label, &request.sets)?;
    let mut found: Vec<(String, &'static str, String)> = Vec::new();
    for rule in ordered(engine, &target) {
        let explanation = engine.explain(&request.label, &request.sets, &rule.name)?;
        let (state, why) = match explanation.state {
            ExplainState::UpToDate | ExplainState::WillHit => ("hit", String::new()),
            ExplainState::FailedBefore => ("failed before", "with the same key".to_owned()),
            ExplainState::Waits => {
                let open = |maker: &&str| {
                    found
                        .iter()
                        .any(|(name, state, _)| name == maker && *state != "hit")
                };
                let makers: BTreeSet<&str> = makers(rule).filter(open).collect();
                let makers: Vec<&str> = makers.into_iter().collect();
                (
                    "would run",
                    format!("if {} output changes", makers.join(" or ")),
                )
            }
            _ => ("would run", because(&explanation)),
        };
        found.push((rule.name.clone(), state, why));
    }
    Ok(found)
}

fn because(explanation: &Explanation) -> String {
    let paths: Vec<_> = explanation
        .changes
        .iter()
        .map(|change| change.path.as_str())
        .collect();
    match (explanation.state, paths.is_empty()) {
        (ExplainState::WillRun, false) => format!("because of {}", paths.join(", ")),
        (ExplainState::OutputsGone, _) => "because its outputs are gone".to_owned(),
        _ => String::new(),
    }
}

fn makers(rule: &Rule) -> impl Iterator<Item = &str> {
    rule.inputs.iter().filter_map(|input| match &input.source {
        InputSource::Rule { rule, .. } => Some(rule.as_str()),
        _ => None,
    })
}

/// The goal rules of a target, each after those that it reads from.
fn ordered<'a>(engine: &'a Engine, target: &Target) -> Vec<&'a Rule> {
    let rules = engine.workspace().rules.values();
    let mut open: Vec<&Rule> = rules
        .filter(|rule| rule.goal && rule.applies_to(&target.kind))
        .collect();
    let mut order: Vec<&Rule> = Vec::new();
    while !open.is_empty() {
        let is_free = |rule: &&Rule| !makers(rule).any(|name| open.iter().any(|o| o.name == name));
        let (free, rest): (Vec<&Rule>, Vec<&Rule>) = open.iter().copied().partition(is_free);
        if free.is_empty() {
            break;
        }
        order.extend(free);
        open = rest;
    }
    order
}
