//! Host tensors and their bindings.
//!
//! Input: tensors that the host fills or reads. Output: one host tensor for each graph value and
//! view of it, one binding for each shard that holds a piece.
//! Invariants: groups of a tensor are rows of the host tensor, group by group; every replica of an
//! input or parameter is bound, of an output only the first.
//! Not here: packets, addresses.

use ipu_ir::layout::Extent;
use ipu_ir::mid::{Mid, Storage, Tensor};
use ipu_ir::program::{HostBinding, Place};
use ipu_package::{Role, Span, Tensor as HostTensor};

use crate::grid::Grid;

/// Spans of `groups` repetitions of an extent.
fn spans(groups: u32, extent: &Extent) -> Vec<Span> {
    if extent.logical == extent.padded {
        return vec![Span {
            device: 0,
            logical: 0,
            count: groups * extent.size(),
        }];
    }
    (0..groups * extent.groups)
        .map(|run| Span {
            device: run * extent.padded,
            logical: run * extent.logical,
            count: extent.logical,
        })
        .collect()
}

fn host_tensor(tensor: &Tensor, name: &str, role: Role) -> HostTensor {
    let logical = |extent: &Extent| extent.groups * extent.logical;
    HostTensor {
        name: name.to_owned(),
        role,
        rows: tensor.groups * logical(&tensor.rows),
        columns: logical(&tensor.columns),
        row_spans: spans(tensor.groups, &tensor.rows),
        column_spans: spans(1, &tensor.columns),
    }
}

fn bind(tensor: &Tensor, grid: &Grid, index: u32, member: u32, bindings: &mut Vec<HostBinding>) {
    let step = match tensor.storage {
        Storage::Output(_) => grid.replicas,
        _ => 1,
    };
    for shard in (0..grid.tiles.len() as u32).step_by(step as usize) {
        let region = grid.region(grid.part_of(shard));
        let (rows, columns) = (region.row_count(), region.column_count());
        let dtype = tensor.layout.dtype;
        for group in region.groups.clone() {
            bindings.push(HostBinding {
                tensor: index,
                place: Place {
                    allocation: grid.allocation(shard),
                    offset: (group - region.groups.start) * rows * columns * dtype.bytes(),
                },
                member,
                dtype,
                scale_exponent: tensor.scale_exponent,
                order: tensor.layout.order,
                row: group * tensor.rows.size() + region.rows.start,
                column: region.columns.start,
                rows,
                columns,
            });
        }
    }
}

pub(crate) fn bindings(mid: &Mid, grids: &[Grid]) -> (Vec<HostTensor>, Vec<HostBinding>) {
    let mut tensors: Vec<HostTensor> = Vec::new();
    let mut bindings = Vec::new();
    for (tensor, grid) in mid.tensors.iter().zip(grids) {
        let (names, role) = match &tensor.storage {
            Storage::Transient => continue,
            Storage::Input(name) => (std::slice::from_ref(name), Role::Input),
            Storage::Output(name) => (std::slice::from_ref(name), Role::Output),
            Storage::Parameter(names) => (names.as_slice(), Role::Parameter),
        };
        for (member, name) in names.iter().enumerate() {
            let host = host_tensor(tensor, name, role);
            let known = tensors.iter().position(|other| *other == host);
            let index = known.unwrap_or_else(|| {
                tensors.push(host);
                tensors.len() - 1
            });
            bind(tensor, grid, index as u32, member as u32, &mut bindings);
        }
    }
    (tensors, bindings)
}
