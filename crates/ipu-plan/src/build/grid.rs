//! Which tile owns which part of a compute grid, of its result and of a weight's home.

use ipu_ir::layout::{Cuts, Owner, Split, Tiling};

use super::tiling;
use crate::recipe::{GemmPlan, Grid, ResultGrid};

/// Strides of the owner tile of a compute grid.
pub(super) struct GridStrides {
    pub row: u32,
    pub column: u32,
    pub inner: u32,
}

impl GridStrides {
    pub const fn of(grid: Grid) -> Self {
        GridStrides {
            row: grid.columns * grid.inner,
            column: 1,
            inner: grid.columns,
        }
    }
}

/// Pieces of the result: each block of the compute grid cut by the result grid.
pub(super) fn piece_tiling(plan: GemmPlan, column_grain: u32, base: u32) -> Tiling {
    let strides = GridStrides::of(plan.grid);
    let ResultGrid { rows, columns } = plan.result;
    tiling(
        Split::WHOLE,
        Cuts {
            outer: Split::new(plan.grid.rows, 1),
            inner: Split::new(rows, 1),
        },
        Cuts {
            outer: Split::new(plan.grid.columns, column_grain),
            inner: Split::new(columns, column_grain),
        },
        Owner {
            base,
            row: (strides.row, columns * strides.inner),
            column: (strides.column, strides.inner),
            ..Owner::default()
        },
    )
}

/// How a weight's home is cut over all tiles, apart from the compute grid: column parts and inner
/// parts of a matrix of panels, for the smallest largest part, then the longest runs of panels.
pub(super) fn home_parts(column_units: u32, inner_units: u32, tiles: u32) -> (u32, u32) {
    let cut = |column_parts: u32| {
        let inner_parts = inner_units.min(tiles / column_parts);
        let run = inner_units.div_ceil(inner_parts);
        // The fewest parts with runs of this length.
        let inner_parts = inner_units.div_ceil(run);
        let panels = column_units.div_ceil(column_parts) * run;
        ((panels, std::cmp::Reverse(run)), column_parts, inner_parts)
    };
    let (_, columns, inner) = (1..=column_units.min(tiles))
        .map(cut)
        .min()
        .expect("a weight has columns");
    (columns, inner)
}
