//! The nodes that an expression means.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ipub_base::Diagnostic;

use super::error_at;
use super::graph::{Graph, QueryNode, relative};
use super::parse::{Expression, Function, Operator, Word};
use super::pattern;
use super::regex::Regex;
use crate::label::nearest;

type Set = BTreeSet<usize>;

/// What `expression`, which is `text`, means in `graph`: sorted, or along a path.
pub(super) fn evaluate(
    graph: &Graph<'_>,
    text: &str,
    expression: &Expression,
) -> Result<Vec<usize>, Diagnostic> {
    let evaluation = Evaluation { graph, text };
    if let Expression::Call {
        function: Function::SomePath,
        sets,
        ..
    } = expression
    {
        let (from, to) = (evaluation.set(&sets[0])?, evaluation.set(&sets[1])?);
        return Ok(evaluation.some_path(&from, &to));
    }
    Ok(evaluation.set(expression)?.into_iter().collect())
}

struct Evaluation<'a> {
    graph: &'a Graph<'a>,
    text: &'a str,
}

impl Evaluation<'_> {
    fn set(&self, expression: &Expression) -> Result<Set, Diagnostic> {
        match expression {
            Expression::Word(word) => self.word(word),
            Expression::Operation(left, operator, right) => {
                let (mut left, right) = (self.set(left)?, self.set(right)?);
                match operator {
                    Operator::Union => left.extend(right),
                    Operator::Except => left.retain(|node| !right.contains(node)),
                    Operator::Intersect => left.retain(|node| right.contains(node)),
                }
                Ok(left)
            }
            Expression::Call {
                function,
                words,
                sets,
            } => {
                let sets = sets.iter().map(|set| self.set(set));
                let sets: Vec<Set> = sets.collect::<Result<_, _>>()?;
                self.call(*function, words, sets)
            }
        }
    }

    fn call(
        &self,
        function: Function,
        words: &[Word],
        mut sets: Vec<Set>,
    ) -> Result<Set, Diagnostic> {
        let graph = self.graph;
        let last = sets.pop().unwrap_or_default();
        let first = sets.pop().unwrap_or_default();
        let depth = || words.first().and_then(|word| word.text.parse().ok());
        Ok(match function {
            Function::Deps => closure(&last, &graph.reads, depth().unwrap_or(usize::MAX), None),
            Function::Rdeps => {
                let universe = closure(&first, &graph.reads, usize::MAX, None);
                let from = last.intersection(&universe).copied().collect();
                let depth = depth().unwrap_or(usize::MAX);
                closure(&from, &graph.readers, depth, Some(&universe))
            }
            Function::AllPaths => {
                let below = closure(&first, &graph.reads, usize::MAX, None);
                let to = last.intersection(&below).copied().collect();
                closure(&to, &graph.readers, usize::MAX, Some(&below))
            }
            Function::SomePath => self.some_path(&first, &last).into_iter().collect(),
            Function::Kind => {
                let regex = self.regex(&words[0])?;
                let kind = |node: &usize| regex.is_match(self.kind(*node));
                last.into_iter().filter(kind).collect()
            }
            Function::Attr => {
                self.known_attribute(&words[0])?;
                let regex = self.regex(&words[1])?;
                let attribute = |node: &usize| {
                    let QueryNode::Target { label } = graph.node(*node) else {
                        return false;
                    };
                    let value = graph.targets[label].attributes.get(&words[0].text);
                    value.is_some_and(|value| regex.is_match(&value.value.to_string()))
                };
                last.into_iter().filter(attribute).collect()
            }
        })
    }

    fn regex(&self, word: &Word) -> Result<Regex, Diagnostic> {
        // Of a quoted word the text begins one further.
        let quoted = usize::from(!self.text[word.at..].starts_with(&word.text));
        Regex::new(&word.text).map_err(|(at, why)| error_at(self.text, word.at + quoted + at, why))
    }

    fn kind(&self, node: usize) -> &str {
        match self.graph.node(node) {
            QueryNode::Target { label } => &self.graph.targets[label].kind,
            QueryNode::Stage { .. } => "stage",
            QueryNode::File { .. } => "source file",
        }
    }

    fn known_attribute(&self, word: &Word) -> Result<(), Diagnostic> {
        let kinds = || self.graph.workspace.kinds.values();
        if kinds().any(|kind| kind.attribute(&word.text).is_some()) {
            return Ok(());
        }
        let message = format!("no kind has the attribute `{}`", word.text);
        let error = error_at(self.text, word.at, message);
        Err(match kinds().next() {
            Some(kind) => error.help(kind.suggestion(&word.text)),
            None => error,
        })
    }

    /// A pattern of targets, a stage or a file.
    fn word(&self, word: &Word) -> Result<Set, Diagnostic> {
        let graph = self.graph;
        let fail = |why: Diagnostic| {
            let error = error_at(self.text, word.at, &why.message);
            match why.help {
                Some(help) => error.help(help),
                None => error,
            }
        };
        if let Some((label, stage)) = word.text.split_once('%') {
            let is_stage = |node: &QueryNode| match node {
                QueryNode::Stage {
                    label: of, rule, ..
                } => rule == stage && of.to_string() == label,
                _ => false,
            };
            return match graph.nodes().iter().position(is_stage) {
                Some(node) => Ok([node].into()),
                None => Err(fail(
                    Diagnostic::usage(format!("there is no stage `{}` here", word.text))
                        .help("stages are written //models:siglip-tiny%place, with --actions"),
                )),
            };
        }
        if word.text.starts_with("//") {
            let labels = pattern::matching(graph.workspace, graph.targets.keys(), &word.text);
            let labels = labels.map_err(fail)?.into_iter().cloned();
            let nodes = labels.filter_map(|label| graph.find(&QueryNode::Target { label }));
            return Ok(nodes.collect());
        }
        let root = &graph.workspace.root;
        let path = relative(root, &root.join(&word.text));
        if let Some(node) = graph.find(&QueryNode::File { path: path.clone() }) {
            return Ok([node].into());
        }
        if root.join(&path).is_file() {
            // A file that no target reads.
            return Ok(Set::new());
        }
        let names: Vec<String> = graph.nodes().iter().map(ToString::to_string).collect();
        let near = nearest(&word.text, names.iter().map(String::as_str));
        let help = match near.as_slice() {
            [] => "targets begin with //, files are relative to the workspace".to_owned(),
            near => format!("did you mean {}?", crate::label::quoted_list(near)),
        };
        let message = format!("there is no target or file `{}`", word.text);
        Err(fail(Diagnostic::usage(message).help(help)))
    }

    /// A shortest path from one of `from` to one of `to`; empty if there is none.
    fn some_path(&self, from: &Set, to: &Set) -> Vec<usize> {
        let mut before: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        let mut open: VecDeque<usize> = VecDeque::new();
        for &node in from {
            before.insert(node, None);
            open.push_back(node);
        }
        while let Some(node) = open.pop_front() {
            if to.contains(&node) {
                let mut path = vec![node];
                let mut at = node;
                while let Some(Some(previous)) = before.get(&at) {
                    path.push(*previous);
                    at = *previous;
                }
                path.reverse();
                return path;
            }
            for &next in &self.graph.reads[node] {
                before.entry(next).or_insert_with(|| {
                    open.push_back(next);
                    Some(node)
                });
            }
        }
        Vec::new()
    }
}

/// `from` and everything that `edges` reach from it in at most `depth` steps, inside `within`.
fn closure(from: &Set, edges: &[Set], depth: usize, within: Option<&Set>) -> Set {
    let mut found = from.clone();
    let mut edge: Vec<usize> = from.iter().copied().collect();
    let mut steps = 0;
    while !edge.is_empty() && steps < depth {
        let mut next = Vec::new();
        for &node in edge.iter().flat_map(|&node| &edges[node]) {
            if within.is_none_or(|within| within.contains(&node)) && found.insert(node) {
                next.push(node);
            }
        }
        edge = next;
        steps += 1;
    }
    found
}
