//! Contiguous runs between two boxes: views, padding and element orders become affine pieces.
//!
//! Input: a view, a destination region, a source region, the orders and extents of both.
//! Output: pieces of elements, ascending in the destination's order.
//! Invariants: a piece is contiguous in source and destination; pieces do not overlap.
//! Not here: tiles, bytes, replicas.

use std::ops::Range;

use ipu_ir::layout::{Extent, Region};
use ipu_ir::mid::View;
use ipu_package::Order;

/// A region of the destination whose coordinates, shifted, are those of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub region: Region,
    pub shift: Shift,
}

/// Source coordinate less destination coordinate, for groups, rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    pub group: i64,
    pub row: i64,
    pub column: i64,
}

/// `count` runs of `width` elements; offsets advance by a step from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub source: u32,
    pub destination: u32,
    pub width: u32,
    pub count: u32,
    pub source_step: u32,
    pub destination_step: u32,
}

pub(crate) fn moved(range: &Range<u32>, shift: i64) -> Range<i64> {
    i64::from(range.start) + shift..i64::from(range.end) + shift
}

/// The part of `range` that stands in `0..size` once shifted.
fn clipped(range: &Range<u32>, shift: i64, size: u32) -> Range<u32> {
    let low = i64::from(range.start).max(-shift);
    let high = i64::from(range.end).min(i64::from(size) - shift);
    low.max(0) as u32..high.max(low.max(0)) as u32
}

fn meet(range: &Range<u32>, low: u32, high: u32) -> Range<u32> {
    range.start.max(low)..range.end.min(high).max(range.start.max(low))
}

/// Cut a destination region where the view's translation changes; what has no source is left out.
pub(crate) fn blocks(view: &View, region: &Region, source: [u32; 3]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut push = |region: Region, shift: Shift| {
        let region = Region {
            groups: clipped(&region.groups, shift.group, source[0]),
            rows: clipped(&region.rows, shift.row, source[1]),
            columns: clipped(&region.columns, shift.column, source[2]),
        };
        if region.elements() > 0 {
            blocks.push(Block { region, shift });
        }
    };
    match *view {
        View::Same { group, column } => {
            let (group, column) = (i64::from(group), i64::from(column));
            let row = 0;
            push(region.clone(), Shift { group, row, column });
        }
        View::SplitHeads {
            heads,
            tokens,
            depth,
            column,
        } => {
            for at in region.groups.clone() {
                let (batch, head) = (at / heads, at % heads);
                let block = Region {
                    groups: at..at + 1,
                    rows: meet(&region.rows, 0, tokens),
                    columns: meet(&region.columns, 0, depth),
                };
                let shift = Shift {
                    group: -i64::from(at),
                    row: i64::from(batch * tokens),
                    column: i64::from(column + head * depth),
                };
                push(block, shift);
            }
        }
        View::JoinHeads {
            heads,
            tokens,
            depth,
        } => {
            for batch in region.rows.start / tokens..region.rows.end.div_ceil(tokens) {
                let last = region.columns.end.div_ceil(depth).min(heads);
                for head in region.columns.start / depth..last {
                    let block = Region {
                        groups: meet(&region.groups, 0, 1),
                        rows: meet(&region.rows, batch * tokens, (batch + 1) * tokens),
                        columns: meet(&region.columns, head * depth, (head + 1) * depth),
                    };
                    let shift = Shift {
                        group: i64::from(batch * heads + head),
                        row: -i64::from(batch * tokens),
                        column: -i64::from(head * depth),
                    };
                    push(block, shift);
                }
            }
        }
    }
    blocks
}

fn is_padding(extent: &Extent, at: u32) -> bool {
    at % extent.padded >= extent.logical
}

/// First coordinate after `at` where padding may begin or end.
fn stretch_end(extent: &Extent, at: u32) -> u32 {
    let base = at - at % extent.padded;
    if is_padding(extent, at) || extent.logical == extent.padded {
        base + extent.padded
    } else {
        base + extent.logical
    }
}

/// Logical coordinates in a range.
pub(crate) fn logical_count(extent: &Extent, range: &Range<u32>) -> u32 {
    let below =
        |at: u32| at / extent.padded * extent.logical + (at % extent.padded).min(extent.logical);
    below(range.end) - below(range.start)
}

/// The stretches of a destination range that may be copied: logical in both tensors, or padding
/// of a source whose padding is known to hold values.
pub(crate) fn segments(
    destination: &Extent,
    source: &Extent,
    range: &Range<u32>,
    shift: i64,
    defined: bool,
) -> Vec<Range<u32>> {
    let mut found: Vec<Range<u32>> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let from = (i64::from(at) + shift) as u32;
        let source_left = stretch_end(source, from) - from;
        let end = stretch_end(destination, at)
            .min(at + source_left)
            .min(range.end);
        let (here, there) = (is_padding(destination, at), is_padding(source, from));
        if (defined && there) || (!here && !there) {
            match found.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => found.push(at..end),
            }
        }
        at = end;
    }
    found
}

/// One shard's box and order.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub region: &'a Region,
    pub order: Order,
}

impl Side<'_> {
    fn row_step(&self) -> u32 {
        match self.order {
            Order::RowMajor => self.region.column_count(),
            Order::Panels(g) | Order::Blocks(g) => g,
        }
    }

    /// Least coordinate above `at` where the order breaks the rows, or the end.
    fn row_break(&self, at: u32) -> u32 {
        match self.order {
            Order::Blocks(_) => at + 16 - (at - self.region.rows.start) % 16,
            _ => self.region.rows.end,
        }
    }

    fn column_break(&self, at: u32) -> u32 {
        match self.order {
            Order::RowMajor => self.region.columns.end,
            Order::Panels(g) | Order::Blocks(g) => at + g - (at - self.region.columns.start) % g,
        }
    }
}

fn cut(range: &Range<u32>, mut next: impl FnMut(u32) -> u32) -> Vec<Range<u32>> {
    let mut parts = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = next(at).min(range.end);
        parts.push(at..end);
        at = end;
    }
    parts
}

/// Append the pieces of `region` (destination coordinates), merging what continues.
pub(crate) fn pieces(
    source: Side,
    destination: Side,
    region: &Region,
    shift: Shift,
    found: &mut Vec<Piece>,
) {
    let back = |at: u32, shift: i64| (i64::from(at) + shift) as u32;
    let forth = |at: u32, shift: i64| (i64::from(at) - shift) as u32;
    let rows = cut(&region.rows, |at| {
        let theirs = source.row_break(back(at, shift.row));
        destination.row_break(at).min(forth(theirs, shift.row))
    });
    let columns = cut(&region.columns, |at| {
        let theirs = source.column_break(back(at, shift.column));
        destination
            .column_break(at)
            .min(forth(theirs, shift.column))
    });
    let rows_outside = matches!(destination.order, Order::Blocks(_));
    let (source_step, destination_step) = (source.row_step(), destination.row_step());
    let first = found.len();
    let mut emit = |group: u32, row: &Range<u32>, column: &Range<u32>| {
        let (count, width) = (row.end - row.start, column.end - column.start);
        let mut piece = Piece {
            source: source.region.offset(
                source.order,
                back(group, shift.group),
                back(row.start, shift.row),
                back(column.start, shift.column),
            ),
            destination: destination.region.offset(
                destination.order,
                group,
                row.start,
                column.start,
            ),
            width,
            count,
            source_step,
            destination_step,
        };
        if count == 1 || (source_step == width && destination_step == width) {
            piece.width = width * count;
            piece.count = 1;
        }
        match found[first..].last_mut() {
            Some(last) if continues(last, &piece) => last.width += piece.width,
            _ => found.push(piece),
        }
    };
    for group in region.groups.clone() {
        if rows_outside {
            for row in &rows {
                columns.iter().for_each(|column| emit(group, row, column));
            }
        } else {
            for column in &columns {
                rows.iter().for_each(|row| emit(group, row, column));
            }
        }
    }
}

fn continues(last: &Piece, next: &Piece) -> bool {
    last.count == 1
        && next.count == 1
        && last.source + last.width == next.source
        && last.destination + last.width == next.destination
}

/// Join runs of equal width and regular distance into strided pieces.
pub(crate) fn join_strided(pieces: &[Piece]) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        if !joined.last_mut().is_some_and(|last| extend(last, piece)) {
            joined.push(*piece);
        }
    }
    joined
}

fn extend(last: &mut Piece, next: &Piece) -> bool {
    let (Some(source), Some(destination)) = (
        next.source.checked_sub(last.source),
        next.destination.checked_sub(last.destination),
    ) else {
        return false;
    };
    let (source_step, destination_step) = if last.count == 1 {
        (source, destination)
    } else {
        (last.source_step, last.destination_step)
    };
    let goes_on = last.width == next.width
        && source == last.count * source_step
        && destination == last.count * destination_step
        && source_step >= last.width
        && destination_step >= last.width
        && (next.count == 1
            || (next.source_step == source_step && next.destination_step == destination_step));
    if goes_on {
        last.source_step = source_step;
        last.destination_step = destination_step;
        last.count += next.count;
    }
    goes_on
}
