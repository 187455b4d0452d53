//! From a target and its goals to the rules to run, in order, with every source file found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ipub_base::Diagnostic;
use ipub_store::Store;

use crate::files;
use crate::inputs::{Given, InputFile, Params};
use crate::label::suggestion;
use crate::rules::{InputSource, Rule, RuleInput};
use crate::target::Target;
use crate::workspace::{Workspace, makers};

type Result<T> = std::result::Result<T, Diagnostic>;

/// The rules to run for one target; each comes after those that it reads from.
pub(crate) struct Plan<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    /// Source files looked at, and read.
    pub(crate) files: u64,
    pub(crate) hashed: u64,
}

pub(crate) struct Node<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) inputs: BTreeMap<String, NodeInput>,
    pub(crate) params: Params,
    /// Nodes that this one reads from, and that read from it.
    pub(crate) makers: BTreeSet<usize>,
    pub(crate) readers: BTreeSet<usize>,
}

pub(crate) enum NodeInput {
    Known(Given),
    Output { node: usize, output: String },
}

impl<'a> Plan<'a> {
    /// The plan for `target`, until the rules `until`, or all goal rules if there are none.
    pub(crate) fn new(
        workspace: &'a Workspace,
        store: &Store,
        target: &Target,
        until: &[String],
    ) -> Result<Self> {
        let order = order(workspace, target, until)?;
        let index: BTreeMap<&str, usize> = order
            .iter()
            .enumerate()
            .map(|(node, rule)| (rule.name.as_str(), node))
            .collect();
        let mut nodes = Vec::new();
        let mut wanted = Vec::new();
        for rule in order {
            let read = |key: &str| rule.reads(key);
            let params = target.attributes.iter().filter(|(key, _)| read(key));
            let params = params.map(|(key, attribute)| (key.clone(), attribute.value.clone()));
            let mut node = Node {
                rule,
                inputs: BTreeMap::new(),
                params: Params::new(params),
                makers: BTreeSet::new(),
                readers: BTreeSet::new(),
            };
            for input in &rule.inputs {
                let resolved = resolve(workspace, target, &index, rule, input, &mut wanted)?;
                if let NodeInput::Output { node: maker, .. } = resolved {
                    node.makers.insert(maker);
                }
                node.inputs.insert(input.name.clone(), resolved);
            }
            nodes.push(node);
        }
        for reader in 0..nodes.len() {
            for maker in nodes[reader].makers.clone() {
                nodes[maker].readers.insert(reader);
            }
        }
        let mut plan = Self {
            nodes,
            files: 0,
            hashed: 0,
        };
        plan.look_at_files(store, target, wanted)?;
        Ok(plan)
    }

    /// Fills in the digests of all source files, in one look at the store.
    fn look_at_files(&mut self, store: &Store, target: &Target, wanted: Vec<Wanted>) -> Result<()> {
        let paths: BTreeSet<&PathBuf> = wanted.iter().map(|wanted| &wanted.path).collect();
        let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
        let facts = store.files(&paths)?;
        self.files = paths.len() as u64;
        self.hashed = facts.iter().flatten().filter(|fact| fact.hashed).count() as u64;
        let facts: BTreeMap<_, _> = paths.iter().zip(facts).collect();
        for node in &mut self.nodes {
            for input in node.inputs.values_mut() {
                let NodeInput::Known(Given::Files { files, .. }) = input else {
                    continue;
                };
                for file in files {
                    match facts.get(&file.path).copied().flatten() {
                        Some(fact) => file.digest = fact.digest,
                        None => return Err(no_such_file(target, &wanted, file)),
                    }
                }
            }
        }
        Ok(())
    }

    /// The inputs of `node`, with the outputs of other nodes taken from `outputs`; `Err` names the
    /// first node whose output is not known.
    pub(crate) fn given(
        &self,
        node: usize,
        outputs: impl Fn(usize, &str) -> Option<ipub_base::Digest>,
    ) -> std::result::Result<BTreeMap<String, Given>, usize> {
        let resolve = |input: &NodeInput| match input {
            NodeInput::Known(given) => Ok(given.clone()),
            NodeInput::Output { node, output } => {
                outputs(*node, output).map(Given::Blob).ok_or(*node)
            }
        };
        let inputs = self.nodes[node].inputs.iter();
        inputs
            .map(|(name, input)| Ok((name.clone(), resolve(input)?)))
            .collect()
    }
}

/// A source file that some rule reads.
struct Wanted {
    path: PathBuf,
    attribute: Option<String>,
}

/// One input of `rule`; its source files are added to `wanted`.
fn resolve(
    workspace: &Workspace,
    target: &Target,
    index: &BTreeMap<&str, usize>,
    rule: &Rule,
    input: &RuleInput,
    wanted: &mut Vec<Wanted>,
) -> Result<NodeInput> {
    Ok(match &input.source {
        InputSource::Rule { rule: from, output } => match index.get(from.as_str()) {
            Some(&node) => NodeInput::Output {
                node,
                output: output.clone(),
            },
            None => NodeInput::Known(Given::Absent),
        },
        InputSource::FileAttr { attribute } => {
            let paths = files::of_attribute(&workspace.root, target, attribute)?;
            if paths.is_none() && !input.optional {
                let (label, rule) = (&target.label, &rule.name);
                return Err(Diagnostic::usage(format!(
                    "{label}: rule `{rule}` needs the attribute `{attribute}`, which is not set"
                )));
            }
            source_files(workspace, wanted, paths, Some(attribute))
        }
        InputSource::Files { patterns } => {
            let found = files::matching(&workspace.root, patterns);
            let paths = found.iter().map(|path| workspace.root.join(path)).collect();
            source_files(workspace, wanted, Some(paths), None)
        }
    })
}

fn source_files(
    workspace: &Workspace,
    wanted: &mut Vec<Wanted>,
    paths: Option<Vec<PathBuf>>,
    attribute: Option<&String>,
) -> NodeInput {
    let Some(paths) = paths else {
        return NodeInput::Known(Given::Absent);
    };
    let single = attribute.is_some() && paths.len() == 1;
    let mut files = Vec::new();
    for (index, path) in paths.into_iter().enumerate() {
        let relative = path.strip_prefix(&workspace.root).unwrap_or(&path);
        // A set is read by names, so they may hold nothing of where the workspace lies.
        let name = match attribute.is_some() && !single {
            true => format!("{index}/{}", path.file_name().unwrap_or_default().display()),
            false => relative.display().to_string(),
        };
        wanted.push(Wanted {
            path: path.clone(),
            attribute: attribute.cloned(),
        });
        // The digest is filled in when all files are known.
        files.push(InputFile {
            name,
            path,
            digest: ipub_base::Digest::from_bytes([0; 32]),
        });
    }
    NodeInput::Known(Given::Files { files, single })
}

fn no_such_file(target: &Target, wanted: &[Wanted], file: &InputFile) -> Diagnostic {
    let message = format!("there is no file {}", file.path.display());
    let by = wanted.iter().find(|wanted| wanted.path == file.path);
    match by.and_then(|wanted| wanted.attribute.as_deref()) {
        Some(key) => files::at(
            target,
            key,
            format!("`{key}` of {}: {message}", target.label),
        ),
        None => Diagnostic::usage(message),
    }
}

/// The rules that `until` needs, each after those that it reads from.
pub(crate) fn order<'a>(
    workspace: &'a Workspace,
    target: &Target,
    until: &[String],
) -> Result<Vec<&'a Rule>> {
    let rules: BTreeMap<&str, &Rule> = workspace
        .rules
        .values()
        .filter(|rule| rule.applies_to(&target.kind))
        .map(|rule| (rule.name.as_str(), rule))
        .collect();
    let mut open: Vec<&Rule> = Vec::new();
    for name in until {
        let Some(rule) = rules.get(name.as_str()) else {
            let names: Vec<_> = rules.keys().copied().collect();
            let otherwise = format!("{} has {}", target.label, names.join(", "));
            let help = suggestion(name, names.iter().copied(), &otherwise);
            let message = format!("{} has no stage `{name}`", target.label);
            return Err(Diagnostic::usage(message).help(help));
        };
        open.push(rule);
    }
    if until.is_empty() {
        open.extend(rules.values().filter(|rule| rule.goal));
    }
    let mut needed: BTreeMap<&str, &Rule> = BTreeMap::new();
    while let Some(rule) = open.pop() {
        if needed.insert(&rule.name, rule).is_some() {
            continue;
        }
        for input in &rule.inputs {
            let InputSource::Rule { rule: from, .. } = &input.source else {
                continue;
            };
            match rules.get(from.as_str()) {
                Some(maker) => open.push(maker),
                None if input.optional => {}
                None => {
                    let (kind, name) = (&target.kind, &rule.name);
                    let message =
                        format!("rule `{name}` reads rule `{from}`, which `{kind}` lacks");
                    return Err(rule.place.error(message));
                }
            }
        }
    }
    let mut order: Vec<&Rule> = Vec::new();
    let mut done = BTreeSet::new();
    while !needed.is_empty() {
        // The workspace has checked that rules form no cycle, so one is always free.
        let is_free = |rule: &Rule| {
            makers(rule).all(|maker| done.contains(maker) || !rules.contains_key(maker))
        };
        let Some(name) = needed
            .values()
            .find(|rule| is_free(rule))
            .map(|rule| &rule.name)
        else {
            return Err(Diagnostic::bug("rules form a cycle"));
        };
        order.extend(needed.remove(name.as_str()));
        done.insert(name.as_str());
    }
    Ok(order)
}
