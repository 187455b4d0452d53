//! The graph that queries walk: targets, their stages if asked for, source files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ipub_base::Diagnostic;
use serde::Serialize;

use super::Answer;
use crate::files;
use crate::label::Label;
use crate::resolve::order;
use crate::rules::{InputSource, Rule};
use crate::target::Target;
use crate::workspace::Workspace;

/// A node of the graph; sorted as answers list them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum QueryNode {
    /// A target.
    Target {
        /// Its label.
        label: Label,
    },
    /// A stage of a target.
    Stage {
        /// The target.
        label: Label,
        /// Its place among the target's stages, each after those that it reads.
        order: usize,
        /// The rule.
        rule: String,
    },
    /// A source file.
    File {
        /// Its path, relative to the workspace where it lies inside it.
        path: String,
    },
}

impl std::fmt::Display for QueryNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Target { label } => write!(f, "{label}"),
            Self::Stage { label, rule, .. } => write!(f, "{label}%{rule}"),
            Self::File { path } => f.write_str(path),
        }
    }
}

pub(super) struct Graph<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) targets: BTreeMap<Label, Target>,
    nodes: Vec<QueryNode>,
    index: BTreeMap<QueryNode, usize>,
    pub(super) reads: Vec<BTreeSet<usize>>,
    pub(super) readers: Vec<BTreeSet<usize>>,
}

/// What one node reads, before nodes have numbers.
type Edges = BTreeMap<QueryNode, BTreeSet<QueryNode>>;

impl<'a> Graph<'a> {
    /// Targets read files.
    pub(super) fn of_targets(workspace: &'a Workspace) -> Result<Self, Diagnostic> {
        Self::new(workspace, false)
    }

    /// Targets consist of stages; these read each other's outputs and files.
    pub(super) fn of_stages(workspace: &'a Workspace) -> Result<Self, Diagnostic> {
        Self::new(workspace, true)
    }

    fn new(workspace: &'a Workspace, stages: bool) -> Result<Self, Diagnostic> {
        let mut edges = Edges::new();
        let mut matched = BTreeMap::new();
        let targets = workspace.targets()?;
        for target in &targets {
            let label = target.label.clone();
            let this = QueryNode::Target { label };
            edges.entry(this.clone()).or_default();
            let rules = order(workspace, target, &[])?;
            let places: BTreeMap<&str, usize> = rules
                .iter()
                .enumerate()
                .map(|(place, rule)| (rule.name.as_str(), place))
                .collect();
            let stage = |rule: &str| QueryNode::Stage {
                label: target.label.clone(),
                order: places[rule],
                rule: rule.to_owned(),
            };
            for rule in &rules {
                let mut reads = BTreeSet::new();
                for path in source_files(workspace, target, rule, &mut matched)? {
                    edges
                        .entry(QueryNode::File { path: path.clone() })
                        .or_default();
                    reads.insert(QueryNode::File { path });
                }
                if !stages {
                    edges.entry(this.clone()).or_default().extend(reads);
                    continue;
                }
                let makers = crate::workspace::makers(rule);
                reads.extend(makers.filter(|maker| places.contains_key(maker)).map(stage));
                edges.insert(stage(&rule.name), reads);
                let of_target = edges.entry(this.clone()).or_default();
                of_target.insert(stage(&rule.name));
            }
        }
        let nodes: Vec<QueryNode> = edges.keys().cloned().collect();
        let numbers = nodes.iter().cloned().enumerate();
        let index: BTreeMap<QueryNode, usize> = numbers.map(|(at, node)| (node, at)).collect();
        let numbered = |reads: BTreeSet<QueryNode>| reads.iter().map(|node| index[node]).collect();
        let reads: Vec<BTreeSet<usize>> = edges.into_values().map(numbered).collect();
        let mut readers = vec![BTreeSet::new(); nodes.len()];
        for (reader, read) in reads.iter().enumerate() {
            for &node in read {
                readers[node].insert(reader);
            }
        }
        let targets = targets.into_iter();
        Ok(Self {
            workspace,
            targets: targets
                .map(|target| (target.label.clone(), target))
                .collect(),
            nodes,
            index,
            reads,
            readers,
        })
    }

    pub(super) fn node(&self, node: usize) -> &QueryNode {
        &self.nodes[node]
    }

    pub(super) fn find(&self, node: &QueryNode) -> Option<usize> {
        self.index.get(node).copied()
    }

    pub(super) fn nodes(&self) -> &[QueryNode] {
        &self.nodes
    }

    /// The stages of a target.
    pub(super) fn stages_of(&self, target: usize) -> impl Iterator<Item = usize> {
        let is_stage = |&node: &usize| matches!(self.nodes[node], QueryNode::Stage { .. });
        self.reads[target].iter().copied().filter(is_stage)
    }

    pub(super) fn answer(&self, found: &[usize]) -> Answer {
        let places: BTreeMap<usize, usize> = found
            .iter()
            .enumerate()
            .map(|(place, &node)| (node, place))
            .collect();
        let among = |&node: &usize| {
            let reads = self.reads[node].iter();
            reads.filter_map(|read| places.get(read).copied()).collect()
        };
        Answer {
            nodes: found.iter().map(|&node| self.nodes[node].clone()).collect(),
            edges: found.iter().map(among).collect(),
        }
    }
}

/// The source files that `rule` reads for `target`; those of patterns are looked for once a rule.
pub(super) fn source_files(
    workspace: &Workspace,
    target: &Target,
    rule: &Rule,
    matched: &mut BTreeMap<String, Vec<String>>,
) -> Result<Vec<String>, Diagnostic> {
    let mut paths = Vec::new();
    for input in &rule.inputs {
        match &input.source {
            InputSource::Rule { .. } => {}
            InputSource::Files { patterns } => {
                let look = || files::matching(&workspace.root, patterns);
                paths.extend_from_slice(matched.entry(patterns.join("\n")).or_insert_with(look));
            }
            InputSource::FileAttr { attribute } => {
                let named = files::of_attribute(&workspace.root, target, attribute)?;
                let named = named.unwrap_or_default();
                paths.extend(named.iter().map(|path| relative(&workspace.root, path)));
            }
        }
    }
    Ok(paths)
}

/// The path from the root of the workspace, with `.` and `..` resolved in words.
pub(super) fn relative(root: &Path, path: &Path) -> String {
    use std::path::Component;
    let mut plain = std::path::PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
        .strip_prefix(root)
        .unwrap_or(&plain)
        .display()
        .to_string()
}
