//! Which targets changed files reach, and from which stage on.
//!
//! A changed source file reaches the stages that read it. A changed `BUILD.toml`, kind or rule is
//! compared with its former text: only attributes and rules that differ reach anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ipub_base::{Diagnostic, KeyWriter};
use serde::Serialize;

use super::graph::source_files;
use crate::document;
use crate::label::Label;
use crate::resolve::order;
use crate::rules::{InputSource, Rule};
use crate::schema::Kind;
use crate::target::{BuildFile, Target};
use crate::workspace::{Workspace, makers};

/// A target that changes reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Affected {
    /// The target.
    pub label: Label,
    /// Stages that changes reach first, in order.
    pub from: Vec<String>,
    /// They and every stage after them; early cut-off may spare some.
    pub stages: Vec<String>,
    /// The files and attributes that changed.
    pub because: Vec<String>,
}

/// The definitions of before.
struct Former {
    kinds: BTreeMap<String, Kind>,
    rules: BTreeMap<String, Rule>,
    /// By package, where the file changed.
    packages: BTreeMap<String, Option<BuildFile>>,
    device_changed: bool,
}

impl Workspace {
    /// The targets that the files `changed`, relative to the workspace, reach; `former` gives the
    /// text that one had.
    pub fn affected(
        &self,
        changed: &BTreeSet<String>,
        former: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<Affected>, Diagnostic> {
        let former = Former::read(self, changed, former)?;
        let mut matched = BTreeMap::new();
        let mut found = Vec::new();
        for target in self.targets()? {
            let rules = order(self, &target, &[])?;
            let mut because = BTreeSet::new();
            let changed_keys = former.changed_attributes(self, &target);
            let mut first = BTreeSet::new();
            for rule in &rules {
                let mut reasons = Vec::new();
                let files = source_files(self, &target, rule, &mut matched)?;
                reasons.extend(files.into_iter().filter(|file| changed.contains(file)));
                reasons.extend(gone_sources(rule, changed));
                match &changed_keys {
                    None => reasons.push("new target".to_owned()),
                    Some(keys) => {
                        let read = keys.iter().filter(|key| reads(rule, key));
                        reasons.extend(read.map(|key| format!("attribute {key}")));
                    }
                }
                if former.rule_changed(rule) {
                    reasons.push(format!("rule {}", rule.name));
                }
                if former.device_changed {
                    reasons.push("device".to_owned());
                }
                if !reasons.is_empty() {
                    first.insert(rule.name.as_str());
                    because.extend(reasons);
                }
            }
            let mut reached = BTreeSet::new();
            let mut from = Vec::new();
            for rule in &rules {
                let after = makers(rule).any(|maker| reached.contains(maker));
                if first.contains(rule.name.as_str()) || after {
                    reached.insert(rule.name.as_str());
                    if !after {
                        from.push(rule.name.clone());
                    }
                }
            }
            if from.is_empty() {
                continue;
            }
            let stages = rules
                .iter()
                .filter(|rule| reached.contains(rule.name.as_str()));
            found.push(Affected {
                label: target.label.clone(),
                from,
                stages: stages.map(|rule| rule.name.clone()).collect(),
                because: because.into_iter().collect(),
            });
        }
        Ok(found)
    }
}

/// Files of a rule's patterns that are there no more.
fn gone_sources(rule: &Rule, changed: &BTreeSet<String>) -> Vec<String> {
    let patterns = rule.inputs.iter().filter_map(|input| match &input.source {
        InputSource::Files { patterns } => Some(patterns),
        _ => None,
    });
    let patterns: Vec<_> = patterns.flatten().collect();
    let matches = |path: &&String| {
        patterns
            .iter()
            .any(|pattern| crate::files::path_matches(pattern, path))
    };
    changed.iter().filter(matches).cloned().collect()
}

/// Whether the attribute `key` is a parameter of `rule` or names one of its files.
fn reads(rule: &Rule, key: &str) -> bool {
    let names = |input: &crate::rules::RuleInput| matches!(&input.source, InputSource::FileAttr { attribute } if attribute == key);
    rule.reads(key) || rule.inputs.iter().any(names)
}

impl Former {
    fn read(
        workspace: &Workspace,
        changed: &BTreeSet<String>,
        former: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Diagnostic> {
        let mut this = Self {
            kinds: BTreeMap::new(),
            rules: workspace.rules.clone(),
            packages: BTreeMap::new(),
            device_changed: false,
        };
        let mut kinds = BTreeMap::new();
        for path in changed {
            let text = former(path);
            // A former text that cannot be read tells nothing: all of it counts as changed.
            let table = text.and_then(|text| document::parse(path.clone(), text).ok());
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            if name == "BUILD.toml" {
                let file = table.and_then(|table| BuildFile::read(folder, table).ok());
                this.packages.insert(folder.to_owned(), file);
            } else if folder == "rules" && Path::new(name).extension().is_some_and(|e| e == "toml")
            {
                this.rules.retain(|_, rule| rule.file() != *path);
                let Some(table) = table else { continue };
                if table.entries.contains_key("kind") {
                    kinds.extend(Kind::read(table).ok().map(|kind| (kind.name.clone(), kind)));
                } else {
                    let rule = Rule::read(table).ok();
                    this.rules
                        .extend(rule.map(|rule| (rule.name.clone(), rule)));
                }
            } else if path == "workspace.toml" {
                let device = table.map_or(Ok(None), |mut table| table.text("device"))?;
                this.device_changed = device.as_deref().unwrap_or("c600") != workspace.device;
            }
        }
        for (name, kind) in &workspace.kinds {
            kinds.entry(name.clone()).or_insert_with(|| kind.clone());
        }
        this.kinds = kinds;
        Ok(this)
    }

    fn rule_changed(&self, rule: &Rule) -> bool {
        let digest = |rule: &Rule| {
            let mut writer = KeyWriter::digest_only("ipub.rule");
            writer.value("rule", rule);
            writer.list("params", &rule.params, |writer, param| {
                writer.text("", param)
            });
            writer.finish().digest
        };
        self.rules
            .get(&rule.name)
            .is_none_or(|old| digest(old) != digest(rule))
    }

    /// The attributes that differ; `None` if the target was not there.
    fn changed_attributes(&self, workspace: &Workspace, target: &Target) -> Option<Vec<String>> {
        let package = &target.label.package;
        let old = match self.packages.get(package) {
            Some(Some(file)) => file.target(&target.label.name, &self.kinds).ok().flatten(),
            Some(None) => None,
            // Only the defaults of its kind may differ.
            None => {
                let file = workspace.build_file(package).ok().flatten()?;
                file.target(&target.label.name, &self.kinds).ok().flatten()
            }
        }?;
        let keys: BTreeSet<_> = old
            .attributes
            .keys()
            .chain(target.attributes.keys())
            .collect();
        let value =
            |of: &Target, key: &str| of.attributes.get(key).map(|found| found.value.clone());
        let differs = |key: &&&String| value(&old, key) != value(target, key);
        Some(
            keys.iter()
                .filter(differs)
                .map(|key| (*key).clone())
                .collect(),
        )
    }
}
