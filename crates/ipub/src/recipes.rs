//! Recipes of targets: where they are, what surrounds them, which ones are in effect.
//!
//! Input: targets, and what builds of them made. Output: recipes with their context, notices.
//! Not here: what the commands print; what a recipe means (`ipub-stages`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ipub_base::Diagnostic;
use ipub_engine::{
    BuildResult, Engine, InputSource, Params, Request, Rule, StageFailure, Target, Value, Workspace,
};
use ipub_stages::object_file::object_digests;
use ipub_stages::{Context, RecipeFile, Surroundings};

use crate::commands::build::failure;
use crate::files;
use crate::screen::Screen;

const MISMATCH: &str = "recipe_mismatch";

/// The recipe file of a target.
pub fn path(workspace: &Workspace, target: &Target) -> Option<PathBuf> {
    let Value::Text(text) = &target.attributes.get("recipe")?.value else {
        return None;
    };
    Some(match text.strip_prefix("//") {
        Some(rooted) => workspace.root.join(rooted),
        None => workspace.root.join(&target.label.package).join(text),
    })
}

/// How messages name a file of the workspace.
pub fn shown(workspace: &Workspace, path: &Path) -> String {
    let relative = path.strip_prefix(&workspace.root).unwrap_or(path);
    relative.display().to_string()
}

/// With settings that reach the planner, the recipe of the target follows them, unless `strict`.
pub fn follow_settings(workspace: &Workspace, request: &mut Request, strict: bool) {
    let set_keys: Vec<String> = request
        .sets
        .iter()
        .filter_map(|set| Some(set.split_once('=')?.0.trim().to_owned()))
        .collect();
    let Ok(target) = workspace.target(&request.label, &request.sets) else {
        // The build tells what is wrong with it.
        return;
    };
    let has = |key: &str| target.attributes.contains_key(key);
    if !has("recipe") || !has(MISMATCH) || set_keys.iter().any(|key| key == MISMATCH) {
        return;
    }
    let mut read: Vec<&Rule> = workspace.rules.get("plan").into_iter().collect();
    let mut seen = BTreeSet::new();
    let mut reaches = false;
    while let Some(rule) = read.pop() {
        if !seen.insert(&rule.name) {
            continue;
        }
        reaches |= set_keys.iter().any(|key| rule.reads(key));
        for input in &rule.inputs {
            match &input.source {
                InputSource::Rule { rule, .. } => read.extend(workspace.rules.get(rule)),
                InputSource::FileAttr { attribute } => {
                    reaches |= attribute != "recipe" && set_keys.contains(attribute);
                }
                InputSource::Files { .. } => {}
            }
        }
    }
    if strict {
        request.sets.push(format!("{MISMATCH}=refuse"));
    } else if reaches {
        request.sets.push(format!("{MISMATCH}=rebase"));
    }
}

/// What the user should know of the recipe that a build followed.
pub fn notices(engine: &Engine, target: &Target, build: &BuildResult) -> Vec<String> {
    let changes = stage_notices(build);
    if !changes.is_empty() {
        let name = path(engine.workspace(), target).map(|path| shown(engine.workspace(), &path));
        let name = name.unwrap_or_default();
        let changes = changes.into_iter();
        return changes.map(|change| format!("{name}: {change}")).collect();
    }
    let own = || -> Option<Vec<String>> {
        let path = path(engine.workspace(), target)?;
        let name = shown(engine.workspace(), &path);
        let file = RecipeFile::parse(&name, &std::fs::read_to_string(path).ok()?).ok()?;
        let context = file.context?;
        let [families, objects] = kernels(engine, build).ok()?;
        let now = object_digests(&families, &objects).ok()?;
        let changed = context.objects.iter().filter_map(|(family, digest)| {
            (now.get(family) != Some(digest)).then_some(family.as_str())
        });
        let changed: Vec<_> = changed.collect();
        let notice = format!(
            "{name}: kernels of {} changed since it was written; their contracts did not",
            changed.join(", ")
        );
        (!changed.is_empty()).then(|| vec![notice])
    };
    match build.failure() {
        None => own().unwrap_or_default(),
        Some(_) => Vec::new(),
    }
}

/// What `plan` had to change of the recipe.
fn stage_notices(build: &BuildResult) -> Vec<String> {
    let notes = build.stage("plan").map(|stage| &stage.notes);
    let notices = notes.and_then(|notes| notes.get("notices")?.as_array());
    let texts = notices.into_iter().flatten().filter_map(|one| one.as_str());
    texts.map(str::to_owned).collect()
}

fn kernels(engine: &Engine, build: &BuildResult) -> Result<[Vec<u8>; 2], Diagnostic> {
    Ok([
        blob(engine, build, "kernel", "families")?,
        blob(engine, build, "kernel", "objects")?,
    ])
}

/// The bytes of an output that a build made.
pub fn blob(
    engine: &Engine,
    build: &BuildResult,
    rule: &str,
    output: &str,
) -> Result<Vec<u8>, Diagnostic> {
    let made = build.stage(rule).and_then(|stage| stage.output(output));
    let made = made.ok_or_else(|| Diagnostic::bug(format!("{rule} made no {output}")))?;
    Ok(engine.store().get_blob(made.digest)?)
}

/// A stage's failure as the command's own.
pub fn refuse(failure: StageFailure) -> Diagnostic {
    failure.diagnostic()
}

/// Builds until `until`, without results or notices.
pub fn built(
    engine: &Engine,
    request: &Request,
    until: &[&str],
) -> Result<BuildResult, Diagnostic> {
    let mut request = request.clone();
    request.until = until.iter().map(|rule| (*rule).to_owned()).collect();
    request.is_latest = false;
    let screen = Screen::new(false);
    let built = engine.build(&request, &screen);
    screen.take_log();
    let build = built?;
    failure(&build)?;
    Ok(build)
}

/// What the recipe of a target is checked against; `build` made `lower` and `kernel`.
pub fn surroundings(
    engine: &Engine,
    request: &Request,
    build: &BuildResult,
) -> Result<Surroundings, Diagnostic> {
    let workspace = engine.workspace();
    let target = workspace.target(&request.label, &request.sets)?;
    let Some(rule) = workspace.rules.get("plan") else {
        return Err(Diagnostic::usage("this workspace has no rule `plan`"));
    };
    let params = target.attributes.iter().filter(|(key, _)| rule.reads(key));
    let params = params.map(|(key, attribute)| (key.clone(), attribute.value.clone()));
    let graph = blob(engine, build, "lower", "graph")?;
    let families = blob(engine, build, "kernel", "families")?;
    let device = &workspace.device;
    Surroundings::read(device, &graph, &families, &Params::new(params)).map_err(refuse)
}

/// The recipe that a target is built by.
pub struct Effective {
    pub recipe: RecipeFile,
    pub context: Context,
    /// What `plan` had to change of the target's recipe file.
    pub changes: Vec<String>,
}

/// The recipe that a build of `request` follows: that of the first candidate which can be placed.
pub fn effective(engine: &Engine, request: &Request) -> Result<Effective, Diagnostic> {
    let mut build = built(engine, request, &["plan"])?;
    let candidates = build.stage("plan").map(|stage| &stage.notes["candidates"]);
    let rule = match candidates.and_then(|count| count.as_u64()) {
        Some(1) => "plan",
        _ => {
            build = built(engine, request, &["place"])?;
            "place"
        }
    };
    let text = blob(engine, &build, rule, "recipe")?;
    let text = String::from_utf8_lossy(&text);
    let recipe = RecipeFile::parse("recipe", &text).map_err(refuse)?;
    let around = surroundings(engine, request, &build)?;
    let mut context = around.context(&recipe.recipe).map_err(refuse)?;
    let [families, objects] = kernels(engine, &build)?;
    context.objects = object_digests(&families, &objects).map_err(refuse)?;
    let used = &context.contracts;
    context
        .objects
        .retain(|family, _| used.contains_key(family));
    Ok(Effective {
        recipe,
        context,
        changes: stage_notices(&build),
    })
}

/// Reads a recipe file that the user named, or that a target uses.
pub fn read(workspace: &Workspace, path: &Path) -> Result<RecipeFile, Diagnostic> {
    let name = shown(workspace, path);
    let text = String::from_utf8(files::read(path)?)
        .map_err(|_| Diagnostic::usage(format!("{name}: the text is not UTF-8")))?;
    RecipeFile::parse(&name, &text).map_err(refuse)
}

/// Writes a file that is complete or as it was before.
pub fn write(path: &Path, text: &str) -> Result<(), Diagnostic> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    files::write(&temporary, text.as_bytes())?;
    std::fs::rename(&temporary, path).map_err(|error| {
        // What is left of it is useless; the error that matters is the first.
        let _ = std::fs::remove_file(&temporary);
        files::unwritable(path, &error)
    })
}
