//! Layouts of the operands of one attention operation on its grids.

use ipu_ir::contract::MemoryClass;
use ipu_ir::layout::{Cuts, Extent, Layout, Owner, Replicas, Split};
use ipu_package::{Dtype, Order};

use super::{layout, tiling};
use crate::policy::AttentionFormats;
use crate::recipe::AttentionPlan;

/// Extents of one attention operation.
pub(super) struct Shape {
    pub plan: AttentionPlan,
    pub formats: AttentionFormats,
    pub groups: u32,
    pub queries: u32,
    /// Keys, padded to what PV contracts over.
    pub keys: Extent,
    /// Panels of one head, as they come from the projection.
    pub depth: u32,
}

impl Shape {
    /// Layout of `[groups, rows, columns]` with a part for each group, cut along rows and columns.
    pub fn grouped(
        &self,
        (dtype, order, class): (Dtype, Order, MemoryClass),
        rows: Cuts,
        columns: Cuts,
        owner: Owner,
    ) -> Layout {
        layout(
            dtype,
            order,
            class,
            tiling(Split::new(self.groups, 1), rows, columns, owner),
        )
    }

    /// Query rows of whole heads, one part to a tile.
    pub fn query_rows(&self) -> Layout {
        self.grouped(
            (Dtype::F16, Order::Panels(16), MemoryClass::Standard),
            Cuts::of(Split::new(self.plan.softmax_rows, 1)),
            Cuts::WHOLE,
            Owner {
                group: 1,
                row: (self.groups, 0),
                ..Owner::default()
            },
        )
    }

    /// Query rows, on every key column of the QK grid.
    pub fn query_layout(&self, dtype: Dtype) -> Layout {
        let qk = self.plan.qk;
        let owner = Owner {
            group: qk.tiles(),
            row: (qk.columns, 0),
            replica: Replicas {
                outer: (qk.columns, 1),
                inner: (1, 0),
            },
            ..Owner::default()
        };
        let order = Order::Panels(if dtype == Dtype::F143 { 32 } else { 16 });
        self.grouped(
            (dtype, order, MemoryClass::Standard),
            Cuts::of(Split::new(qk.rows, 1)),
            Cuts::WHOLE,
            owner,
        )
    }

    /// Keys in blocks, on every query row of the QK grid; interleaved where the product reads them as
    /// they are.
    pub fn key_layout(&self, dtype: Dtype) -> Layout {
        let qk = self.plan.qk;
        let class = if dtype == self.formats.qk.dtype() {
            MemoryClass::Interleaved
        } else {
            MemoryClass::Standard
        };
        let order = Order::Blocks(if dtype == Dtype::F143 { 32 } else { 16 });
        let owner = Owner {
            group: qk.tiles(),
            row: (1, 0),
            replica: Replicas {
                outer: (qk.rows, qk.columns),
                inner: (1, 0),
            },
            ..Owner::default()
        };
        self.grouped(
            (dtype, order, class),
            Cuts::of(Split::new(qk.columns, 16)),
            Cuts::WHOLE,
            owner,
        )
    }

    /// Values on the tiles that pack them.
    pub fn value_layout(&self) -> Layout {
        self.grouped(
            (Dtype::F16, Order::Panels(16), MemoryClass::Standard),
            Cuts::of(Split::new(self.plan.value_parts, self.formats.pv.group())),
            Cuts::WHOLE,
            Owner {
                group: 1,
                row: (self.groups, 0),
                ..Owner::default()
            },
        )
    }

    /// Probabilities of one part of the PV grid.
    pub fn pv_left_layout(&self) -> Layout {
        let (pv, format) = (self.plan.pv, self.formats.pv);
        self.grouped(
            (
                format.dtype(),
                Order::Panels(format.group()),
                MemoryClass::Standard,
            ),
            Cuts::of(Split::new(pv.rows, 1)),
            Cuts::of(Split::new(pv.inner, format.group())),
            Owner {
                group: pv.tiles(),
                row: (1, 0),
                column: (pv.rows, 0),
                ..Owner::default()
            },
        )
    }

    /// Values of one key part, on every row part of the PV grid.
    pub fn pv_right_layout(&self) -> Layout {
        let (pv, format) = (self.plan.pv, self.formats.pv);
        self.grouped(
            (
                format.dtype(),
                Order::Blocks(format.group()),
                MemoryClass::Interleaved,
            ),
            Cuts::WHOLE,
            Cuts::of(Split::new(pv.inner, format.group())),
            Owner {
                group: pv.tiles(),
                column: (pv.rows, 0),
                replica: Replicas {
                    outer: (pv.rows, 1),
                    inner: (1, 0),
                },
                ..Owner::default()
            },
        )
    }
}
