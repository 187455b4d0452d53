//! Host tensors and their bindings.
//!
//! Input: a package. Output: the first fault in spans, shapes, places or coverage.
//! Invariants: after `check_bindings` every binding's indices are in range and its bytes lie in data
//! memory; every logical element of an input or parameter is held at least once, of an output once.
//! Not here: overlaps (`memory`).

use std::ops::Range;

use rayon::prelude::*;

use super::cover::{Rectangle, miscovered};
use super::error::{Axis, CheckError, Occupant};
use super::{MEMORY_END, RUNTIME_END};
use crate::order::Order;
use crate::types::{Binding, Package, Role, Span, Tensor};

pub(super) fn check_tensors(package: &Package) -> Result<(), CheckError> {
    for tensor in &package.tensors {
        if tensor.rows == 0 || tensor.columns == 0 {
            return Err(CheckError::TensorEmpty {
                tensor: tensor.name.clone(),
            });
        }
        check_spans(tensor, Axis::Rows, tensor.rows, &tensor.row_spans)?;
        check_spans(tensor, Axis::Columns, tensor.columns, &tensor.column_spans)?;
    }
    Ok(())
}

/// Spans part the logical extent, and their device runs are disjoint.
fn check_spans(tensor: &Tensor, axis: Axis, extent: u32, spans: &[Span]) -> Result<(), CheckError> {
    let name = || tensor.name.clone();
    for span in spans {
        let logical_end = u64::from(span.logical) + u64::from(span.count);
        let device_end = u64::from(span.device) + u64::from(span.count);
        if span.count == 0 || logical_end > extent.into() || device_end > u32::MAX.into() {
            return Err(CheckError::SpanRange {
                tensor: name(),
                axis,
                logical: span.logical,
                device: span.device,
                count: span.count,
            });
        }
    }
    let mut sorted = spans.to_vec();
    sorted.sort_unstable_by_key(|span| span.logical);
    let mut next = 0;
    for span in &sorted {
        if span.logical != next {
            break;
        }
        next = span.logical + span.count;
    }
    let total: u64 = spans.iter().map(|span| u64::from(span.count)).sum();
    if next != extent || total != extent.into() {
        return Err(CheckError::SpanCover {
            tensor: name(),
            axis,
            logical: next,
        });
    }
    sorted.sort_unstable_by_key(|span| span.device);
    let overlap = sorted
        .windows(2)
        .find(|pair| pair[0].device + pair[0].count > pair[1].device);
    match overlap {
        Some(pair) => Err(CheckError::SpanOverlap {
            tensor: name(),
            axis,
            device: pair[1].device,
        }),
        None => Ok(()),
    }
}

pub(super) fn check_bindings(package: &Package) -> Result<(), CheckError> {
    for (index, binding) in package.bindings.iter().enumerate() {
        let Some(tensor) = package.tensors.get(binding.tensor as usize) else {
            return Err(CheckError::TensorIndex {
                binding: index,
                tensor: binding.tensor,
                tensors: package.tensors.len(),
            });
        };
        check_binding(package, index, binding, tensor)?;
    }
    Ok(())
}

fn check_binding(
    package: &Package,
    index: usize,
    binding: &Binding,
    tensor: &Tensor,
) -> Result<(), CheckError> {
    let name = || tensor.name.clone();
    let &Binding { tile, address, .. } = binding;
    if tile >= package.tiles {
        return Err(CheckError::BindingTile {
            binding: index,
            tensor: name(),
            tile,
            tiles: package.tiles,
        });
    }
    if !has_shape(binding) {
        return Err(CheckError::BindingShape {
            binding: index,
            tensor: name(),
            tile,
            rows: binding.rows,
            columns: binding.columns,
        });
    }
    let occupant = || Occupant::Tensor(name());
    if !address.is_multiple_of(4) {
        return Err(CheckError::Misaligned {
            tile,
            occupant: occupant(),
            address,
        });
    }
    // At most 2^64 - 2^33 elements: saturation keeps it out of memory.
    let elements = u64::from(binding.rows) * u64::from(binding.columns);
    let bytes = elements.saturating_mul(binding.dtype.bytes().into());
    if address < RUNTIME_END || u64::from(address).saturating_add(bytes) > MEMORY_END.into() {
        return Err(CheckError::OutOfMemory {
            tile,
            occupant: occupant(),
            address,
            bytes,
        });
    }
    Ok(())
}

/// Whether the extents are what the order can hold, and end within 32 bits.
fn has_shape(binding: &Binding) -> bool {
    let &Binding { rows, columns, .. } = binding;
    let ends =
        binding.row.checked_add(rows).is_some() && binding.column.checked_add(columns).is_some();
    let whole = match binding.order {
        Order::RowMajor => true,
        Order::Panels(group) => group > 0 && columns.is_multiple_of(group),
        Order::Blocks(group) => {
            group > 0 && columns.is_multiple_of(group) && rows.is_multiple_of(16)
        }
    };
    rows > 0 && columns > 0 && ends && whole
}

/// Each logical element is held as often as its role asks.
pub(super) fn check_cover(package: &Package) -> Result<(), CheckError> {
    let mut rectangles: Vec<Vec<Rectangle>> = Vec::new();
    rectangles.resize_with(package.tensors.len(), Vec::new);
    for binding in &package.bindings {
        let run = |start: u32, count: u32| u64::from(start)..u64::from(start) + u64::from(count);
        rectangles[binding.tensor as usize].push(Rectangle {
            rows: run(binding.row, binding.rows),
            columns: run(binding.column, binding.columns),
        });
    }
    let results: Vec<Result<(), CheckError>> = package
        .tensors
        .par_iter()
        .zip(&rectangles)
        .map(|(tensor, rectangles)| check_tensor_cover(tensor, rectangles))
        .collect();
    results.into_iter().collect()
}

fn check_tensor_cover(tensor: &Tensor, rectangles: &[Rectangle]) -> Result<(), CheckError> {
    let allowed = match tensor.role {
        Role::Output => 1..=1,
        Role::Input | Role::Parameter => 1..=i32::MAX,
    };
    let (rows, columns) = (runs(&tensor.row_spans), runs(&tensor.column_spans));
    let Some(fault) = miscovered(rectangles, &rows, &columns, allowed) else {
        return Ok(());
    };
    let name = tensor.name.clone();
    let row = logical(&tensor.row_spans, fault.row);
    let column = logical(&tensor.column_spans, fault.column);
    Err(match fault.count {
        0 => CheckError::Uncovered {
            tensor: name,
            row,
            column,
        },
        bindings => CheckError::CoveredTwice {
            tensor: name,
            row,
            column,
            bindings,
        },
    })
}

/// Device runs of spans, ascending.
fn runs(spans: &[Span]) -> Vec<Range<u64>> {
    let run = |span: &Span| {
        let start = u64::from(span.device);
        start..start + u64::from(span.count)
    };
    let mut runs: Vec<Range<u64>> = spans.iter().map(run).collect();
    runs.sort_unstable_by_key(|run| run.start);
    runs
}

/// The logical index that stands at a device index of a span.
fn logical(spans: &[Span], device: u64) -> u32 {
    let inside = |span: &&Span| {
        let start = u64::from(span.device);
        (start..start + u64::from(span.count)).contains(&device)
    };
    let span = spans.iter().find(inside);
    span.map_or(0, |span| span.logical + (device as u32 - span.device))
}
