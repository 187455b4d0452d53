//! Operations on rows of the residual stream and on pieces: bias, GELU, add, LayerNorm.

use ipu_ir::contract::MemoryClass;
use ipu_ir::graph::{OpKind, ValueId};
use ipu_ir::layout::{Cuts, Extent, Layout, Owner, Replicas, Split, Tiling};
use ipu_ir::mid::{Measure, ScalarRule, Storage, Tensor, TensorId, View};
use ipu_package::{Dtype, Order};

use super::{Builder, Home, HomeView, PlanError, copy, layout, measure, tiling};

/// Columns of one part of a row parameter's home.
const HOME_GRAIN: u32 = 16;

impl Builder<'_> {
    /// Rows of a value, one or more to a tile: parts are spread evenly over the tiles from the middle
    /// on, batch member outermost. The rows of one row part of a compute grid are then half the chip
    /// away from it: a tile that multiplied its own row would split a pair that receives 64 bits at a
    /// time.
    pub(super) fn row_layout(&self, value: ValueId) -> Layout {
        let batch = self.graph.batch;
        let tokens = self.graph.rows(value) / batch;
        let parts = tokens.min(self.mid.tiles / batch);
        let step = self.mid.tiles / (batch * parts);
        layout(
            Dtype::F16,
            Order::RowMajor,
            MemoryClass::Standard,
            tiling(
                Split::WHOLE,
                Cuts {
                    outer: Split::new(batch, tokens),
                    inner: Split::new(parts, 1),
                },
                Cuts::WHOLE,
                Owner {
                    base: self.mid.tiles / 2,
                    row: (parts * step, step),
                    ..Owner::default()
                },
            ),
        )
    }

    pub(super) fn row_tensor(
        &mut self,
        value: ValueId,
        name: &str,
        layout: Layout,
        storage: Storage,
    ) -> TensorId {
        let from_host = !matches!(storage, Storage::Transient);
        let columns = self.columns[value.0 as usize];
        self.tensor(Tensor {
            name: name.to_owned(),
            groups: 1,
            rows: Extent::plain(self.graph.rows(value)),
            columns: if from_host {
                columns
            } else {
                Extent::plain(columns.size())
            },
            layout,
            scale_exponent: 0,
            storage,
        })
    }

    /// Where an operand stands; a parameter that serves as one stands on row owners.
    pub(super) fn activation(&mut self, name: &str, value: ValueId) -> Home {
        if self.homes[value.0 as usize].is_none() {
            let layout = self.row_layout(value);
            let storage = Storage::Parameter(self.parameter(value));
            let tensor = self.row_tensor(value, &format!("{name}.x"), layout, storage);
            self.set_home(value, tensor, HomeView::Flat { column: 0 });
        }
        self.home(value)
    }

    /// A row parameter resident beside every piece of a tensor.
    fn resident_columns(
        &mut self,
        name: &str,
        b: ValueId,
        beside: TensorId,
        columns: Extent,
    ) -> TensorId {
        let pieces = self.mid.tensor(beside).layout.tiling;
        let (rows, owner) = (pieces.rows, pieces.owner);
        let replica = Replicas {
            outer: (rows.outer.parts, owner.row.0),
            inner: (rows.inner.parts, owner.row.1),
        };
        let storage = Storage::Parameter(self.parameter(b));
        self.tensor(Tensor {
            name: name.to_owned(),
            groups: 1,
            rows: Extent::plain(1),
            columns,
            layout: layout(
                Dtype::F16,
                Order::RowMajor,
                MemoryClass::Standard,
                tiling(
                    Split::WHOLE,
                    Cuts::WHOLE,
                    pieces.columns,
                    Owner {
                        base: owner.base,
                        column: owner.column,
                        replica,
                        ..Owner::default()
                    },
                ),
            ),
            scale_exponent: 0,
            storage,
        })
    }

    pub(super) fn bias(
        &mut self,
        name: &str,
        x: ValueId,
        b: ValueId,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let home = self.home(x);
        // A GELU that follows takes the bias with it.
        let gelu = self
            .graph
            .ops
            .iter()
            .any(|op| matches!(&op.kind, OpKind::Gelu { x } if *x == result));
        let columns = self.columns[result.0 as usize];
        let bias = self.resident_columns(&format!("{name}.b"), b, home.tensor, columns);
        let (label, kernel) = if gelu {
            ("bias and GELU", "bias_gelu_f16")
        } else {
            ("bias", "add_columns_f16")
        };
        self.compute(
            name,
            label,
            kernel,
            &[("out", home.tensor), ("a", home.tensor), ("b", bias)],
            &[
                ("outer", measure("a", Measure::Columns, 16)),
                ("rows", measure("a", Measure::Rows, 1)),
                ("width", ScalarRule::Const(16)),
            ],
        );
        self.set_home(result, home.tensor, home.view);
        Ok(())
    }

    /// GELU is done with the bias before it.
    pub(super) fn gelu(
        &mut self,
        name: &str,
        x: ValueId,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let biased = self
            .graph
            .ops
            .iter()
            .any(|op| matches!(op.kind, OpKind::Bias { .. }) && op.results.contains(&x));
        if !biased {
            return Err(PlanError::Unsupported {
                operation: name.to_owned(),
                what: "a GELU without a bias before it".to_owned(),
            });
        }
        let home = self.home(x);
        self.set_home(result, home.tensor, home.view);
        Ok(())
    }

    /// `a + b` on row owners. One of the two may be a GEMM's pieces, `b` may be a parameter.
    pub(super) fn add(
        &mut self,
        name: &str,
        a: ValueId,
        b: ValueId,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let a_tensor = self.on_rows(name, a);
        let b_tensor = if self.homes[b.0 as usize].is_some() {
            self.on_rows(name, b)
        } else {
            self.row_parameter(name, b, result)
        };
        // The second operand is a private copy when it was gathered; the first may be the stream.
        let out = match self.yield_home {
            Some((value, state)) if value == result => state,
            _ => {
                let layout = self.row_layout(result);
                self.row_tensor(
                    result,
                    &format!("{name}.result"),
                    layout,
                    Storage::Transient,
                )
            }
        };
        self.compute(
            name,
            "add",
            "add_f16",
            &[("out", out), ("a", a_tensor), ("b", b_tensor)],
            &[("count", measure("out", Measure::Elements, 1))],
        );
        self.set_home(result, out, HomeView::Flat { column: 0 });
        Ok(())
    }

    /// The value on row owners, gathered from pieces if it is not there.
    fn on_rows(&mut self, name: &str, value: ValueId) -> TensorId {
        let home = self.home(value);
        if self.mid.tensor(home.tensor).layout.order == Order::RowMajor {
            return home.tensor;
        }
        let layout = self.row_layout(value);
        let label = format!("{name}.{}", self.graph.value(value).name);
        let tensor = self.row_tensor(value, &label, layout, Storage::Transient);
        self.exchange(
            name,
            "gather rows",
            vec![copy(home.tensor, tensor, home.view.as_view())],
        );
        tensor
    }

    /// A parameter of one row for each token, resident on the row owners of every batch member.
    fn row_parameter(&mut self, name: &str, b: ValueId, result: ValueId) -> TensorId {
        let mut layout = self.row_layout(result);
        let Tiling { rows, owner, .. } = layout.tiling;
        layout.tiling.rows = Cuts::of(rows.inner);
        layout.tiling.owner = Owner {
            row: (owner.row.1, 0),
            replica: Replicas {
                outer: (rows.outer.parts, owner.row.0),
                inner: (1, 0),
            },
            ..owner
        };
        let storage = Storage::Parameter(self.parameter(b));
        self.tensor(Tensor {
            name: format!("{name}.b"),
            groups: 1,
            rows: Extent::plain(self.graph.rows(b)),
            columns: self.columns[result.0 as usize],
            layout,
            scale_exponent: 0,
            storage,
        })
    }

    pub(super) fn layer_norm(
        &mut self,
        name: &str,
        x: ValueId,
        parameters: [ValueId; 2],
        epsilon: f32,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let columns = self.columns[x.0 as usize];
        if columns.logical != columns.padded {
            return Err(PlanError::Unsupported {
                operation: name.to_owned(),
                what: format!("a width of {}, not a multiple of 32", columns.logical),
            });
        }
        let input = self.on_rows(name, x);
        let rows = self.row_layout(result);
        let [scale, bias] = self.broadcast_rows(name, parameters, rows);
        let out = self.row_tensor(result, &format!("{name}.result"), rows, Storage::Transient);
        self.compute(
            name,
            "layer norm",
            "layernorm_f16",
            &[("out", out), ("x", input), ("scale", scale), ("bias", bias)],
            &[
                ("rows", measure("x", Measure::Rows, 1)),
                ("columns", measure("x", Measure::Columns, 1)),
                ("epsilon", ScalarRule::Const(i64::from(epsilon.to_bits()))),
            ],
        );
        self.set_home(result, out, HomeView::Flat { column: 0 });
        Ok(())
    }

    /// Row parameters with a spread home, copied to every tile that holds rows. They have a phase of
    /// their own: among short transfers each of these multicasts waits for its slowest receiver.
    fn broadcast_rows(&mut self, name: &str, values: [ValueId; 2], rows: Layout) -> [TensorId; 2] {
        let mut copies = Vec::new();
        let tensors = [("scale", 0), ("bias", 1)].map(|(role, index)| {
            let value = values[index];
            let columns = self.graph.columns(value);
            let parts = (columns / HOME_GRAIN).min(self.mid.tiles / 2);
            let base = self.next_home(parts);
            let home = Tensor {
                name: format!("{name}.{role}"),
                groups: 1,
                rows: Extent::plain(1),
                columns: Extent::plain(columns),
                layout: layout(
                    Dtype::F16,
                    Order::RowMajor,
                    MemoryClass::Standard,
                    tiling(
                        Split::WHOLE,
                        Cuts::WHOLE,
                        Cuts::of(Split::new(parts, HOME_GRAIN)),
                        Owner {
                            base,
                            column: (1, 0),
                            ..Owner::default()
                        },
                    ),
                ),
                scale_exponent: 0,
                storage: Storage::Parameter(self.parameter(value)),
            };
            let cuts = rows.tiling.rows;
            let working = Tensor {
                name: format!("{name}.{role}.working"),
                layout: layout(
                    Dtype::F16,
                    Order::RowMajor,
                    MemoryClass::Standard,
                    tiling(
                        Split::WHOLE,
                        Cuts::WHOLE,
                        Cuts::WHOLE,
                        Owner {
                            base: rows.tiling.owner.base,
                            replica: Replicas {
                                outer: (cuts.outer.parts, rows.tiling.owner.row.0),
                                inner: (cuts.inner.parts, rows.tiling.owner.row.1),
                            },
                            ..Owner::default()
                        },
                    ),
                ),
                storage: Storage::Transient,
                ..home.clone()
            };
            let source = self.tensor(home);
            let destination = self.tensor(working);
            copies.push(copy(source, destination, View::SAME));
            destination
        });
        self.exchange(name, "parameters", copies);
        tensors
    }
}
