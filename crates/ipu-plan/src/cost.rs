//! Closed-form prices of grids: they rank a sweep; what is kept is priced by simulation.
//!
//! Input: extents and formats. Output: legal plans with cycles and bytes of the fullest tile.
//! Source of the constants: fits to published C600 kernel measurements (within 2 percent).

use crate::policy::{AttentionFormats, Format};
use crate::recipe::{AttentionPlan, CastSite, GemmPlan, Grid, ResultGrid};

/// Barrier, set-up and row of one exchange phase.
const PHASE_CYCLES: u64 = 600;

/// Words of the shortest run that the tiles of a pair receive together.
const SHARED_WORDS_MIN: u32 = 24;

/// A plan of a GEMM with its price.
pub struct PricedGemm {
    pub plan: GemmPlan,
    pub cycles: u64,
    pub bytes: u32,
}

/// Cycles of the product kernel.
fn product(rows: u32, columns: u32, inner: u32, format: Format) -> u64 {
    let panels = u64::from(inner.div_ceil(format.group()) * columns.div_ceil(16));
    294 + panels * (4 * u64::from(rows) + 160)
}

/// Cycles of summing `count` partials of `elements`.
fn reduce(elements: u32, count: u32) -> u64 {
    282 + 6 * u64::from(elements.div_ceil(48)) * (11 + 2 * (u64::from(count) - 1))
}

/// Cycles of a receive of `bytes`: four a cycle.
fn receive(bytes: u32) -> u64 {
    u64::from(bytes.div_ceil(4))
}

/// Cycles of a receive of `bytes` that the tiles of a pair share when the number of sharers is even.
fn receive_shared(bytes: u32, sharers: u32) -> u64 {
    let halves = if sharers.is_multiple_of(2) { 2 } else { 1 };
    receive(bytes).div_ceil(halves)
}

/// Cycles of a cast on the tile that multiplies: 2 bundles for 8 elements, six workers.
fn cast(elements: u32) -> u64 {
    330 + 2 * u64::from(elements.div_ceil(8))
}

/// A GEMM whose grids are priced.
#[derive(Clone, Copy)]
pub struct GemmShape {
    pub rows: u32,
    pub columns: u32,
    pub inner: u32,
    pub format: Format,
    pub site: CastSite,
    /// Columns that the cuts keep together.
    pub column_grain: u32,
}

/// Every legal grid of a GEMM, with the best result grid of each, cheapest first.
pub fn gemm_plans(shape: GemmShape, tiles: u32) -> Vec<PricedGemm> {
    let rows = shape.rows;
    let column_units = shape.columns / shape.column_grain;
    let inner_units = shape.inner / shape.format.group();
    let mut plans = Vec::new();
    for inner_parts in 1..=inner_units.min(tiles) {
        let column_limit = column_units.min(tiles / inner_parts);
        for column_parts in distinct_parts(column_units, column_limit) {
            let row_limit = rows.min(tiles / inner_parts / column_parts);
            for row_parts in distinct_parts(rows, row_limit) {
                let grid = Grid {
                    rows: row_parts,
                    columns: column_parts,
                    inner: inner_parts,
                };
                plans.push(price(grid, shape));
            }
        }
    }
    plans.sort_by_key(|plan| (plan.cycles, plan.plan.grid));
    plans
}

/// Numbers of parts up to `limit` that differ in their largest part; the fewest parts of each.
fn distinct_parts(units: u32, limit: u32) -> impl Iterator<Item = u32> {
    (1..=limit)
        .filter(move |parts| *parts == 1 || units.div_ceil(*parts) != units.div_ceil(*parts - 1))
}

fn price(grid: Grid, shape: GemmShape) -> PricedGemm {
    let GemmShape {
        rows,
        format,
        site,
        column_grain,
        ..
    } = shape;
    let column_units = shape.columns / column_grain;
    let inner_units = shape.inner / format.group();
    let row_part = rows.div_ceil(grid.rows);
    let column_part = column_units.div_ceil(grid.columns) * column_grain;
    let inner_part = inner_units.div_ceil(grid.inner) * format.group();
    let operand = format.dtype().bytes();
    let left = row_part * inner_part;
    let weight = column_part * inner_part * operand;
    let mut cycles = PHASE_CYCLES + product(row_part, column_part, inner_part, format);
    let partial = row_part * column_part * 2;
    let mut bytes = left * operand + weight + partial;
    let late = format.is_f143() && site == CastSite::Late;
    // A row of an inner part is a run; short ones are not shared.
    let arriving = if late { 2 } else { operand };
    let sharers = if inner_part * arriving >= 4 * SHARED_WORDS_MIN {
        grid.columns
    } else {
        1
    };
    cycles += receive_shared(left * arriving, sharers);
    cycles += if grid.rows > 1 { receive(weight) } else { 0 };
    if late {
        // F16 arrives beside the operand that it becomes.
        cycles += cast(left);
        bytes = bytes.max(left * operand + weight + 2 * left);
    }
    let mut result = ResultGrid {
        rows: 1,
        columns: 1,
    };
    if grid.inner > 1 {
        let least = [rows / grid.rows, column_units / grid.columns];
        let elements;
        (result, elements) = result_grid(grid.inner, least, [row_part, column_part], column_grain);
        let staged = elements * 2 * grid.inner;
        cycles += PHASE_CYCLES + receive(staged) + reduce(elements, grid.inner);
        bytes = bytes.max(partial + staged + elements * 2);
    }
    PricedGemm {
        plan: GemmPlan { grid, result },
        cycles,
        bytes,
    }
}

/// The result grid of at most `parts` pieces with the smallest largest piece.
pub(crate) fn result_grid(
    parts: u32,
    least: [u32; 2],
    [rows, columns]: [u32; 2],
    column_grain: u32,
) -> (ResultGrid, u32) {
    let mut best = (rows * columns, 1, 1);
    for column_parts in 1..=parts.min(least[1].max(1)) {
        let row_parts = (parts / column_parts).min(least[0].max(1));
        let width = (columns / column_grain).div_ceil(column_parts) * column_grain;
        let piece = rows.div_ceil(row_parts) * width;
        best = best.min((piece, row_parts, column_parts));
    }
    (
        ResultGrid {
            rows: best.1,
            columns: best.2,
        },
        best.0,
    )
}

/// A grid of one attention product.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PricedGrid {
    pub cycles: u64,
    pub grid: Grid,
    /// Operands and result on the fullest tile.
    pub bytes: u32,
}

/// The independent QK and PV grids of each head, cheapest first, with their prices.
pub struct AttentionGrids {
    pub qk: Vec<PricedGrid>,
    pub pv: Vec<PricedGrid>,
    queries: u32,
    key_units: u32,
    parts: u32,
}

impl AttentionGrids {
    /// All legal grids of `groups` heads.
    pub fn new(
        [groups, queries, keys, depth]: [u32; 4],
        formats: AttentionFormats,
        tiles: u32,
    ) -> AttentionGrids {
        let parts = tiles / groups;
        let depth = depth.next_multiple_of(16);
        let key_units = keys.div_ceil(formats.pv.group());
        let keys = key_units * formats.pv.group();
        AttentionGrids {
            qk: qk_grids(parts, queries, keys, depth, formats.qk),
            pv: pv_grids(parts, queries, keys, depth, formats.pv),
            queries,
            key_units,
            parts,
        }
    }

    /// The plan of two of the grids.
    pub fn plan(&self, qk: Grid, pv: Grid) -> AttentionPlan {
        AttentionPlan {
            qk,
            pv,
            softmax_rows: self.queries.min(self.parts),
            value_parts: self.key_units.min(self.parts),
            merge_rows: pv.inner.min((self.queries / pv.rows).max(1)),
        }
    }
}

fn qk_grids(parts: u32, queries: u32, keys: u32, depth: u32, format: Format) -> Vec<PricedGrid> {
    let key_units = keys / 16;
    let inner = depth.next_multiple_of(format.group());
    let grids = (1..=queries.min(parts)).flat_map(|rows| {
        (1..=key_units.min(parts / rows)).map(move |columns| Grid {
            rows,
            columns,
            inner: 1,
        })
    });
    let priced = grids.map(|grid| {
        let row_part = queries.div_ceil(grid.rows);
        let key_part = key_units.div_ceil(grid.columns) * 16;
        let moved =
            receive_shared(row_part * inner * 2, grid.columns) + receive(key_part * inner * 2);
        let casts = if format.is_f143() {
            cast((row_part + key_part) * inner)
        } else {
            0
        };
        PricedGrid {
            cycles: product(row_part, key_part, inner, format) + moved + casts,
            grid,
            bytes: 2 * ((row_part + key_part) * inner + row_part * key_part),
        }
    });
    sorted(priced)
}

fn pv_grids(parts: u32, queries: u32, keys: u32, depth: u32, format: Format) -> Vec<PricedGrid> {
    let key_units = keys / format.group();
    let grids = (1..=queries.min(parts)).flat_map(|rows| {
        (1..=key_units.min(parts / rows)).map(move |inner| Grid {
            rows,
            columns: 1,
            inner,
        })
    });
    let priced = grids.map(|grid| {
        let row_part = queries.div_ceil(grid.rows);
        let key_part = key_units.div_ceil(grid.inner) * format.group();
        let merge_rows = row_part.div_ceil(grid.inner.min(row_part));
        let operand = key_part * format.dtype().bytes();
        let moved = receive(row_part * operand) + receive_shared(depth * operand, grid.rows);
        let merged = merge_rows * depth * 2 * grid.inner;
        let cycles = product(row_part, depth, key_part, format)
            + moved
            + receive(merged)
            + reduce(merge_rows * depth, grid.inner);
        PricedGrid {
            cycles,
            grid,
            bytes: (row_part + depth) * operand + 2 * row_part * depth,
        }
    });
    sorted(priced)
}

fn sorted(priced: impl Iterator<Item = PricedGrid>) -> Vec<PricedGrid> {
    let mut grids: Vec<_> = priced.collect();
    grids.sort_unstable();
    grids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_price_is_near_the_published_kernel() {
        // 82 x 192 x 160 in F143 was measured at 29,508 cycles.
        let cycles = product(82, 160, 192, Format::F143(-4));
        assert!((28_900..=30_100).contains(&cycles), "{cycles}");
    }

    #[test]
    fn every_swept_grid_leaves_no_part_empty() {
        let shape = GemmShape {
            rows: 729,
            columns: 3456,
            inner: 1152,
            format: Format::F143(-4),
            site: CastSite::Early,
            column_grain: 16,
        };
        for plan in gemm_plans(shape, 1472) {
            let GemmPlan { grid, result } = plan.plan;
            assert!(grid.tiles() <= 1472 && result.rows * result.columns <= grid.inner);
            assert!(result.rows <= 729 / grid.rows && result.columns <= 216 / grid.columns);
        }
    }
}
