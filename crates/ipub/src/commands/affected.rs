//! `ipub affected`: what the changes since a revision of git reach.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ipub_base::Diagnostic;
use serde_json::json;

use crate::cli::Affected;
use crate::exit::Outcome;
use crate::{files, open};

pub fn affected(args: &Affected) -> Outcome {
    let workspace = open::workspace()?;
    let root = &workspace.root;
    let changed = changed(root, &args.since)?;
    let former = |path: &str| {
        let text = git(root, &["show", &format!("{}:./{path}", args.since)]).ok()?;
        String::from_utf8(text).ok()
    };
    let affected = workspace.affected(&changed, &former)?;
    // Code of ipub itself is in the keys of a binary that is built from it.
    let is_own = |path: &&String| path.starts_with("crates/") || path.starts_with("Cargo.");
    let own = changed.iter().filter(is_own).count();
    if args.json {
        let document = json!({
            "since": args.since,
            "changed_files": changed,
            "changed_files_of_ipub": own,
            "targets": affected,
        });
        files::print(&format!("{document}\n"));
        return Ok(());
    }
    for target in &affected {
        files::print(&format!(
            "{}  from {} on: {}  ({})\n",
            target.label,
            target.from.join(", "),
            target.stages.join(" "),
            target.because.join(", ")
        ));
    }
    if own > 0 {
        eprintln!(
            "notice: {own} changed files are of ipub itself: with a binary built from them, \
             `ipub query --actions //...` tells what would run"
        );
    }
    Ok(())
}

/// Files that differ from those of `revision`, and new ones, relative to `root`.
fn changed(root: &Path, revision: &str) -> Result<BTreeSet<String>, Diagnostic> {
    if revision.starts_with('-') {
        return Err(Diagnostic::usage(format!("`{revision}` is not a revision")));
    }
    let mut found = BTreeSet::new();
    let diff = [
        "diff",
        "--name-only",
        "--no-renames",
        "--relative",
        "-z",
        revision,
        "--",
    ];
    let new = ["ls-files", "--others", "--exclude-standard", "-z"];
    for arguments in [&diff[..], &new[..]] {
        let names = git(root, arguments)?;
        let names = names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        found.extend(names.map(|name| String::from_utf8_lossy(name).into_owned()));
    }
    Ok(found)
}

fn git(root: &Path, arguments: &[&str]) -> Result<Vec<u8>, Diagnostic> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output();
    let output = output.map_err(|error| {
        Diagnostic::environment(format!("cannot run git: {error}"))
            .help("`ipub affected` asks git for changes")
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.lines().next().unwrap_or("git failed").to_owned();
    Err(Diagnostic::usage(words).help("`--since` takes a revision of the repository around here"))
}
