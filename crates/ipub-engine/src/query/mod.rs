//! Queries over targets, their stages and the source files that they read.
//!
//! Input: an expression such as `rdeps(//..., models/specs/a.toml) - //models:x`, a workspace.
//! Output: nodes of the graph and the edges among them; for stages also key and status.
//! Invariants: nothing runs; an answer depends on no order of files on disk.
//! Not here: how answers are printed.

mod actions;
mod affected;
mod evaluate;
mod graph;
mod parse;
mod pattern;
mod regex;

use ipub_base::Diagnostic;
use serde::Serialize;

pub use actions::{Action, ActionState};
pub use affected::Affected;
pub use graph::QueryNode;
pub use pattern::expand_patterns;

use crate::engine::Engine;
use crate::workspace::Workspace;
use graph::Graph;

/// What a query found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// What was found, sorted; along the path for `somepath`.
    pub nodes: Vec<QueryNode>,
    /// For each of them, the positions of those among them that it reads.
    pub edges: Vec<Vec<usize>>,
}

impl Workspace {
    /// What `text` asks for, among targets and source files.
    pub fn query(&self, text: &str) -> Result<Answer, Diagnostic> {
        let graph = Graph::of_targets(self)?;
        answer(&graph, text)
    }
}

impl Engine {
    /// What `text` asks for, among targets, their stages and source files. An answer of targets
    /// alone is given by their stages.
    pub fn query_actions(&self, text: &str) -> Result<Answer, Diagnostic> {
        let graph = Graph::of_stages(self.workspace())?;
        let found = evaluate::evaluate(&graph, text, &parse::parse(text)?)?;
        let is_target = |&node: &usize| matches!(graph.node(node), QueryNode::Target { .. });
        if !found.iter().all(is_target) {
            return Ok(graph.answer(&found));
        }
        let stages = |node: usize| graph.stages_of(node);
        Ok(graph.answer(&found.into_iter().flat_map(stages).collect::<Vec<_>>()))
    }
}

fn answer(graph: &Graph, text: &str) -> Result<Answer, Diagnostic> {
    let found = evaluate::evaluate(graph, text, &parse::parse(text)?)?;
    Ok(graph.answer(&found))
}

/// An error in the expression `text` at byte `at`, with the place marked.
fn error_at(text: &str, at: usize, why: impl std::fmt::Display) -> Diagnostic {
    let before = text.get(..at).unwrap_or(text).chars().count();
    let column = before + 1;
    let pad = " ".repeat(before);
    let text = text.replace(['\n', '\t'], " ");
    Diagnostic::usage(format!("query, column {column}: {why}\n  {text}\n  {pad}^"))
}

#[cfg(test)]
mod tests;
