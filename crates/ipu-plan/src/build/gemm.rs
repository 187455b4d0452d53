//! A GEMM: operands to the compute grid, product, reduction over the inner partitions.
//!
//! Tile of part `(row, column, inner)` is `base + (row * inner_parts + inner) * columns + column`: with
//! an even number of columns both tiles of a pair read the same left operand, so it can arrive 64 bits
//! at a time, unless one of the two holds it. The base keeps the row parts away from the tiles that
//! hold their rows: rows of the residual stream are half the chip away from tile 0, and pieces of a
//! GEMM that reads those are near it, so that one that reads pieces begins at a quarter.
//!
//! A left operand from row-major rows stays row-major: rows of one inner part are the longest runs an
//! exchange can have, and the product reads them as they are. From panels it stays in panels.

use ipu_ir::contract::MemoryClass;
use ipu_ir::graph::ValueId;
use ipu_ir::layout::{Cuts, Extent, Owner, Replicas, Split, Tiling};
use ipu_ir::mid::{Copy, Measure, ScalarRule, Storage, Tensor, TensorId, View};
use ipu_package::{Dtype, Order};

use super::casts::column_grain;
use super::grid::{GridStrides, home_parts, piece_tiling};
use super::{Builder, HomeView, PlanError, copy, layout, measure, tiling};
use crate::policy::Format;
use crate::recipe::{CastSite, GemmPlan, Grid};

/// Bytes of the longest row of an inner part that the product reads in row-major order.
const ROW_BYTES_MAX: u32 = 4096;

struct Shape {
    plan: GemmPlan,
    format: Format,
    rows: Extent,
    columns: Extent,
    inner: Extent,
    /// Columns that the cuts of the grid and of the result keep together.
    column_grain: u32,
    /// First tile of the compute grid.
    base: u32,
}

impl Shape {
    /// Whether the product can read rows of an inner part in row-major order.
    fn reads_rows(&self) -> bool {
        let panels = (self.inner.size() / self.format.group()).div_ceil(self.plan.grid.inner);
        32 * panels <= ROW_BYTES_MAX
    }

    /// Weights of the parts of the compute grid, on every row partition.
    fn working_weight(&self) -> Tiling {
        let grid = self.plan.grid;
        let strides = GridStrides::of(grid);
        tiling(
            Split::WHOLE,
            Cuts::of(Split::new(grid.columns, self.column_grain)),
            Cuts::of(Split::new(grid.inner, self.format.group())),
            Owner {
                base: self.base,
                row: (strides.column, 0),
                column: (strides.inner, 0),
                replica: Replicas {
                    outer: (grid.rows, strides.row),
                    inner: (1, 0),
                },
                ..Owner::default()
            },
        )
    }
}

impl Builder<'_> {
    pub(super) fn gemm(
        &mut self,
        name: &str,
        x: ValueId,
        w: ValueId,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let shape = self.gemm_shape(name, x, result)?;
        let (left, mut copies) = self.gemm_left(name, x, &shape)?;
        let weight = self.gemm_weight(name, w, &shape, &mut copies);
        self.exchange(name, "operands", copies);
        let left = self.cast_operand(name, left, shape.format);
        let partials = self.gemm_product(name, left, weight, &shape);
        let tensor = self.gemm_reduce(name, partials, &shape);
        self.set_home(result, tensor, HomeView::Flat { column: 0 });
        Ok(())
    }

    fn gemm_shape(&self, name: &str, x: ValueId, result: ValueId) -> Result<Shape, PlanError> {
        let plan = *self
            .recipe
            .gemm
            .get(name)
            .ok_or_else(|| PlanError::Missing(format!("gemm.{name}")))?;
        let shape = Shape {
            plan,
            format: self.precision.gemm(name),
            rows: Extent::plain(self.graph.rows(result)),
            columns: self.columns[result.0 as usize],
            inner: self.columns[x.0 as usize],
            column_grain: column_grain(self.graph, self.precision, self.recipe, result),
            base: self.grid_base(x),
        };
        let Grid {
            rows,
            columns,
            inner,
        } = plan.grid;
        let g = shape.format.group();
        let illegal = |what: String| {
            Err(PlanError::Illegal {
                operation: name.to_owned(),
                what,
            })
        };
        if plan.grid.tiles() > self.mid.tiles {
            return illegal(format!(
                "grid {} needs {} tiles",
                plan.grid,
                plan.grid.tiles()
            ));
        }
        if !shape.inner.size().is_multiple_of(g) || !Split::new(inner, g).fits(shape.inner.size()) {
            return illegal(format!("grid {}: an inner part would be empty", plan.grid));
        }
        if !Split::new(rows, 1).fits(shape.rows.size())
            || !Split::new(columns, shape.column_grain).fits(shape.columns.size())
        {
            return illegal(format!("grid {}: a part would be empty", plan.grid));
        }
        if plan.result.rows * plan.result.columns > inner {
            return illegal(format!("the result grid has more parts than {inner}"));
        }
        let nested = |outer, inner, unit| Cuts {
            outer: Split::new(outer, unit),
            inner: Split::new(inner, unit),
        };
        if !nested(rows, plan.result.rows, 1).fits(shape.rows.size())
            || !nested(columns, plan.result.columns, shape.column_grain).fits(shape.columns.size())
        {
            return illegal(format!(
                "result grid {}: a part would be empty",
                plan.result
            ));
        }
        Ok(shape)
    }

    /// First tile of the compute grid of a GEMM that reads a value; even, so that pairs stay whole.
    fn grid_base(&self, x: ValueId) -> u32 {
        let home = self.homes[x.0 as usize];
        let order = home.map(|home| self.mid.tensor(home.tensor).layout.order);
        match order {
            None | Some(Order::RowMajor) => 0,
            Some(_) => self.mid.tiles / 8 * 2,
        }
    }

    /// Staging of the left operand: how it arrives, before it is cast.
    fn gemm_left(
        &mut self,
        name: &str,
        x: ValueId,
        shape: &Shape,
    ) -> Result<(TensorId, Vec<Copy>), PlanError> {
        let home = self.activation(name, x);
        let mut source = home.tensor;
        let site = self
            .recipe
            .cast
            .get(&format!("{name}.x"))
            .copied()
            .unwrap_or(CastSite::Late);
        if shape.format.is_f143() && site == CastSite::Early {
            source = self.cast_at_producer(name, source, shape.format.scale())?;
        }
        let from = self.mid.tensor(source).layout;
        let order = match from.order {
            Order::RowMajor if !shape.reads_rows() => Order::Panels(32 / from.dtype.bytes()),
            Order::Blocks(_) => {
                return Err(PlanError::Unsupported {
                    operation: name.to_owned(),
                    what: "a left operand in blocks".to_owned(),
                });
            }
            order => order,
        };
        let grid = shape.plan.grid;
        let strides = GridStrides::of(grid);
        let tensor = self.tensor(Tensor {
            name: format!("{name}.left"),
            groups: 1,
            rows: shape.rows,
            columns: Extent::plain(shape.inner.size()),
            layout: layout(
                from.dtype,
                order,
                MemoryClass::Standard,
                tiling(
                    Split::WHOLE,
                    Cuts::of(Split::new(grid.rows, 1)),
                    Cuts::of(Split::new(grid.inner, shape.format.group())),
                    Owner {
                        base: shape.base,
                        row: (strides.row, 0),
                        column: (strides.inner, 0),
                        replica: Replicas {
                            outer: (grid.columns, strides.column),
                            inner: (1, 0),
                        },
                        ..Owner::default()
                    },
                ),
            ),
            scale_exponent: self.mid.tensor(source).scale_exponent,
            storage: Storage::Transient,
        });
        Ok((tensor, vec![copy(source, tensor, home.view.as_view())]))
    }

    /// The weight's home, spread over all tiles, and its working copy; one tensor when there is one
    /// row partition.
    fn gemm_weight(
        &mut self,
        name: &str,
        w: ValueId,
        shape: &Shape,
        copies: &mut Vec<Copy>,
    ) -> TensorId {
        let grid = shape.plan.grid;
        let g = shape.format.group();
        let (column_parts, inner_parts) = home_parts(
            shape.columns.size().div_ceil(16),
            shape.inner.size() / g,
            self.mid.tiles,
        );
        let base = self.next_home(column_parts * inner_parts);
        let home = Tensor {
            name: format!("{name}.weight"),
            groups: 1,
            rows: shape.columns,
            columns: shape.inner,
            layout: layout(
                shape.format.dtype(),
                Order::Blocks(g),
                MemoryClass::Standard,
                tiling(
                    Split::WHOLE,
                    Cuts::of(Split::new(column_parts, 16)),
                    Cuts::of(Split::new(inner_parts, g)),
                    Owner {
                        base,
                        row: (inner_parts, 0),
                        column: (1, 0),
                        ..Owner::default()
                    },
                ),
            ),
            scale_exponent: shape.format.scale(),
            storage: Storage::Parameter(self.parameter(w)),
        };
        let working = shape.working_weight();
        if grid.rows == 1 {
            let mut home = home;
            home.layout.class = MemoryClass::Interleaved;
            home.layout.tiling = working;
            return self.tensor(home);
        }
        let weight = Tensor {
            name: format!("{name}.weight.working"),
            rows: Extent::plain(shape.columns.size()),
            columns: Extent::plain(shape.inner.size()),
            layout: layout(
                shape.format.dtype(),
                Order::Blocks(g),
                MemoryClass::Interleaved,
                working,
            ),
            storage: Storage::Transient,
            ..home.clone()
        };
        let source = self.tensor(home);
        let weight = self.tensor(weight);
        copies.push(copy(source, weight, View::SAME));
        weight
    }

    fn gemm_product(
        &mut self,
        name: &str,
        left: TensorId,
        weight: TensorId,
        shape: &Shape,
    ) -> TensorId {
        let grid = shape.plan.grid;
        let strides = GridStrides::of(grid);
        let partials = self.tensor(Tensor {
            name: format!("{name}.partials"),
            groups: grid.inner,
            rows: shape.rows,
            columns: Extent::plain(shape.columns.size()),
            layout: layout(
                Dtype::F16,
                Order::Panels(16),
                MemoryClass::Interleaved,
                tiling(
                    Split::new(grid.inner, 1),
                    Cuts::of(Split::new(grid.rows, 1)),
                    Cuts::of(Split::new(grid.columns, shape.column_grain)),
                    Owner {
                        base: shape.base,
                        group: strides.inner,
                        row: (strides.row, 0),
                        column: (strides.column, 0),
                        ..Owner::default()
                    },
                ),
            ),
            scale_exponent: 0,
            storage: Storage::Transient,
        });
        self.product(name, "gemm", [left, weight, partials], shape.format);
        partials
    }

    /// The product call: `out = left * weight^T`. The steps of left follow from its order: 64-bit
    /// words from row to row, units of 32 bytes from panel to panel.
    pub(super) fn product(
        &mut self,
        operation: &str,
        label: &str,
        [left, weight, out]: [TensorId; 3],
        format: Format,
    ) {
        let (row_words, panel_units) = match self.mid.tensor(left).layout.order {
            Order::RowMajor => (
                measure("left", Measure::Columns, 8 / format.dtype().bytes()),
                ScalarRule::Const(1),
            ),
            _ => (ScalarRule::Const(4), measure("left", Measure::Rows, 1)),
        };
        let mut scalars = vec![
            ("rows", measure("left", Measure::Rows, 1)),
            ("inner", measure("left", Measure::Columns, 1)),
            ("columns", measure("out", Measure::Columns, 1)),
            ("row_words", row_words),
            ("panel_units", panel_units),
        ];
        let kernel = if format.is_f143() {
            "gemm_f143"
        } else {
            "gemm_f16"
        };
        if format.is_f143() {
            scalars.push(("scale", ScalarRule::Const(2 * i64::from(format.scale()))));
        }
        let operands = [("out", out), ("left", left), ("weight", weight)];
        self.compute(operation, label, kernel, &operands, &scalars);
    }

    /// Scatter each block over its former inner partitions and sum there.
    fn gemm_reduce(&mut self, name: &str, partials: TensorId, shape: &Shape) -> TensorId {
        let grid = shape.plan.grid;
        if grid.inner == 1 {
            return partials;
        }
        let pieces = piece_tiling(shape.plan, shape.column_grain, shape.base);
        let staging = self.tensor(Tensor {
            name: format!("{name}.staging"),
            groups: grid.inner,
            rows: shape.rows,
            columns: Extent::plain(shape.columns.size()),
            layout: layout(Dtype::F16, Order::Panels(16), MemoryClass::Standard, pieces),
            scale_exponent: 0,
            storage: Storage::Transient,
        });
        self.exchange(
            name,
            "scatter partials",
            vec![copy(partials, staging, View::SAME)],
        );
        let result = self.tensor(Tensor {
            name: format!("{name}.result"),
            groups: 1,
            ..self.mid.tensor(staging).clone()
        });
        self.compute(
            name,
            "reduce",
            "reduce_f16",
            &[("out", result), ("partials", staging)],
            &[
                ("elements", measure("out", Measure::Area, 1)),
                ("count", measure("partials", Measure::Groups, 1)),
                ("stride", measure("partials", Measure::Area, 1)),
            ],
        );
        result
    }
}
