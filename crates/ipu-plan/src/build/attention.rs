//! Materialised attention: QK product, softmax over complete rows, PV product, merge.
//!
//! Groups are heads of batch members. Tiles of a grid are numbered group outermost; QK has columns
//! innermost and PV rows, so that with an even number of them both tiles of a pair read the same
//! queries, or the same values, which can then arrive 64 bits at a time. Softmax rows and value parts
//! of group `g` are on tiles `g + groups * part`.

use ipu_ir::contract::MemoryClass;
use ipu_ir::graph::ValueId;
use ipu_ir::layout::{Cuts, Extent, Owner, Split};
use ipu_ir::mid::{Measure, ScalarRule, Storage, Tensor, TensorId, View};
use ipu_package::{Dtype, Order};

use super::heads::Shape;
use super::{Builder, HomeView, PlanError, copy, layout, measure, tiling};
use crate::policy::Format;
use crate::recipe::CastSite;

impl Builder<'_> {
    pub(super) fn attention(
        &mut self,
        name: &str,
        [q, k, v]: [ValueId; 3],
        scale: f32,
        result: ValueId,
    ) -> Result<(), PlanError> {
        let shape = self.attention_shape(name, q, k)?;
        let [queries, keys, values] = self.attention_operands(name, [q, k, v], &shape);
        let values = self.pack_values(name, values, &shape);
        let scores = self.scores(name, queries, keys, &shape);
        let (probabilities, sums) = self.softmax(name, scores, scale, &shape);
        let partials = self.weighted_values(name, probabilities, values, &shape);
        let merged = self.merge(name, partials, sums, &shape);
        self.set_home(result, merged, HomeView::Flat { column: 0 });
        Ok(())
    }

    fn attention_shape(&self, name: &str, q: ValueId, k: ValueId) -> Result<Shape, PlanError> {
        let plan = *self
            .recipe
            .attention
            .get(name)
            .ok_or_else(|| PlanError::Missing(format!("attention.{name}")))?;
        let formats = self.precision.attention(name);
        let dims = &self.graph.value(q).shape;
        let group = formats.pv.group();
        let shape = Shape {
            plan,
            formats,
            groups: dims[0],
            queries: dims[1],
            keys: Extent::padded(self.graph.rows(k), group),
            depth: self.columns[q.0 as usize].padded,
        };
        let illegal = |what: &str| {
            Err(PlanError::Illegal {
                operation: name.to_owned(),
                what: what.into(),
            })
        };
        let tiles = self.mid.tiles;
        let keys = shape.keys.size();
        if [plan.qk, plan.pv]
            .iter()
            .any(|grid| shape.groups * grid.tiles() > tiles)
        {
            return illegal("a grid needs more tiles than there are");
        }
        if plan.qk.inner != 1 || plan.pv.columns != 1 {
            return illegal("QK is not cut along the depth, nor PV along the channels");
        }
        let rows_fit = |parts: u32| Split::new(parts, 1).fits(shape.queries);
        if !rows_fit(plan.qk.rows) || !rows_fit(plan.pv.rows) || !rows_fit(plan.softmax_rows) {
            return illegal("a row part would be empty");
        }
        if !Split::new(plan.qk.columns, 16).fits(keys)
            || !Split::new(plan.pv.inner, group).fits(keys)
            || !Split::new(plan.value_parts, group).fits(keys)
        {
            return illegal("a key part would be empty");
        }
        let merge = Cuts {
            outer: Split::new(plan.pv.rows, 1),
            inner: Split::new(plan.merge_rows, 1),
        };
        if !merge.fits(shape.queries) || plan.merge_rows > plan.pv.inner {
            return illegal("a merge part would be empty");
        }
        Ok(shape)
    }

    /// Q and K on the tiles that multiply them, V on those that pack it. A late cast is made there, an
    /// early one on rows of whole heads, from where F143 moves on.
    fn attention_operands(
        &mut self,
        name: &str,
        values: [ValueId; 3],
        shape: &Shape,
    ) -> [TensorId; 3] {
        let depth = Extent {
            groups: 1,
            logical: shape.depth,
            padded: shape.depth.next_multiple_of(shape.formats.qk.group()),
        };
        let (queries, plain) = (Extent::plain(shape.queries), Extent::plain(shape.depth));
        let early = ["q", "k"].map(|role| self.is_cast_early(name, role, shape.formats.qk));
        let layouts = [
            if early[0] {
                shape.query_rows()
            } else {
                shape.query_layout(Dtype::F16)
            },
            if early[1] {
                shape.value_layout()
            } else {
                shape.key_layout(Dtype::F16)
            },
            shape.value_layout(),
        ];
        let extents = [(queries, depth), (shape.keys, depth), (shape.keys, plain)];
        let mut copies = Vec::new();
        let [q, k, v] = [0, 1, 2].map(|index| {
            let home = self.home(values[index]);
            let (rows, columns) = extents[index];
            let tensor = self.tensor(Tensor {
                name: format!("{name}.{}", ["q", "k", "v"][index]),
                groups: shape.groups,
                rows,
                columns,
                layout: layouts[index],
                scale_exponent: 0,
                storage: Storage::Transient,
            });
            self.clear_padding(name, tensor);
            copies.push(copy(home.tensor, tensor, home.view.as_view()));
            tensor
        });
        self.exchange(name, "heads", copies);
        let format = shape.formats.qk;
        let mut copies = Vec::new();
        let on = [
            shape.query_layout(format.dtype()),
            shape.key_layout(format.dtype()),
        ];
        let [q, k] = [(q, early[0], on[0]), (k, early[1], on[1])].map(|(staged, early, layout)| {
            let operand = self.cast_operand(name, staged, format);
            if !early {
                return operand;
            }
            let cast = self.mid.tensor(operand).clone();
            let tensor = self.tensor(Tensor {
                name: format!("{}.operand", cast.name),
                layout,
                ..cast
            });
            copies.push(copy(operand, tensor, View::SAME));
            tensor
        });
        if !copies.is_empty() {
            self.exchange(name, "QK operands", copies);
        }
        [q, k, v]
    }

    /// Whether the recipe casts an operand before it moves to the tiles that multiply it.
    fn is_cast_early(&self, name: &str, role: &str, format: Format) -> bool {
        let site = self.recipe.cast.get(&format!("{name}.{role}"));
        format.is_f143() && site == Some(&CastSite::Early)
    }

    /// V with keys contiguous: 16 x 16 transposes on its row owners, with the cast if it is F143.
    fn pack_values(&mut self, name: &str, values: TensorId, shape: &Shape) -> TensorId {
        let format = shape.formats.pv;
        let parts = shape.plan.value_parts;
        let packed = self.tensor(Tensor {
            name: format!("{name}.v.packed"),
            groups: shape.groups,
            rows: Extent::plain(shape.depth),
            columns: Extent::plain(shape.keys.size()),
            layout: shape.grouped(
                (
                    format.dtype(),
                    Order::Blocks(format.group()),
                    MemoryClass::Standard,
                ),
                Cuts::WHOLE,
                Cuts::of(Split::new(parts, format.group())),
                Owner {
                    group: 1,
                    column: (shape.groups, 0),
                    ..Owner::default()
                },
            ),
            scale_exponent: format.scale(),
            storage: Storage::Transient,
        });
        let operands = [("out", packed), ("source", values)];
        if format.is_f143() {
            let scalars = [
                ("pairs", measure("source", Measure::Area, 512)),
                ("scale", ScalarRule::Const(i64::from(format.scale()))),
            ];
            self.compute(name, "pack V", "transpose_f16_f143", &operands, &scalars);
        } else {
            let scalars = [("blocks", measure("source", Measure::Area, 256))];
            self.compute(name, "pack V", "transpose_f16", &operands, &scalars);
        }
        packed
    }

    fn scores(&mut self, name: &str, q: TensorId, k: TensorId, shape: &Shape) -> TensorId {
        let qk = shape.plan.qk;
        let format = shape.formats.qk;
        let scores = self.tensor(Tensor {
            name: format!("{name}.scores"),
            groups: shape.groups,
            rows: Extent::plain(shape.queries),
            columns: Extent::plain(shape.keys.size()),
            layout: shape.grouped(
                (Dtype::F16, Order::Panels(16), MemoryClass::Interleaved),
                Cuts::of(Split::new(qk.rows, 1)),
                Cuts::of(Split::new(qk.columns, 16)),
                Owner {
                    group: qk.tiles(),
                    row: (qk.columns, 0),
                    column: (1, 0),
                    ..Owner::default()
                },
            ),
            scale_exponent: 0,
            storage: Storage::Transient,
        });
        self.product(name, "QK", [q, k, scores], format);
        scores
    }

    fn softmax(
        &mut self,
        name: &str,
        scores: TensorId,
        scale: f32,
        shape: &Shape,
    ) -> (TensorId, TensorId) {
        let format = shape.formats.pv;
        let row_owner = Owner {
            group: 1,
            row: (shape.groups, 0),
            ..Owner::default()
        };
        let rows = Cuts::of(Split::new(shape.plan.softmax_rows, 1));
        let make = |suffix: &str, dtype, order, columns, scale_exponent| Tensor {
            name: format!("{name}.{suffix}"),
            groups: shape.groups,
            rows: Extent::plain(shape.queries),
            columns: Extent::plain(columns),
            layout: shape.grouped(
                (dtype, order, MemoryClass::Standard),
                rows,
                Cuts::WHOLE,
                row_owner,
            ),
            scale_exponent,
            storage: Storage::Transient,
        };
        let keys = shape.keys.size();
        let gathered = self.tensor(make("rows", Dtype::F16, Order::Panels(16), keys, 0));
        self.exchange(
            name,
            "complete rows",
            vec![copy(scores, gathered, View::SAME)],
        );
        let order = Order::Panels(format.group());
        let out = self.tensor(make(
            "probabilities",
            format.dtype(),
            order,
            keys,
            format.scale(),
        ));
        let sums = self.tensor(make("sums", Dtype::F32, Order::RowMajor, 1, 0));
        let mut scalars = vec![
            ("rows", measure("scores", Measure::Rows, 1)),
            (
                "valid_keys",
                ScalarRule::Const(i64::from(shape.keys.logical)),
            ),
            ("keys", measure("scores", Measure::Columns, 1)),
            ("scale", ScalarRule::Const(i64::from(scale.to_bits()))),
        ];
        let kernel = if format.is_f143() {
            "softmax_f143"
        } else {
            "softmax_f16"
        };
        if format.is_f143() {
            scalars.push(("out_scale", ScalarRule::Const(i64::from(format.scale()))));
        }
        let operands = [("out", out), ("scores", gathered), ("sums", sums)];
        self.compute(name, "softmax", kernel, &operands, &scalars);
        (out, sums)
    }

    fn weighted_values(
        &mut self,
        name: &str,
        probabilities: TensorId,
        values: TensorId,
        shape: &Shape,
    ) -> TensorId {
        let pv = shape.plan.pv;
        let stride = shape.groups * pv.inner;
        let left = self.tensor(Tensor {
            name: format!("{name}.pv.left"),
            layout: shape.pv_left_layout(),
            ..self.mid.tensor(probabilities).clone()
        });
        let right = self.tensor(Tensor {
            name: format!("{name}.pv.right"),
            layout: shape.pv_right_layout(),
            ..self.mid.tensor(values).clone()
        });
        let copies = vec![
            copy(probabilities, left, View::SAME),
            copy(values, right, View::SAME),
        ];
        self.exchange(name, "PV operands", copies);
        // A partial's group is `group * inner + part`.
        let partials = self.tensor(Tensor {
            name: format!("{name}.pv.partials"),
            groups: stride,
            rows: Extent::plain(shape.queries),
            columns: Extent::plain(shape.depth),
            layout: layout(
                Dtype::F16,
                Order::Panels(16),
                MemoryClass::Interleaved,
                tiling(
                    Split::new(stride, 1),
                    Cuts::of(Split::new(pv.rows, 1)),
                    Cuts::WHOLE,
                    Owner {
                        group: pv.rows,
                        row: (1, 0),
                        ..Owner::default()
                    },
                ),
            ),
            scale_exponent: 0,
            storage: Storage::Transient,
        });
        self.product(name, "PV", [left, right, partials], shape.formats.pv);
        partials
    }

    /// Sum the key partitions and divide by the softmax sums.
    fn merge(&mut self, name: &str, partials: TensorId, sums: TensorId, shape: &Shape) -> TensorId {
        let pv = shape.plan.pv;
        let rows = Cuts {
            outer: Split::new(pv.rows, 1),
            inner: Split::new(shape.plan.merge_rows, 1),
        };
        let owner = Owner {
            group: pv.tiles(),
            row: (1, pv.rows),
            ..Owner::default()
        };
        let make = |suffix: &str, groups, dtype, order, columns| Tensor {
            name: format!("{name}.merge.{suffix}"),
            groups,
            rows: Extent::plain(shape.queries),
            columns: Extent::plain(columns),
            layout: layout(
                dtype,
                order,
                MemoryClass::Standard,
                tiling(Split::new(shape.groups, 1), rows, Cuts::WHOLE, owner),
            ),
            scale_exponent: 0,
            storage: Storage::Transient,
        };
        let panels = Order::Panels(16);
        let stride = shape.groups * pv.inner;
        let staged = self.tensor(make("partials", stride, Dtype::F16, panels, shape.depth));
        let row_sums = self.tensor(make("sums", shape.groups, Dtype::F32, Order::RowMajor, 1));
        let copies = vec![
            copy(partials, staged, View::SAME),
            copy(sums, row_sums, View::SAME),
        ];
        self.exchange(name, "merge operands", copies);
        let out = self.tensor(make(
            "result",
            shape.groups,
            Dtype::F16,
            panels,
            shape.depth,
        ));
        self.compute(
            name,
            "merge",
            "attention_merge_f16",
            &[("out", out), ("partials", staged), ("sums", row_sums)],
            &[
                ("rows", measure("out", Measure::Rows, 1)),
                ("panels", measure("out", Measure::Columns, 16)),
                ("count", measure("partials", Measure::Groups, 1)),
                ("stride", measure("partials", Measure::Area, 1)),
            ],
        );
        out
    }
}
