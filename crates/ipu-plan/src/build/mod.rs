//! Construction of the mid from a graph, a precision policy and a recipe.
//!
//! Input: graph, precision, recipe, tiles. Output: a mid without undecided nodes.
//! Invariants: rows of the residual stream live one or more to a tile, row-major; results of a
//! GEMM live in the pieces of its result grid, in 16-column panels; whatever a product reads
//! beyond logical data is zero.
//! Not here: how decisions are found.

mod attention;
pub(crate) mod casts;
pub(crate) mod columns;
mod gemm;
mod grid;
mod heads;
mod rows;

use std::collections::BTreeMap;

use ipu_ir::contract::MemoryClass;
use ipu_ir::graph::{Graph, OpId, OpKind, Region, ValueDef, ValueId};
use ipu_ir::layout::{Cuts, Extent, Layout, Owner, Split, Tiling};
use ipu_ir::mid::{
    Compute, Copy, Exchange, Filter, Measure, Mid, Operand, ScalarRule, Step, Storage, Tensor,
    TensorId, View,
};
use ipu_package::{Dtype, Order};
use thiserror::Error;

use crate::policy::Precision;
use crate::recipe::Recipe;

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("the recipe has no entry for {0}")]
    Missing(String),
    #[error("{operation}: {what}")]
    Illegal { operation: String, what: String },
    #[error("{operation} is not supported here: {what}")]
    Unsupported { operation: String, what: String },
    #[error("{operation}: {what}")]
    Fault { operation: String, what: String },
    #[error("the mid is not consistent: {0}")]
    Mid(#[from] ipu_ir::mid::MidError),
}

/// Build and verify the mid that a recipe decides.
pub fn build(
    graph: &Graph,
    precision: &Precision,
    recipe: &Recipe,
    tiles: u32,
) -> Result<Mid, PlanError> {
    let mid = draft(graph, precision, recipe, tiles)?;
    mid.verify()?;
    Ok(mid)
}

/// Build a mid to price it.
pub(crate) fn draft(
    graph: &Graph,
    precision: &Precision,
    recipe: &Recipe,
    tiles: u32,
) -> Result<Mid, PlanError> {
    let mut builder = Builder {
        graph,
        precision,
        recipe,
        mid: Mid {
            tiles,
            tensors: Vec::new(),
            steps: Vec::new(),
        },
        columns: columns::extents(graph, precision)?,
        homes: vec![None; graph.values.len()],
        members: BTreeMap::new(),
        yield_home: None,
        homes_end: 0,
    };
    builder.inputs();
    builder.region(&graph.top)?;
    builder.outputs()?;
    Ok(builder.mid)
}

/// Where a value stands, and how its coordinates are found there.
#[derive(Clone, Copy, Debug)]
struct Home {
    tensor: TensorId,
    view: HomeView,
}

#[derive(Clone, Copy, Debug)]
enum HomeView {
    /// Columns from this device column on.
    Flat { column: u32 },
    /// Heads of a flat tensor.
    Split {
        heads: u32,
        tokens: u32,
        depth: u32,
        column: u32,
    },
    /// A grouped tensor read as rows of all heads.
    Joined { heads: u32, tokens: u32, depth: u32 },
}

impl HomeView {
    const fn as_view(self) -> View {
        match self {
            HomeView::Flat { column } => View::Same { group: 0, column },
            HomeView::Split {
                heads,
                tokens,
                depth,
                column,
            } => View::SplitHeads {
                heads,
                tokens,
                depth,
                column,
            },
            HomeView::Joined {
                heads,
                tokens,
                depth,
            } => View::JoinHeads {
                heads,
                tokens,
                depth,
            },
        }
    }
}

struct Builder<'a> {
    graph: &'a Graph,
    precision: &'a Precision,
    recipe: &'a Recipe,
    mid: Mid,
    /// Device columns of each value.
    columns: Vec<Extent>,
    homes: Vec<Option<Home>>,
    /// Parameter names behind the iterated arguments of the region being built.
    members: BTreeMap<ValueId, Vec<String>>,
    /// In a `Repeat` body: the value that is yielded, and the carried tensor it must be written to.
    yield_home: Option<(ValueId, TensorId)>,
    /// Tile after the last spread home.
    homes_end: u32,
}

impl Builder<'_> {
    fn inputs(&mut self) {
        for value in &self.graph.top.args {
            let name = self.graph.value(*value).name.clone();
            let layout = self.row_layout(*value);
            let tensor = self.row_tensor(*value, &name, layout, Storage::Input(name.clone()));
            self.homes[value.0 as usize] = Some(Home {
                tensor,
                view: HomeView::Flat { column: 0 },
            });
        }
    }

    fn outputs(&mut self) -> Result<(), PlanError> {
        for value in &self.graph.top.yields {
            let home = self.home(*value);
            let name = self.graph.value(*value).name.clone();
            let columns = self.columns[value.0 as usize];
            let tensor = &mut self.mid.tensors[home.tensor.0 as usize];
            if !matches!(home.view, HomeView::Flat { column: 0 }) {
                return Err(PlanError::Unsupported {
                    operation: name,
                    what: "a view as output".to_owned(),
                });
            }
            tensor.columns = columns;
            tensor.storage = Storage::Output(name);
        }
        Ok(())
    }

    fn region(&mut self, region: &Region) -> Result<(), PlanError> {
        region.ops.iter().try_for_each(|op| self.op(*op))
    }

    fn op(&mut self, id: OpId) -> Result<(), PlanError> {
        let graph = self.graph;
        let op = graph.op(id);
        let result = op.results[0];
        match &op.kind {
            OpKind::Gemm { x, w } => self.gemm(&op.name, *x, *w, result),
            OpKind::Bias { x, b } => self.bias(&op.name, *x, *b, result),
            OpKind::Gelu { x } => self.gelu(&op.name, *x, result),
            OpKind::Add { a, b } => self.add(&op.name, *a, *b, result),
            OpKind::LayerNorm {
                x,
                scale,
                bias,
                epsilon,
            } => self.layer_norm(&op.name, *x, [*scale, *bias], *epsilon, result),
            OpKind::SliceColumns { x, first, .. } => {
                let home = self.home(*x);
                let extent = self.columns[x.0 as usize];
                let column = first / extent.logical * extent.padded + first % extent.logical;
                self.set_home(result, home.tensor, HomeView::Flat { column });
                Ok(())
            }
            OpKind::SplitHeads { x, heads } => self.split_heads(&op.name, *x, *heads, result),
            OpKind::Attention { q, k, v, scale } => {
                self.attention(&op.name, [*q, *k, *v], *scale, result)
            }
            OpKind::JoinHeads { x } => {
                let home = self.home(*x);
                let depth = self.mid.tensor(home.tensor).columns.size();
                let heads = graph.value(*x).shape[0] / graph.batch;
                let tokens = graph.value(*x).shape[1];
                self.set_home(
                    result,
                    home.tensor,
                    HomeView::Joined {
                        heads,
                        tokens,
                        depth,
                    },
                );
                Ok(())
            }
            OpKind::Repeat {
                count,
                carried,
                iterated,
                body,
            } => self.repeat(id, *count, carried, iterated, body),
        }
    }

    fn split_heads(
        &mut self,
        name: &str,
        x: ValueId,
        heads: u32,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let home = self.home(x);
        let HomeView::Flat { column } = home.view else {
            return Err(PlanError::Unsupported {
                operation: name.to_owned(),
                what: "heads of a view".to_owned(),
            });
        };
        let tokens = self.graph.value(result).shape[1];
        let depth = self.columns[result.0 as usize].padded;
        self.set_home(
            result,
            home.tensor,
            HomeView::Split {
                heads,
                tokens,
                depth,
                column,
            },
        );
        Ok(())
    }

    fn repeat(
        &mut self,
        id: OpId,
        count: u32,
        carried: &[ValueId],
        iterated: &[Vec<ValueId>],
        body: &Region,
    ) -> Result<(), PlanError> {
        let graph = self.graph;
        let op = graph.op(id);
        let [initial] = carried else {
            return Err(PlanError::Unsupported {
                operation: op.name.clone(),
                what: "more than one carried value".to_owned(),
            });
        };
        let state = self.home(*initial);
        self.homes[body.args[0].0 as usize] = Some(state);
        for (arg, sequence) in body.args[1..].iter().zip(iterated) {
            let names = sequence
                .iter()
                .map(|value| graph.value(*value).name.clone())
                .collect();
            self.members.insert(*arg, names);
        }
        let outer = std::mem::take(&mut self.mid.steps);
        self.yield_home = Some((body.yields[0], state.tensor));
        self.region(body)?;
        self.yield_home = None;
        let body_steps = std::mem::replace(&mut self.mid.steps, outer);
        self.mid.steps.push(Step::Repeat {
            count,
            body: body_steps,
        });
        self.homes[op.results[0].0 as usize] = Some(state);
        Ok(())
    }

    // ---- words of construction -------------------------------------------------------------

    fn home(&self, value: ValueId) -> Home {
        self.homes[value.0 as usize].expect("operations stand after what they read")
    }

    fn set_home(&mut self, value: ValueId, tensor: TensorId, view: HomeView) {
        self.homes[value.0 as usize] = Some(Home { tensor, view });
    }

    fn tensor(&mut self, tensor: Tensor) -> TensorId {
        self.mid.tensors.push(tensor);
        TensorId(self.mid.tensors.len() as u32 - 1)
    }

    /// Names of a parameter: one for each iteration when it is iterated.
    fn parameter(&self, value: ValueId) -> Vec<String> {
        match &self.graph.value(value).def {
            ValueDef::Iterated { .. } => self.members[&value].clone(),
            _ => vec![self.graph.value(value).name.clone()],
        }
    }

    /// First tile of a home that is spread over `parts` tiles: after the home before, so that all
    /// tiles fill alike.
    fn next_home(&mut self, parts: u32) -> u32 {
        let base = self.homes_end;
        self.homes_end = (base + parts) % self.mid.tiles;
        base
    }

    fn exchange(&mut self, operation: &str, label: &str, copies: Vec<Copy>) {
        self.mid.steps.push(Step::Exchange(Exchange {
            operation: operation.to_owned(),
            label: label.to_owned(),
            copies,
        }));
    }

    fn compute(
        &mut self,
        operation: &str,
        label: &str,
        kernel: &str,
        operands: &[(&str, TensorId)],
        scalars: &[(&str, ScalarRule)],
    ) {
        self.mid.steps.push(Step::Compute(Compute {
            operation: operation.to_owned(),
            label: label.to_owned(),
            kernel: kernel.to_owned(),
            operands: operands
                .iter()
                .map(|(argument, tensor)| Operand {
                    argument: (*argument).to_owned(),
                    tensor: *tensor,
                })
                .collect(),
            scalars: scalars
                .iter()
                .map(|(name, rule)| ((*name).to_owned(), rule.clone()))
                .collect(),
            only: Filter::All,
        }));
    }

    /// Zero the shards of a tensor that hold padding.
    fn clear_padding(&mut self, operation: &str, tensor: TensorId) {
        let padded = {
            let tensor = self.mid.tensor(tensor);
            tensor.rows.logical != tensor.rows.padded
                || tensor.columns.logical != tensor.columns.padded
        };
        if padded {
            self.compute(
                operation,
                "clear",
                "fill_u32",
                &[("out", tensor)],
                &[
                    ("count", measure("out", Measure::Bytes, 4)),
                    ("value", ScalarRule::Const(0)),
                ],
            );
            if let Some(Step::Compute(compute)) = self.mid.steps.last_mut() {
                compute.only = Filter::Padded;
            }
        }
    }
}

/// A scalar that measures an operand's shard.
fn measure(argument: &str, measure: Measure, divisor: u32) -> ScalarRule {
    ScalarRule::Measure {
        argument: argument.to_owned(),
        measure,
        divisor,
    }
}

fn copy(source: TensorId, destination: TensorId, view: View) -> Copy {
    Copy {
        source,
        destination,
        view,
    }
}

fn layout(dtype: Dtype, order: Order, class: MemoryClass, tiling: Tiling) -> Layout {
    Layout {
        dtype,
        order,
        class,
        tiling,
    }
}

/// A tiling of one part on one tile for each coordinate that the fields name.
fn tiling(groups: Split, rows: Cuts, columns: Cuts, owner: Owner) -> Tiling {
    Tiling {
        groups,
        rows,
        columns,
        owner,
    }
}
