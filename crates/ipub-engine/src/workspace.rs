//! The workspace: its root, its configuration, its kinds, rules and targets.
//!
//! `workspace.toml`:
//!
//! ```toml
//! device = "c600"       # default: c600
//! [cache]
//! dir = "cache"         # relative to the workspace, or absolute; default: cache
//! max_bytes = "20 GiB"  # or a number; 0 is no limit; this is the default
//! max_age_days = 30     # since the last use; 0 is no limit; this is the default
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipub_base::Diagnostic;
use ipub_store::Limits;

use crate::document;
use crate::label::{Label, suggestion};
use crate::limits;
use crate::rules::{InputSource, Rule};
use crate::schema::Kind;
use crate::target::{BuildFile, Target};

type Result<T> = std::result::Result<T, Diagnostic>;

/// An open workspace.
#[derive(Debug)]
pub struct Workspace {
    /// Its folder.
    pub root: PathBuf,
    /// The device that targets are built for.
    pub device: String,
    /// The store's folder.
    pub cache_dir: PathBuf,
    /// How much the store may hold.
    pub cache_limits: Limits,
    /// Kinds of targets by name.
    pub kinds: BTreeMap<String, Kind>,
    /// Rules by name.
    pub rules: BTreeMap<String, Rule>,
}

const FILE: &str = "workspace.toml";
const BUILD_FILE: &str = "BUILD.toml";

impl Workspace {
    /// Opens the workspace that `start` lies in.
    pub fn find(start: &Path) -> Result<Self> {
        let start = start.canonicalize().map_err(|error| {
            Diagnostic::environment(format!("cannot enter {}: {error}", start.display()))
        })?;
        match start.ancestors().find(|dir| dir.join(FILE).is_file()) {
            Some(root) => Self::open(root),
            None => {
                let message = format!("no {FILE} in {} or above it", start.display());
                Err(Diagnostic::usage(message).help("run ipub inside a workspace"))
            }
        }
    }

    /// Opens the workspace whose root is `root`.
    pub fn open(root: &Path) -> Result<Self> {
        let mut table = document::read(&root.join(FILE), root)?;
        let device = table.text("device")?.unwrap_or_else(|| "c600".to_owned());
        let mut cache_dir = root.join("cache");
        let mut cache_limits = limits::DEFAULT;
        if let Some(node) = table.take("cache") {
            let mut cache = node.into_table("cache")?;
            if let Some(dir) = cache.text("dir")? {
                cache_dir = root.join(dir);
            }
            limits::read(&mut cache, &mut cache_limits)?;
            cache.finish(&["dir", "max_bytes", "max_age_days"])?;
        }
        table.finish(&["device", "cache"])?;
        let root = root.to_path_buf();
        let (kinds, rules) = (BTreeMap::new(), BTreeMap::new());
        let mut workspace = Self {
            root,
            device,
            cache_dir,
            cache_limits,
            kinds,
            rules,
        };
        workspace.read_rules()?;
        workspace.check_rules()?;
        Ok(workspace)
    }

    fn read_rules(&mut self) -> Result<()> {
        let dir = self.root.join("rules");
        let mut paths: Vec<PathBuf> = match std::fs::read_dir(&dir) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(error) => {
                return Err(Diagnostic::usage(format!(
                    "cannot list {}: {error}",
                    dir.display()
                )));
            }
        };
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        });
        paths.sort();
        for path in paths {
            let table = document::read(&path, &self.root)?;
            let place = table.place.clone();
            let twice =
                |what, name: &str| Err(place.error(format!("{what} `{name}` is declared twice")));
            if table.entries.contains_key("kind") {
                let kind = Kind::read(table)?;
                if let Some(kind) = self.kinds.insert(kind.name.clone(), kind) {
                    return twice("kind", &kind.name);
                }
            } else {
                let rule = Rule::read(table)?;
                if let Some(rule) = self.rules.insert(rule.name.clone(), rule) {
                    return twice("rule", &rule.name);
                }
            }
        }
        Ok(())
    }

    /// Every name that a rule uses must exist.
    fn check_rules(&self) -> Result<()> {
        for rule in self.rules.values() {
            for name in &rule.kinds {
                if !self.kinds.contains_key(name) {
                    let help = suggestion(name, self.kinds.keys().map(String::as_str), "");
                    let message = format!("rule `{}`: unknown kind `{name}`", rule.name);
                    return Err(rule.place.error(message).help(help));
                }
            }
            let kinds = || {
                self.kinds
                    .values()
                    .filter(|kind| rule.applies_to(&kind.name))
            };
            let files = rule.inputs.iter().filter_map(|input| match &input.source {
                InputSource::FileAttr { attribute } => Some(attribute),
                _ => None,
            });
            for key in rule.params.iter().chain(files) {
                if !kinds().any(|kind| kind.has_prefix(key)) {
                    let message =
                        format!("rule `{}`: no kind has the attribute `{key}`", rule.name);
                    let help = kinds()
                        .next()
                        .map_or_else(String::new, |kind| kind.suggestion(key));
                    return Err(rule.place.error(message).help(help));
                }
            }
            for input in &rule.inputs {
                self.check_input(rule, &input.source)?;
            }
        }
        self.check_cycles()
    }

    fn check_input(&self, rule: &Rule, source: &InputSource) -> Result<()> {
        let InputSource::Rule { rule: from, output } = source else {
            return Ok(());
        };
        let Some(maker) = self.rules.get(from) else {
            let help = suggestion(from, self.rules.keys().map(String::as_str), "");
            let message = format!("rule `{}`: unknown rule `{from}`", rule.name);
            return Err(rule.place.error(message).help(help));
        };
        if !maker.outputs.contains(output) {
            let message = format!(
                "rule `{}`: rule `{from}` has no output `{output}`",
                rule.name
            );
            let help = format!("it has {}", maker.outputs.join(", "));
            return Err(rule.place.error(message).help(help));
        }
        Ok(())
    }

    fn check_cycles(&self) -> Result<()> {
        let mut done = std::collections::BTreeSet::new();
        loop {
            let before = done.len();
            for rule in self.rules.values() {
                if makers(rule).all(|maker| done.contains(maker)) {
                    done.insert(rule.name.as_str());
                }
            }
            if done.len() == before {
                break;
            }
        }
        match self
            .rules
            .values()
            .find(|rule| !done.contains(rule.name.as_str()))
        {
            Some(rule) => {
                let message = format!("rule `{}` needs its own output, through others", rule.name);
                Err(rule.place.error(message))
            }
            None => Ok(()),
        }
    }

    /// The target `label` with `sets` (`key=value`) applied.
    pub fn target(&self, label: &Label, sets: &[String]) -> Result<Target> {
        let file = self.build_file(&label.package)?;
        let target = match &file {
            Some(file) => file.target(&label.name, &self.kinds)?,
            None => None,
        };
        let Some(mut target) = target else {
            return Err(self.unknown(label, file));
        };
        for assignment in sets {
            target.set(&self.kinds[&target.kind], assignment)?;
        }
        Ok(target)
    }

    /// All targets of the workspace, by label.
    pub fn targets(&self) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for package in self.packages() {
            let Some(file) = self.build_file(&package)? else {
                continue;
            };
            let names: Vec<_> = file.names().map(str::to_owned).collect();
            for name in names {
                targets.extend(file.target(&name, &self.kinds)?);
            }
        }
        targets.sort_by(|a, b| a.label.cmp(&b.label));
        Ok(targets)
    }

    pub(crate) fn build_file(&self, package: &str) -> Result<Option<BuildFile>> {
        let path = self.root.join(package).join(BUILD_FILE);
        if !path.is_file() {
            return Ok(None);
        }
        BuildFile::read(package, document::read(&path, &self.root)?).map(Some)
    }

    fn unknown(&self, label: &Label, file: Option<BuildFile>) -> Diagnostic {
        match file {
            Some(file) => {
                let names: Vec<_> = file.names().collect();
                let otherwise = format!("it has {}", names.join(", "));
                let help = suggestion(&label.name, names, &otherwise);
                let message = format!(
                    "unknown target {label}: no `{}` in {}/{BUILD_FILE}",
                    label.name, label.package
                );
                Diagnostic::usage(message).help(help)
            }
            None => {
                let packages = self.packages();
                let names: Vec<_> = packages.iter().map(String::as_str).collect();
                let otherwise = format!("packages are {}", names.join(", "));
                let help = suggestion(&label.package, names, &otherwise);
                let message = format!(
                    "unknown target {label}: {}/ has no {BUILD_FILE}",
                    label.package
                );
                Diagnostic::usage(message).help(help)
            }
        }
    }

    /// Folders that hold a BUILD.toml, relative to the root.
    fn packages(&self) -> Vec<String> {
        const DEPTH_MAX: usize = 4;
        const SKIPPED: [&str; 3] = ["target", "cache", "artifacts"];
        let mut found = Vec::new();
        let mut open = vec![(String::new(), 0)];
        while let Some((package, depth)) = open.pop() {
            let dir = self.root.join(&package);
            if dir.join(BUILD_FILE).is_file() {
                found.push(package.clone());
            }
            let Ok(entries) = std::fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let hidden = name.starts_with('.') || SKIPPED.contains(&name.as_str());
                if depth < DEPTH_MAX && !hidden && entry.path().is_dir() {
                    let below = if package.is_empty() {
                        name
                    } else {
                        format!("{package}/{name}")
                    };
                    open.push((below, depth + 1));
                }
            }
        }
        found.sort();
        found
    }
}

/// The rules whose outputs `rule` reads.
pub(crate) fn makers(rule: &Rule) -> impl Iterator<Item = &str> {
    rule.inputs.iter().filter_map(|input| match &input.source {
        InputSource::Rule { rule, .. } => Some(rule.as_str()),
        _ => None,
    })
}
