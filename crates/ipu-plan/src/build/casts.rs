//! Casts from F16 to F143: where the recipe says, and what that asks of the producer.
//!
//! An early cast is made on the tiles that hold a value, a late one on the staged copy of each
//! product that reads it. F143 panels are 32 columns wide, so a product whose result is cast early is
//! cut in whole panels of 32.
//! Not here: the cast sites of attention's operands (`attention`), which site is better (`search`).

use ipu_ir::contract::MemoryClass;
use ipu_ir::graph::{Graph, OpKind, ValueId};
use ipu_ir::mid::{Measure, ScalarRule, Storage, Tensor, TensorId};
use ipu_package::{Dtype, Order};

use super::{Builder, PlanError, measure};
use crate::policy::{Format, Precision};
use crate::recipe::{CastSite, Recipe};

/// Columns that the cuts of a result keep together: whole panels of what is cast where it is made.
pub(crate) fn column_grain(
    graph: &Graph,
    precision: &Precision,
    recipe: &Recipe,
    result: ValueId,
) -> u32 {
    let reader = cast_reader(graph, precision, result).map(|name| format!("{name}.x"));
    let site = reader.and_then(|site| recipe.cast.get(&site));
    if site == Some(&CastSite::Early) {
        32
    } else {
        16
    }
}

/// The product that reads a value, through its bias and GELU, as F143.
pub(crate) fn cast_reader<'g>(
    graph: &'g Graph,
    precision: &Precision,
    value: ValueId,
) -> Option<&'g str> {
    graph.ops.iter().find_map(|op| match &op.kind {
        OpKind::Gemm { x, .. } if *x == value && precision.gemm(&op.name).is_f143() => {
            Some(op.name.as_str())
        }
        OpKind::Bias { x, .. } | OpKind::Gelu { x } if *x == value => {
            cast_reader(graph, precision, op.results[0])
        }
        _ => None,
    })
}

impl Builder<'_> {
    /// Cast a value on the tiles that hold it.
    pub(super) fn cast_at_producer(
        &mut self,
        name: &str,
        source: TensorId,
        scale: i8,
    ) -> Result<TensorId, PlanError> {
        let from = self.mid.tensor(source).clone();
        let whole = from.layout.tiling.parts().all(|at| {
            from.layout
                .tiling
                .region(from.shape(), &at)
                .column_count()
                .is_multiple_of(32)
        });
        if !whole {
            return Err(PlanError::Illegal {
                operation: name.to_owned(),
                what: "an early cast needs whole 32-column panels at the producer".to_owned(),
            });
        }
        Ok(self.cast_local(name, source, &format!("{}.f143", from.name), scale))
    }

    /// A tensor in F143 with the tiling of an F16 one, row-major or in panels as that is, and the
    /// call that fills it.
    pub(super) fn cast_local(
        &mut self,
        operation: &str,
        source: TensorId,
        name: &str,
        scale: i8,
    ) -> TensorId {
        let from = self.mid.tensor(source).clone();
        let order = match from.layout.order {
            Order::RowMajor => Order::RowMajor,
            Order::Panels(_) => Order::Panels(32),
            Order::Blocks(_) => Order::Blocks(32),
        };
        let mut to = from.layout;
        (to.dtype, to.order) = (Dtype::F143, order);
        if from.layout.order == Order::Blocks(16) {
            to.class = MemoryClass::Interleaved;
        }
        let tensor = self.tensor(Tensor {
            name: name.to_owned(),
            layout: to,
            scale_exponent: scale,
            storage: Storage::Transient,
            ..from.clone()
        });
        let operands = [("out", tensor), ("source", source)];
        let scale = ScalarRule::Const(i64::from(scale));
        match from.layout.order {
            Order::RowMajor => self.compute(
                operation,
                "cast",
                "cast_f16_f143",
                &operands,
                &[
                    ("count", measure("source", Measure::Elements, 1)),
                    ("scale", scale),
                ],
            ),
            Order::Panels(_) => self.compute(
                operation,
                "cast",
                "cast_panels_f16_f143",
                &operands,
                &[
                    ("panels", measure("source", Measure::Columns, 32)),
                    ("rows", measure("source", Measure::Rows, 1)),
                    ("scale", scale),
                ],
            ),
            // Blocks of 16 rows: each is a panel list of its own.
            Order::Blocks(_) => self.compute(
                operation,
                "cast",
                "cast_panels_f16_f143",
                &operands,
                &[
                    ("panels", measure("source", Measure::Area, 512)),
                    ("rows", ScalarRule::Const(16)),
                    ("scale", scale),
                ],
            ),
        }
        tensor
    }

    /// Cast a staged operand to the format that the product reads, if it is in another.
    pub(super) fn cast_operand(
        &mut self,
        operation: &str,
        staged: TensorId,
        format: Format,
    ) -> TensorId {
        let from = self.mid.tensor(staged);
        if from.layout.dtype == format.dtype() {
            return staged;
        }
        let name = format!("{}.f143", from.name);
        self.cast_local(operation, staged, &name, format.scale())
    }
}
