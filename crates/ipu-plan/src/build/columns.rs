//! Device columns of each value: logical columns and the padding that their readers need.

use ipu_ir::graph::{Graph, OpKind, ValueId};
use ipu_ir::layout::Extent;

use super::PlanError;
use crate::policy::Precision;

/// What the readers of a value ask of its columns.
enum Demand {
    /// A multiple of this many columns.
    Multiple(u32),
    /// Heads of this depth, each padded to whole panels of 16.
    Heads(u32),
}

/// The device columns of every value.
pub(crate) fn extents(graph: &Graph, precision: &Precision) -> Result<Vec<Extent>, PlanError> {
    let readers = readers(graph);
    (0..graph.values.len() as u32)
        .map(|index| {
            let id = ValueId(index);
            let columns = graph.columns(id);
            Ok(match demand(graph, precision, &readers, id) {
                Demand::Multiple(multiple) => Extent::padded(columns, multiple),
                Demand::Heads(depth) => Extent {
                    groups: columns / depth,
                    logical: depth,
                    padded: depth.next_multiple_of(16),
                },
            })
        })
        .collect()
}

/// Operations that read each value.
fn readers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); graph.values.len()];
    for (index, op) in graph.ops.iter().enumerate() {
        for operand in op.kind.operands() {
            readers[operand.0 as usize].push(index);
        }
    }
    readers
}

fn demand(graph: &Graph, precision: &Precision, readers: &[Vec<usize>], id: ValueId) -> Demand {
    // A joined or split value has its heads' panels.
    if let Some(depth) = head_depth(graph, id) {
        return Demand::Heads(depth);
    }
    let mut multiple = 16;
    for reader in &readers[id.0 as usize] {
        let op = &graph.ops[*reader];
        let below = match &op.kind {
            OpKind::Gemm { x, .. } if *x == id => {
                multiple = multiple.max(precision.gemm(&op.name).group());
                continue;
            }
            OpKind::SliceColumns { .. } => demand(graph, precision, readers, op.results[0]),
            OpKind::SplitHeads { heads, .. } => Demand::Heads(graph.columns(id) / heads),
            OpKind::Bias { x, .. } | OpKind::Gelu { x } if *x == id => {
                demand(graph, precision, readers, op.results[0])
            }
            _ => continue,
        };
        match below {
            Demand::Multiple(value) => multiple = multiple.max(value),
            heads @ Demand::Heads(_) => return heads,
        }
    }
    Demand::Multiple(multiple)
}

fn head_depth(graph: &Graph, id: ValueId) -> Option<u32> {
    let shape = &graph.value(id).shape;
    if shape.len() == 3 {
        return Some(shape[2]);
    }
    let producer = graph.ops.iter().find(|op| op.results.contains(&id))?;
    match &producer.kind {
        OpKind::JoinHeads { x } => Some(graph.value(*x).shape[2]),
        _ => None,
    }
}
