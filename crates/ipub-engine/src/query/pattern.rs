//! Patterns of targets: `//...`, `//models/...`, `//models:*`, `//models:siglip-*`, a label.

use std::collections::BTreeSet;

use ipub_base::Diagnostic;

use crate::files::segment_matches;
use crate::label::Label;
use crate::workspace::Workspace;

/// Whether `pattern` means more than one label.
fn is_wild(pattern: &str) -> bool {
    pattern.ends_with("...") || pattern.contains('*')
}

/// The labels of `all` that `pattern` means, in their order; an error if there are none.
pub(super) fn matching<'a>(
    workspace: &Workspace,
    all: impl Iterator<Item = &'a Label>,
    pattern: &str,
) -> Result<Vec<&'a Label>, Diagnostic> {
    if !is_wild(pattern) {
        let label: Label = pattern.parse()?;
        let found: Vec<_> = all.filter(|other| **other == label).collect();
        return match found.is_empty() {
            // The error of a look-up suggests names.
            true => Err(workspace
                .target(&label, &[])
                .err()
                .unwrap_or_else(|| Diagnostic::bug(format!("{label} is not listed")))),
            false => Ok(found),
        };
    }
    let refuse = |why: &str| {
        Diagnostic::usage(format!("`{pattern}` is not a pattern: {why}"))
            .help("patterns look like //..., //models/..., //models:* and //models:siglip-*")
    };
    let rest = pattern
        .strip_prefix("//")
        .ok_or_else(|| refuse("it does not begin with //"))?;
    let found: Vec<_> = if let Some(folder) = rest.strip_suffix("...") {
        let folder = match folder.strip_suffix('/') {
            Some(folder) => folder,
            None if folder.is_empty() => folder,
            None => return Err(refuse("`...` stands for folders, after a `/`")),
        };
        let below = |package: &str| match package.strip_prefix(folder) {
            Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        all.filter(|label| below(&label.package)).collect()
    } else {
        let (package, name) = rest
            .split_once(':')
            .ok_or_else(|| refuse("it has no `:name`"))?;
        let matches =
            |label: &Label| label.package == package && segment_matches(name, &label.name);
        all.filter(|label| matches(label)).collect()
    };
    match found.is_empty() {
        true => Err(Diagnostic::usage(format!("no target matches `{pattern}`"))
            .help("`ipub targets` lists them")),
        false => Ok(found),
    }
}

/// The labels that `patterns` mean, in the order of the patterns, each once. One that begins with
/// `-` takes away what those before it gave.
pub fn expand_patterns(
    workspace: &Workspace,
    patterns: &[String],
) -> Result<Vec<Label>, Diagnostic> {
    // A single label needs no look at the other packages.
    if let [only] = patterns
        && !is_wild(only)
        && !only.starts_with('-')
    {
        return Ok(vec![only.parse()?]);
    }
    let targets = workspace.targets()?;
    let (mut chosen, mut seen): (Vec<Label>, BTreeSet<Label>) = Default::default();
    for pattern in patterns {
        let labels = targets.iter().map(|target| &target.label);
        match pattern.strip_prefix('-') {
            Some(without) => {
                for label in matching(workspace, labels, without)? {
                    seen.remove(label);
                }
                chosen.retain(|label| seen.contains(label));
            }
            None => {
                let found = matching(workspace, labels, pattern)?;
                let new = found
                    .into_iter()
                    .filter(|label| seen.insert((*label).clone()));
                chosen.extend(new.cloned().collect::<Vec<_>>());
            }
        }
    }
    match chosen.is_empty() {
        true => Err(Diagnostic::usage("the patterns leave no target")),
        false => Ok(chosen),
    }
}
