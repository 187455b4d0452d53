//! `ipub query`: targets, stages and source files by what depends on what.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipub_base::Diagnostic;
use ipub_engine::{Action, Answer, Engine, Label, QueryNode};
use serde_json::{Value, json};

use crate::cli::{Output, Query};
use crate::exit::Outcome;
use crate::{files, open};

/// Actions by target and rule.
type Actions = BTreeMap<(Label, String), Action>;

pub fn query(args: &Query) -> Outcome {
    let text = args.words.join(" ");
    let text = text.trim();
    let (answer, actions) = if args.actions {
        let engine = open::engine()?;
        let answer = engine.query_actions(text)?;
        let actions = actions(&engine, &answer)?;
        (answer, actions)
    } else {
        (open::workspace()?.query(text)?, Actions::new())
    };
    match args.output {
        Output::Text => files::print(&as_text(&answer, &actions)),
        Output::Json => files::print(&format!("{}\n", as_json(&answer, &actions))),
        Output::Dot => files::print(&as_dot(&answer, &actions)),
    }
    Ok(())
}

/// The actions of every target that has a stage in the answer.
fn actions(engine: &Engine, answer: &Answer) -> Result<Actions, Diagnostic> {
    let labels = answer.nodes.iter().filter_map(|node| match node {
        QueryNode::Stage { label, .. } => Some(label),
        _ => None,
    });
    let labels: std::collections::BTreeSet<&Label> = labels.collect();
    let mut found = Actions::new();
    for label in labels {
        for action in engine.actions(label, &[])? {
            found.insert((label.clone(), action.rule.clone()), action);
        }
    }
    Ok(found)
}

fn action_of<'a>(actions: &'a Actions, node: &QueryNode) -> Option<&'a Action> {
    match node {
        QueryNode::Stage { label, rule, .. } => actions.get(&(label.clone(), rule.clone())),
        _ => None,
    }
}

/// The key's first digits, as far as it is known.
fn short_key(action: &Action) -> String {
    let key = action.key.map(|key| key.short().to_string());
    key.unwrap_or_else(|| "-".to_owned())
}

fn state(action: &Action) -> String {
    match action.waits_for.is_empty() {
        true => action.state.name().to_owned(),
        false => format!(
            "would run if {} output changes",
            action.waits_for.join(" or ")
        ),
    }
}

fn as_text(answer: &Answer, actions: &Actions) -> String {
    let names: Vec<String> = answer.nodes.iter().map(ToString::to_string).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (node, name) in answer.nodes.iter().zip(names) {
        // Writing to a text cannot fail.
        let _ = match action_of(actions, node) {
            Some(action) => {
                let (key, state) = (short_key(action), state(action));
                writeln!(text, "{name:width$}  {key:12}  {state}")
            }
            None => writeln!(text, "{name}"),
        };
    }
    text
}

fn as_json(answer: &Answer, actions: &Actions) -> Value {
    let nodes = answer.nodes.iter().zip(&answer.edges);
    let nodes = nodes.map(|(node, reads)| {
        let mut value = json!(node);
        value["name"] = node.to_string().into();
        let reads = reads.iter().map(|&read| answer.nodes[read].to_string());
        value["reads"] = reads.collect::<Vec<_>>().into();
        if let Some(action) = action_of(actions, node) {
            value["key"] = json!(action.key);
            value["state"] = json!(action.state);
            value["waits_for"] = json!(action.waits_for);
        }
        value
    });
    json!({ "nodes": nodes.collect::<Vec<_>>() })
}

fn as_dot(answer: &Answer, actions: &Actions) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = "digraph ipub {\n  rankdir = LR;\n  node [shape = box];\n".to_owned();
    for (index, (node, reads)) in answer.nodes.iter().zip(&answer.edges).enumerate() {
        let mut label = node.to_string();
        if let Some(action) = action_of(actions, node) {
            label += &format!("\n{} {}", short_key(action), action.state.name());
        }
        let label = quoted(&label).replace('\n', "\\n");
        let _ = writeln!(text, "  n{index} [label = {label}];");
        for read in reads {
            let _ = writeln!(text, "  n{index} -> n{read};");
        }
    }
    text + "}\n"
}
