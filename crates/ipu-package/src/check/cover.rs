//! How often the bindings of a tensor hold each of its elements.
//!
//! Input: rectangles in device coordinates, the device runs of logical rows and columns. Output:
//! the first element that is held too seldom or too often.
//! Invariants: time n log n in rectangles and runs: a sweep over rows, with a segment tree of counts
//! over the cells into which rectangle edges cut the logical columns.
//! Not here: logical coordinates, names.

use std::ops::{Range, RangeInclusive};

pub(super) struct Rectangle {
    pub rows: Range<u64>,
    pub columns: Range<u64>,
}

/// A device element and how many rectangles hold it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Miscovered {
    pub row: u64,
    pub column: u64,
    pub count: u32,
}

/// The first element, by row, that not `allowed` many rectangles hold. Runs ascend, are disjoint
/// and not empty.
pub(super) fn miscovered(
    rectangles: &[Rectangle],
    rows: &[Range<u64>],
    columns: &[Range<u64>],
    allowed: RangeInclusive<i32>,
) -> Option<Miscovered> {
    let cells = cells(rectangles, columns);
    let mut counts = Counts::new(cells.len());
    let mut events: Vec<(u64, i32, usize)> = Vec::with_capacity(2 * rectangles.len());
    for (index, rectangle) in rectangles.iter().enumerate() {
        events.push((rectangle.rows.start, 1, index));
        events.push((rectangle.rows.end, -1, index));
    }
    events.sort_unstable();
    let mut events = events.into_iter().peekable();
    let cell = |column: u64| cells.partition_point(|&start| start < column);
    for run in rows {
        let mut row = run.start;
        while row < run.end {
            while let Some((_, by, index)) = events.next_if(|event| event.0 <= row) {
                let across = &rectangles[index].columns;
                counts.add(cell(across.start)..cell(across.end), by);
            }
            if let Some((at, count)) = counts.outside(&allowed) {
                return Some(Miscovered {
                    row,
                    column: cells[at],
                    count: count as u32,
                });
            }
            row = events.peek().map_or(run.end, |event| event.0);
        }
    }
    None
}

/// First columns of the cells: logical columns, cut where a rectangle begins or ends.
fn cells(rectangles: &[Rectangle], columns: &[Range<u64>]) -> Vec<u64> {
    let edges = rectangles
        .iter()
        .flat_map(|rectangle| [rectangle.columns.start, rectangle.columns.end]);
    let mut edges: Vec<u64> = edges.collect();
    edges.sort_unstable();
    edges.dedup();
    let mut cells = Vec::new();
    for run in columns {
        cells.push(run.start);
        let first = edges.partition_point(|&edge| edge <= run.start);
        let inside = edges[first..].iter().take_while(|&&edge| edge < run.end);
        cells.extend(inside);
    }
    cells
}

/// A count for each cell, with addition over ranges. A node's least and greatest count include
/// what was added to it and below it.
struct Counts {
    leaves: usize,
    added: Vec<i32>,
    least: Vec<i32>,
    greatest: Vec<i32>,
}

impl Counts {
    /// Leaves that are no cells are never the least or the greatest.
    const NO_CELL: i32 = 1 << 29;

    fn new(cells: usize) -> Self {
        let leaves = cells.next_power_of_two();
        let mut counts = Counts {
            leaves,
            added: vec![0; 2 * leaves],
            least: vec![0; 2 * leaves],
            greatest: vec![0; 2 * leaves],
        };
        for leaf in leaves + cells..2 * leaves {
            counts.least[leaf] = Self::NO_CELL;
            counts.greatest[leaf] = -Self::NO_CELL;
        }
        for node in (1..leaves).rev() {
            counts.join(node);
        }
        counts
    }

    fn join(&mut self, node: usize) {
        let (left, right) = (2 * node, 2 * node + 1);
        self.least[node] = self.least[left].min(self.least[right]) + self.added[node];
        self.greatest[node] = self.greatest[left].max(self.greatest[right]) + self.added[node];
    }

    fn add(&mut self, cells: Range<usize>, by: i32) {
        let (mut left, mut right) = (cells.start + self.leaves, cells.end + self.leaves);
        let (first, last) = (left, right);
        while left < right {
            if left & 1 == 1 {
                self.add_node(left, by);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.add_node(right, by);
            }
            left /= 2;
            right /= 2;
        }
        if first < last {
            self.join_above(first);
            self.join_above(last - 1);
        }
    }

    fn add_node(&mut self, node: usize, by: i32) {
        self.added[node] += by;
        self.least[node] += by;
        self.greatest[node] += by;
    }

    fn join_above(&mut self, leaf: usize) {
        let mut node = leaf / 2;
        while node > 0 {
            self.join(node);
            node /= 2;
        }
    }

    /// The first cell whose count is not allowed, with its count.
    fn outside(&self, allowed: &RangeInclusive<i32>) -> Option<(usize, i32)> {
        let bad = |node: usize, above: i32| {
            self.least[node] + above < *allowed.start()
                || self.greatest[node] + above > *allowed.end()
        };
        if !bad(1, 0) {
            return None;
        }
        let (mut node, mut above) = (1, 0);
        while node < self.leaves {
            above += self.added[node];
            node *= 2;
            node += usize::from(!bad(node, above));
        }
        Some((node - self.leaves, self.least[node] + above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brute(
        rectangles: &[Rectangle],
        rows: &[Range<u64>],
        columns: &[Range<u64>],
        allowed: &RangeInclusive<i32>,
    ) -> Option<Miscovered> {
        for row in rows.iter().cloned().flatten() {
            for column in columns.iter().cloned().flatten() {
                let holds = |r: &&Rectangle| r.rows.contains(&row) && r.columns.contains(&column);
                let count = rectangles.iter().filter(holds).count() as i32;
                if !allowed.contains(&count) {
                    let count = count as u32;
                    return Some(Miscovered { row, column, count });
                }
            }
        }
        None
    }

    #[test]
    fn the_sweep_agrees_with_counting() {
        let mut state = 5u64;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % limit
        };
        let (mut found, mut sound) = (0, 0);
        for _ in 0..3_000 {
            let rows = [0..1 + below(5), 7..8 + below(4)];
            let columns = [1..2 + below(6), 9..10 + below(3), 13..14];
            let mut rectangles = Vec::new();
            for _ in 0..1 + below(9) {
                let (row, column) = (below(4) * 3, below(5) * 3);
                let extent = [3, 6, 12, 15];
                rectangles.push(Rectangle {
                    rows: row..row + extent[below(4) as usize],
                    columns: column..column + extent[below(4) as usize],
                });
            }
            for allowed in [1..=1, 1..=i32::MAX, 0..=1] {
                let expected = brute(&rectangles, &rows, &columns, &allowed);
                let got = miscovered(&rectangles, &rows, &columns, allowed);
                assert_eq!(got, expected);
                found += u32::from(got.is_some());
                sound += u32::from(got.is_none());
            }
        }
        assert!(found > 100 && sound > 100);
    }
}
