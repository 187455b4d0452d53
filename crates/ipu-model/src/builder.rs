//! Builds a graph in construction order, giving each operation and value the next id.
//!
//! Input: operations with their operands. Output: a [`Graph`].
//! Invariants: result shapes follow from the operands; an operation named `n` yields `n.out`.
//! Not here: which operations a model has.

use ipu_ir::graph::{Graph, Op, OpId, OpKind, Param, Region, Value, ValueDef, ValueId};

pub(crate) struct Builder {
    graph: Graph,
    /// Operations of the region under construction.
    region: Vec<OpId>,
}

impl Builder {
    pub fn new(name: &str, batch: u32) -> Builder {
        Builder {
            graph: Graph {
                name: name.to_owned(),
                batch,
                values: Vec::new(),
                ops: Vec::new(),
                top: Region::default(),
            },
            region: Vec::new(),
        }
    }

    pub fn batch(&self) -> u32 {
        self.graph.batch
    }

    pub fn finish(mut self, output: ValueId) -> Graph {
        self.graph.top.ops = self.region;
        self.graph.top.yields = vec![output];
        self.graph
    }

    pub fn value(&mut self, name: impl Into<String>, shape: Vec<u32>, def: ValueDef) -> ValueId {
        let id = ValueId(self.graph.values.len() as u32);
        self.graph.values.push(Value {
            name: name.into(),
            shape,
            def,
        });
        id
    }

    pub fn input(&mut self, name: &str, rows: u32, columns: u32) -> ValueId {
        let id = self.value(name, vec![rows, columns], ValueDef::Input);
        self.graph.top.args.push(id);
        id
    }

    pub fn param(&mut self, (name, shape, param): (String, [u32; 2], Param)) -> ValueId {
        self.value(name, shape.to_vec(), ValueDef::Param(param))
    }

    pub fn shape(&self, value: ValueId) -> &[u32] {
        &self.graph.value(value).shape
    }

    fn op(&mut self, name: String, kind: OpKind, shape: Vec<u32>) -> ValueId {
        let id = OpId(self.graph.ops.len() as u32);
        let result = self.value(format!("{name}.out"), shape, ValueDef::Result(id));
        self.graph.ops.push(Op {
            name,
            kind,
            results: vec![result],
        });
        self.region.push(id);
        result
    }

    pub fn gemm(&mut self, name: impl Into<String>, x: ValueId, w: ValueId) -> ValueId {
        let shape = vec![self.shape(x)[0], self.shape(w)[0]];
        self.op(name.into(), OpKind::Gemm { x, w }, shape)
    }

    pub fn bias(&mut self, name: impl Into<String>, x: ValueId, b: ValueId) -> ValueId {
        let shape = self.shape(x).to_vec();
        self.op(name.into(), OpKind::Bias { x, b }, shape)
    }

    /// A linear layer: a GEMM `name` and a bias `name.bias`.
    pub fn linear(&mut self, name: &str, x: ValueId, [w, b]: [ValueId; 2]) -> ValueId {
        let product = self.gemm(name, x, w);
        self.bias(format!("{name}.bias"), product, b)
    }

    pub fn add(&mut self, name: impl Into<String>, a: ValueId, b: ValueId) -> ValueId {
        let shape = self.shape(a).to_vec();
        self.op(name.into(), OpKind::Add { a, b }, shape)
    }

    pub fn layer_norm(
        &mut self,
        name: impl Into<String>,
        x: ValueId,
        [scale, bias]: [ValueId; 2],
        epsilon: f32,
    ) -> ValueId {
        let shape = self.shape(x).to_vec();
        let kind = OpKind::LayerNorm {
            x,
            scale,
            bias,
            epsilon,
        };
        self.op(name.into(), kind, shape)
    }

    /// Columns `[index * columns, (index + 1) * columns)`.
    pub fn slice(&mut self, name: String, x: ValueId, index: u32, columns: u32) -> ValueId {
        let shape = vec![self.shape(x)[0], columns];
        let kind = OpKind::SliceColumns {
            x,
            first: index * columns,
            columns,
        };
        self.op(name, kind, shape)
    }

    pub fn split_heads(&mut self, name: String, x: ValueId, heads: u32) -> ValueId {
        let batch = self.graph.batch;
        let shape = self.shape(x);
        let shape = vec![batch * heads, shape[0] / batch, shape[1] / heads];
        self.op(name, OpKind::SplitHeads { x, heads }, shape)
    }

    /// Scaled dot-product attention, with the scale `depth^-0.5`.
    pub fn attention(&mut self, name: String, [q, k, v]: [ValueId; 3]) -> ValueId {
        let shape = self.shape(q).to_vec();
        let scale = (1.0 / f64::from(shape[2]).sqrt()) as f32;
        self.op(name, OpKind::Attention { q, k, v, scale }, shape)
    }

    pub fn join_heads(&mut self, name: String, x: ValueId) -> ValueId {
        let batch = self.graph.batch;
        let shape = self.shape(x);
        let shape = vec![batch * shape[1], shape[0] / batch * shape[2]];
        self.op(name, OpKind::JoinHeads { x }, shape)
    }

    pub fn gelu(&mut self, name: impl Into<String>, x: ValueId) -> ValueId {
        let shape = self.shape(x).to_vec();
        self.op(name.into(), OpKind::Gelu { x }, shape)
    }

    /// A loop named `name` over parameter sequences, with one carried value that begins as `x`.
    /// `leaves` names the iterated arguments; `body` gets the carried value and those arguments.
    pub fn repeat(
        &mut self,
        name: &str,
        x: ValueId,
        iterated: Vec<Vec<ValueId>>,
        leaves: &[&str],
        body: impl FnOnce(&mut Builder, ValueId, &[ValueId]) -> ValueId,
    ) -> ValueId {
        let shape = self.shape(x).to_vec();
        let carried = ValueDef::Carried { index: 0 };
        let mut args = vec![self.value(format!("{name}.carried"), shape.clone(), carried)];
        for (index, (sequence, leaf)) in iterated.iter().zip(leaves).enumerate() {
            let member = self.shape(sequence[0]).to_vec();
            let def = ValueDef::Iterated {
                index: index as u32,
            };
            args.push(self.value(format!("{name}.{leaf}"), member, def));
        }
        let outer = std::mem::take(&mut self.region);
        let next = body(self, args[0], &args[1..]);
        let ops = std::mem::replace(&mut self.region, outer);
        let kind = OpKind::Repeat {
            count: iterated.first().map_or(0, Vec::len) as u32,
            carried: vec![x],
            iterated,
            body: Region {
                args,
                ops,
                yields: vec![next],
            },
        };
        self.op(name.to_owned(), kind, shape)
    }
}
