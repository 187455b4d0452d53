//! `ipub clean`: removes what builds wrote into `artifacts/`. The store is never touched.

use std::fs;
use std::io;
use std::path::Path;

use ipub_base::Diagnostic;
use ipub_engine::Label;

use crate::cli::Clean;
use crate::exit::Outcome;
use crate::open;

/// The file that belongs to the tree.
const KEPT: &str = "README.md";

pub fn clean(args: &Clean) -> Outcome {
    let workspace = open::workspace()?;
    let artifacts = workspace.root.join("artifacts");
    let mut removed = 0;
    if args.targets.is_empty() {
        removed = empty(&artifacts, &workspace.cache_dir)?;
    }
    for target in &args.targets {
        let label: Label = target.parse()?;
        // A target that is not there any more may have left artifacts.
        let dir = artifacts.join(&label.package).join(&label.name);
        if dir.symlink_metadata().is_ok() {
            removed += remove(&dir, &workspace.cache_dir)?;
        }
    }
    println!("removed {removed} files from {}", artifacts.display());
    Ok(())
}

/// Removes what is in `dir`, but for its README and hidden files.
fn empty(dir: &Path, store: &Path) -> Result<u64, Diagnostic> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(|error| failure(dir, &error))?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry.map_err(|error| failure(dir, &error))?;
        let name = entry.file_name();
        if name != KEPT && !name.to_string_lossy().starts_with('.') {
            removed += remove(&entry.path(), store)?;
        }
    }
    Ok(removed)
}

/// Removes a file, a link (never what it leads to) or a folder.
fn remove(path: &Path, store: &Path) -> Result<u64, Diagnostic> {
    let fail = |error: io::Error| failure(path, &error);
    let is_dir = path.symlink_metadata().map_err(fail)?.is_dir();
    if !is_dir {
        return fs::remove_file(path).map(|()| 1).map_err(fail);
    }
    // `[cache] dir` may lie in here.
    if path.canonicalize().ok() == store.canonicalize().ok() {
        return Ok(0);
    }
    let mut removed = 0;
    for entry in fs::read_dir(path).map_err(fail)? {
        removed += remove(&entry.map_err(fail)?.path(), store)?;
    }
    match fs::remove_dir(path) {
        // It holds the store.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(removed),
        done => done.map(|()| removed).map_err(fail),
    }
}

fn failure(path: &Path, error: &io::Error) -> Diagnostic {
    Diagnostic::environment(format!("cannot remove {}: {error}", path.display()))
}
