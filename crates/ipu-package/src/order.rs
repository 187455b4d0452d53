//! Element orders inside a shard, and element types: the words that packages and passes share.
//!
//! Invariants: `offset` is a bijection from the `rows x columns` box onto `0 .. rows * columns`.
//! Not here: which tile holds a shard, or why.

use serde::{Deserialize, Serialize};

/// Type of a stored element. F143 carries its scale exponent where it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F16,
    F32,
    F143,
    U32,
}

impl Dtype {
    pub const fn bytes(self) -> u32 {
        match self {
            Dtype::F143 => 1,
            Dtype::F16 => 2,
            Dtype::F32 | Dtype::U32 => 4,
        }
    }

    /// Elements of the inner group that the AMP unit reads at once.
    pub const fn inner_group(self) -> u32 {
        match self {
            Dtype::F143 => 32,
            Dtype::F16 => 16,
            Dtype::F32 | Dtype::U32 => 8,
        }
    }
}

/// Order of the elements of one `rows x columns` shard. Panel orders need `columns % g == 0`,
/// block orders also `rows % 16 == 0`: extents here are physical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Order {
    RowMajor,
    /// Column panels of `g`: `[columns / g][rows][g]`. AMP left operands; GEMM output with g = 16.
    Panels(u32),
    /// 16-row blocks of column panels: `[rows / 16][columns / g][16][g]`. AMP right operands, with
    /// output channels as rows and the inner axis as columns.
    Blocks(u32),
}

impl Order {
    /// Element offset of `(row, column)` in a shard of physical extent `rows x columns`.
    pub const fn offset(self, rows: u32, columns: u32, row: u32, column: u32) -> u32 {
        match self {
            Order::RowMajor => row * columns + column,
            Order::Panels(g) => (column / g) * rows * g + row * g + column % g,
            Order::Blocks(g) => {
                ((row / 16) * (columns / g) + column / g) * 16 * g + (row % 16) * g + column % g
            }
        }
    }

    /// Columns that stay contiguous within one row.
    pub const fn row_run(self, columns: u32) -> u32 {
        match self {
            Order::RowMajor => columns,
            Order::Panels(g) | Order::Blocks(g) => g,
        }
    }

    /// Extents rounded up to what the order can hold.
    pub const fn physical(self, rows: u32, columns: u32) -> (u32, u32) {
        match self {
            Order::RowMajor => (rows, columns),
            Order::Panels(g) => (rows, columns.next_multiple_of(g)),
            Order::Blocks(g) => (rows.next_multiple_of(16), columns.next_multiple_of(g)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_a_bijection() {
        for order in [
            Order::RowMajor,
            Order::Panels(16),
            Order::Panels(32),
            Order::Blocks(16),
        ] {
            let (rows, columns) = order.physical(19, 70);
            let mut seen = vec![false; (rows * columns) as usize];
            for row in 0..rows {
                for column in 0..columns {
                    let at = order.offset(rows, columns, row, column) as usize;
                    assert!(!std::mem::replace(&mut seen[at], true));
                }
            }
            assert!(seen.into_iter().all(|hit| hit));
        }
    }
}
