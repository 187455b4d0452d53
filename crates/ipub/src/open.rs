//! Opens the workspace around the current folder, its store and its engine.

use std::path::Path;

use ipub_base::Diagnostic;
use ipub_engine::{Engine, Label, Request, Workspace};
use ipub_store::Store;

use crate::cli::{Changes, TargetArgs};
use crate::files::absolute;
use crate::recipes;
use crate::signals;

/// The workspace around the current folder.
pub fn workspace() -> Result<Workspace, Diagnostic> {
    Workspace::find(Path::new("."))
}

/// The engine of that workspace.
pub fn engine() -> Result<Engine, Diagnostic> {
    let workspace = workspace()?;
    let Some(device) = ipub_stages::device(&workspace.device) else {
        let message = format!("workspace.toml: unknown device `{}`", workspace.device);
        return Err(Diagnostic::usage(message).help("the device is c600"));
    };
    let store = Store::open(&workspace.cache_dir)?;
    signals::writes_in(&store.dir().join("tmp"));
    Engine::new(workspace, store, ipub_stages::stages(), device)
}

/// What the arguments ask to build.
pub fn request(target: &TargetArgs) -> Result<Request, Diagnostic> {
    request_of(target.target.parse()?, &target.changes)
}

/// A request for `label` with changes.
pub fn request_of(label: Label, changes: &Changes) -> Result<Request, Diagnostic> {
    let mut request = Request::new(label);
    request.sets.clone_from(&changes.sets);
    if let Some(file) = &changes.weights {
        request.sets.push(set_file("weights.file", file)?);
    }
    if changes.strict_recipe || !request.sets.is_empty() {
        recipes::follow_settings(&workspace()?, &mut request, changes.strict_recipe);
    }
    Ok(request)
}

/// An override by a file that the user named from the current folder.
pub fn set_file(key: &str, file: &Path) -> Result<String, Diagnostic> {
    let path = absolute(file)?;
    let Some(text) = path.to_str() else {
        let message = format!("{}: the path is not UTF-8", path.display());
        return Err(Diagnostic::usage(message));
    };
    Ok(format!("{key}={text}"))
}
