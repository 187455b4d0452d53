//! Labels, coordinates and views of the replay, element by element.
//!
//! Input: tensors, bindings, coordinates. Output: labels and places.
//! Not here: what happens to them (`replay`).

use ipu_ir::layout::{Extent, Region};
use ipu_ir::mid::{Tensor, View};
use ipu_ir::program::HostBinding;
use ipu_package::Span;

/// Label of memory that holds nothing, and of values that the mid does not promise.
pub(super) const NOTHING: u64 = 0;
/// What the host writes into padding.
pub(super) const ZERO: u64 = 8;

/// A label; the low three bits are free for the byte of the element.
pub(super) fn label(parts: &[u64]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15u64;
    for part in parts {
        hash = (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^= hash >> 29;
    }
    (hash | 16) & !7
}

pub(super) fn name_label(name: &str, row: u32, column: u32, invocation: u64) -> u64 {
    let mut parts: Vec<u64> = name.bytes().map(u64::from).collect();
    parts.extend([invocation, u64::from(row), u64::from(column)]);
    label(&parts)
}

pub(super) fn logical_of(extent: &Extent, at: u32) -> Option<u32> {
    let (run, inside) = (at / extent.padded, at % extent.padded);
    (inside < extent.logical).then_some(run * extent.logical + inside)
}

pub(super) fn spanned(spans: &[Span], at: u32) -> Option<u32> {
    let span = spans
        .iter()
        .find(|span| (span.device..span.device + span.count).contains(&at));
    span.map(|span| span.logical + at - span.device)
}

pub(super) fn index(tensor: &Tensor, at: [u32; 3]) -> usize {
    ((at[0] * tensor.rows.size() + at[1]) * tensor.columns.size() + at[2]) as usize
}

pub(super) fn coordinates(region: &Region) -> impl Iterator<Item = [u32; 3]> + '_ {
    region.groups.clone().flat_map(move |group| {
        region.rows.clone().flat_map(move |row| {
            let columns = region.columns.clone();
            columns.map(move |column| [group, row, column])
        })
    })
}

/// The source coordinate of a destination coordinate.
pub(super) fn viewed(view: &View, [group, row, column]: [u32; 3]) -> [u32; 3] {
    match *view {
        View::Same {
            group: first,
            column: from,
        } => [group + first, row, column + from],
        View::SplitHeads {
            heads,
            tokens,
            depth,
            column: from,
        } => [
            0,
            group / heads * tokens + row,
            from + group % heads * depth + column,
        ],
        View::JoinHeads {
            heads,
            tokens,
            depth,
        } => [
            row / tokens * heads + column / depth,
            row % tokens,
            column % depth,
        ],
    }
}

/// Device row, device column and element offset of everything in a binding.
pub(super) fn elements(binding: &HostBinding) -> impl Iterator<Item = (u32, u32, u32)> {
    let HostBinding {
        order,
        row,
        column,
        rows,
        columns,
        ..
    } = *binding;
    (0..rows).flat_map(move |r| {
        (0..columns).map(move |c| (row + r, column + c, order.offset(rows, columns, r, c)))
    })
}
