//! Runs a graph, operation by operation.
//!
//! Input: a graph, parameters by value, input tensors. Output: the graph's output tensors.
//! Invariants: a parameter is asked for when an operation reads it and dropped after it; a value
//! is freed after its last use.
//! Not here: the arithmetic of an operation.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ipu_ir::graph::{Graph, GraphError, Op, OpId, OpKind, Region, ValueDef, ValueId};
use ipu_model::WeightError;
use thiserror::Error;

use crate::operations::{self, AttentionShape};
use crate::product::{Right, Threads, multiply};
use crate::quantise::{Operand, Policy, Quantise};

/// The matrix of a parameter, row-major, in the shape of its value.
pub type Params<'a> = dyn Fn(ValueId) -> Result<Vec<f32>, WeightError> + 'a;

#[derive(Debug, Error)]
pub enum EvaluateError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Weights(#[from] WeightError),
    #[error("the graph has {expected} inputs, {found} were given")]
    Inputs { expected: usize, found: usize },
    #[error("`{name}` has {expected} elements, {found} were given")]
    Length {
        name: String,
        expected: usize,
        found: usize,
    },
}

/// The graph's outputs in FP32.
pub fn evaluate(
    graph: &Graph,
    params: &Params,
    inputs: &[Vec<f32>],
) -> Result<Vec<Vec<f32>>, EvaluateError> {
    Evaluator::new(graph, params, None)?.outputs(inputs)
}

/// The graph's outputs in the precision of the device: parameters, inputs and the result of each
/// operation are F16; operands of products are rounded as `policy` says; sums are F32. A weight
/// goes from F32 to the format of its product directly.
pub fn evaluate_quantised(
    graph: &Graph,
    params: &Params,
    inputs: &[Vec<f32>],
    policy: &Policy,
) -> Result<Vec<Vec<f32>>, EvaluateError> {
    Evaluator::new(graph, params, Some(policy))?.outputs(inputs)
}

struct Evaluator<'a> {
    graph: &'a Graph,
    params: &'a Params<'a>,
    /// Absent: FP32 throughout.
    policy: Option<&'a Policy<'a>>,
    /// Values alive, by id.
    alive: Vec<Option<Vec<f32>>>,
    /// The sequence member that an iterated argument stands for in the current iteration.
    members: Vec<Option<ValueId>>,
}

impl<'a> Evaluator<'a> {
    fn new(
        graph: &'a Graph,
        params: &'a Params<'a>,
        policy: Option<&'a Policy<'a>>,
    ) -> Result<Evaluator<'a>, EvaluateError> {
        graph.verify()?;
        Ok(Evaluator {
            graph,
            params,
            policy,
            alive: vec![None; graph.values.len()],
            members: vec![None; graph.values.len()],
        })
    }

    fn outputs(mut self, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, EvaluateError> {
        let top = &self.graph.top;
        if inputs.len() != top.args.len() {
            return Err(EvaluateError::Inputs {
                expected: top.args.len(),
                found: inputs.len(),
            });
        }
        for (arg, input) in top.args.iter().zip(inputs) {
            self.check_length(*arg, input)?;
            let mut input = input.clone();
            self.round_to_f16(&mut input);
            self.alive[arg.0 as usize] = Some(input);
        }
        self.region(top)?;
        let yields = top.yields.iter();
        yields
            .map(|value| self.read(*value).map(Cow::into_owned))
            .collect()
    }

    fn check_length(&self, value: ValueId, elements: &[f32]) -> Result<(), EvaluateError> {
        let value = self.graph.value(value);
        let expected = value.shape.iter().map(|extent| *extent as usize).product();
        if elements.len() == expected {
            Ok(())
        } else {
            Err(EvaluateError::Length {
                name: value.name.clone(),
                expected,
                found: elements.len(),
            })
        }
    }

    fn round_to_f16(&self, elements: &mut [f32]) {
        if self.policy.is_some() {
            Quantise::F16.apply(elements);
        }
    }

    fn region(&mut self, region: &Region) -> Result<(), EvaluateError> {
        for (id, dying) in region.ops.iter().zip(last_uses(self.graph, region)) {
            self.op(*id, &dying)?;
            for value in dying {
                self.alive[value.0 as usize] = None;
            }
        }
        Ok(())
    }

    fn op(&mut self, id: OpId, dying: &[ValueId]) -> Result<(), EvaluateError> {
        let op = self.graph.op(id);
        if let OpKind::Repeat { .. } = op.kind {
            return self.repeat(op);
        }
        let mut result = self.result(op, dying)?;
        self.round_to_f16(&mut result);
        self.alive[op.results[0].0 as usize] = Some(result);
        Ok(())
    }

    fn result(&mut self, op: &Op, dying: &[ValueId]) -> Result<Vec<f32>, EvaluateError> {
        let graph = self.graph;
        let extent = |value: ValueId, axis: usize| graph.value(value).shape[axis] as usize;
        Ok(match &op.kind {
            OpKind::Gemm { x, w } => {
                let left = self.operand(op, *x, Operand::Activation)?;
                let right = self.operand(op, *w, Operand::Weight)?;
                let inner = extent(*x, 1);
                multiply(&left, &right, inner, Right::Transposed, Threads::All)
            }
            OpKind::Bias { x, b } | OpKind::Add { a: x, b } => {
                let addend = self.read(*b)?.into_owned();
                let mut sum = self.owned(*x, dying)?;
                operations::add_rows(&mut sum, &addend);
                sum
            }
            OpKind::LayerNorm {
                x,
                scale,
                bias,
                epsilon,
            } => {
                let (scale, bias) = (self.read(*scale)?, self.read(*bias)?);
                operations::layer_norm(&self.read(*x)?, &scale, &bias, *epsilon)
            }
            OpKind::SliceColumns { x, first, columns } => {
                let (first, width) = (*first as usize, *columns as usize);
                operations::slice_columns(&self.read(*x)?, extent(*x, 1), first, width)
            }
            OpKind::SplitHeads { x, heads } => {
                let shape = &graph.value(op.results[0]).shape;
                let (tokens, depth) = (shape[1] as usize, shape[2] as usize);
                operations::swap_middle(&self.read(*x)?, tokens, *heads as usize, depth)
            }
            OpKind::JoinHeads { x } => {
                let heads = extent(*x, 0) / graph.batch as usize;
                operations::swap_middle(&self.read(*x)?, heads, extent(*x, 1), extent(*x, 2))
            }
            OpKind::Attention { q, k, v, scale } => {
                let shape = AttentionShape {
                    queries: extent(*q, 1),
                    keys: extent(*k, 1),
                    depth: extent(*q, 2),
                    scale: *scale,
                };
                let probabilities = self.policy.map(|policy| {
                    policy(&op.name, Operand::Probabilities).unwrap_or(Quantise::F16)
                });
                let q = self.operand(op, *q, Operand::Query)?;
                let k = self.operand(op, *k, Operand::Key)?;
                let v = self.operand(op, *v, Operand::Value)?;
                operations::attention(&q, &k, &v, shape, probabilities)
            }
            OpKind::Gelu { x } => {
                let mut x = self.owned(*x, dying)?;
                operations::gelu(&mut x);
                x
            }
            OpKind::Repeat { .. } => unreachable!("a loop has its own function"),
        })
    }

    fn repeat(&mut self, op: &Op) -> Result<(), EvaluateError> {
        let OpKind::Repeat {
            count,
            carried,
            iterated,
            body,
        } = &op.kind
        else {
            unreachable!("called for loops only");
        };
        let mut state = Vec::new();
        for value in carried {
            state.push(self.read(*value)?.into_owned());
        }
        let (carried_args, iterated_args) = body.args.split_at(carried.len());
        for iteration in 0..*count as usize {
            for (arg, value) in carried_args.iter().zip(state) {
                self.alive[arg.0 as usize] = Some(value);
            }
            for (arg, sequence) in iterated_args.iter().zip(iterated) {
                self.members[arg.0 as usize] = Some(sequence[iteration]);
            }
            self.region(body)?;
            state = Vec::new();
            for value in &body.yields {
                state.push(self.read(*value)?.into_owned());
            }
            for value in &body.yields {
                if matches!(self.graph.value(*value).def, ValueDef::Result(id) if body.ops.contains(&id))
                {
                    self.alive[value.0 as usize] = None;
                }
            }
        }
        for (result, value) in op.results.iter().zip(state) {
            self.alive[result.0 as usize] = Some(value);
        }
        Ok(())
    }

    /// The sequence member behind an iterated argument; any other value is itself.
    fn resolve(&self, value: ValueId) -> ValueId {
        match self.members[value.0 as usize] {
            Some(member) => self.resolve(member),
            None => value,
        }
    }

    /// A value's elements; a parameter as stored, in F32.
    fn stored(&self, value: ValueId) -> Result<Cow<'_, [f32]>, EvaluateError> {
        let value = self.resolve(value);
        if let ValueDef::Param(_) = self.graph.value(value).def {
            let elements = (self.params)(value)?;
            self.check_length(value, &elements)?;
            return Ok(Cow::Owned(elements));
        }
        let elements = self.alive[value.0 as usize].as_deref();
        Ok(Cow::Borrowed(elements.expect("a verified use is alive")))
    }

    /// A value's elements in the precision of values.
    fn read(&self, value: ValueId) -> Result<Cow<'_, [f32]>, EvaluateError> {
        let mut elements = self.stored(value)?;
        if let Cow::Owned(elements) = &mut elements {
            self.round_to_f16(elements);
        }
        Ok(elements)
    }

    /// An operand of a product, rounded as planned.
    fn operand(
        &self,
        op: &Op,
        value: ValueId,
        role: Operand,
    ) -> Result<Cow<'_, [f32]>, EvaluateError> {
        let Some(policy) = self.policy else {
            return self.stored(value);
        };
        match policy(&op.name, role) {
            None | Some(Quantise::F16) => self.read(value),
            Some(format) => {
                let mut elements = self.stored(value)?.into_owned();
                format.apply(&mut elements);
                Ok(Cow::Owned(elements))
            }
        }
    }

    /// A value's elements to overwrite: taken if this is the last use, else copied.
    fn owned(&mut self, value: ValueId, dying: &[ValueId]) -> Result<Vec<f32>, EvaluateError> {
        if dying.contains(&value)
            && let Some(elements) = self.alive[value.0 as usize].take()
        {
            return Ok(elements);
        }
        self.read(value).map(Cow::into_owned)
    }
}

/// For each operation of a region, the values defined in it whose last use is there.
fn last_uses(graph: &Graph, region: &Region) -> Vec<Vec<ValueId>> {
    let mut last: BTreeMap<ValueId, usize> = region.args.iter().map(|arg| (*arg, 0)).collect();
    for (position, id) in region.ops.iter().enumerate() {
        each_use(graph, *id, &mut |value| {
            if let Some(known) = last.get_mut(&value) {
                *known = position;
            }
        });
        let results = graph.op(*id).results.iter();
        last.extend(results.map(|result| (*result, position)));
    }
    for value in &region.yields {
        last.remove(value);
    }
    let mut dying = vec![Vec::new(); region.ops.len()];
    for (value, position) in last {
        if let Some(dying) = dying.get_mut(position) {
            dying.push(value);
        }
    }
    dying
}

/// Everything that an operation reads, inside its body too.
fn each_use(graph: &Graph, id: OpId, visit: &mut dyn FnMut(ValueId)) {
    let kind = &graph.op(id).kind;
    kind.operands().into_iter().for_each(&mut *visit);
    if let OpKind::Repeat { body, .. } = kind {
        body.ops
            .iter()
            .for_each(|inner| each_use(graph, *inner, visit));
        body.yields.iter().copied().for_each(visit);
    }
}
