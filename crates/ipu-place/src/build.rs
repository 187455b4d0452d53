//! The program under construction: allocations and what the calls seen so far demand of them.
//!
//! Input: a mid and its contracts. Output: one allocation for each shard, tensor by tensor.
//! Invariants: an allocation id is the first id of its tensor plus the shard's number.
//! Not here: steps (`calls`, `copies`), lifetimes (`life`).

use std::collections::BTreeMap;

use ipu_ir::contract::{Contract, MemoryClass, Pointer};
use ipu_ir::mid::{Mid, Storage, Tensor, TensorId};
use ipu_ir::program::{AllocId, Allocation, Life};
use ipu_package::{StepInfo, StepKind};

use crate::error::{PlaceError, Site};
use crate::grid::Grid;
use crate::kernels::Kernels;

/// Least alignment of every allocation: rows, paired transfers and local copies move 8 bytes.
const ALIGN_MIN: u32 = 8;

pub(crate) struct Build<'a> {
    pub mid: &'a Mid,
    pub grids: Vec<Grid>,
    pub kernels: Kernels<'a>,
    pub allocations: Vec<Allocation>,
    pub infos: Vec<StepInfo>,
    /// For each allocation: whether all of it, padding included, is known to hold values.
    pub defined: Vec<bool>,
    /// Iterations of the innermost loop around the current step.
    pub count: Option<u32>,
}

impl<'a> Build<'a> {
    pub fn new(
        mid: &'a Mid,
        contracts: &'a BTreeMap<String, Contract>,
    ) -> Result<Self, PlaceError> {
        let mut build = Build {
            mid,
            grids: Vec::with_capacity(mid.tensors.len()),
            kernels: Kernels::new(contracts),
            allocations: Vec::new(),
            infos: Vec::new(),
            defined: Vec::new(),
            count: None,
        };
        for (index, tensor) in mid.tensors.iter().enumerate() {
            let grid = Grid::new(tensor, mid.tiles, build.allocations.len() as u32);
            check_order(tensor, &grid)?;
            let bytes = tensor.layout.dtype.bytes();
            let life = match tensor.storage {
                Storage::Parameter(_) => Life::Persistent,
                _ => Life::Events { first: 0, last: 0 },
            };
            let from_host = matches!(tensor.storage, Storage::Parameter(_) | Storage::Input(_));
            for (shard, &tile) in grid.tiles.iter().enumerate() {
                let part = grid.part_of(shard as u32);
                build.allocations.push(Allocation {
                    tile,
                    tensor: index as u32,
                    bytes: grid.region(part).elements() * bytes,
                    members: tensor.members(),
                    stride: 0,
                    align: ALIGN_MIN,
                    class: tensor.layout.class,
                    over_read: 0,
                    life,
                    distinct: Vec::new(),
                });
                build.defined.push(from_host);
            }
            build.grids.push(grid);
        }
        Ok(build)
    }

    pub fn name(&self, tensor: TensorId) -> String {
        self.mid.tensor(tensor).name.clone()
    }

    pub fn allocation(&mut self, id: AllocId) -> &mut Allocation {
        &mut self.allocations[id.0 as usize]
    }

    pub fn info(&mut self, site: &Site, suffix: &str, kind: StepKind) -> u32 {
        self.infos.push(StepInfo {
            operation: site.operation.to_string(),
            label: format!("{}{suffix}", site.label),
            kind,
        });
        self.infos.len() as u32 - 1
    }

    /// Let an allocation suit a pointer argument that begins `offset` bytes inside it.
    pub fn demand(&mut self, id: AllocId, pointer: &Pointer, offset: u32, extent: u64) {
        let allocation = self.allocation(id);
        allocation.align = allocation.align.max(pointer.align);
        if pointer.class == MemoryClass::Interleaved {
            allocation.class = MemoryClass::Interleaved;
        }
        let end = u64::from(offset) + extent + u64::from(pointer.over_read);
        let past = end.saturating_sub(u64::from(allocation.bytes)) as u32;
        allocation.over_read = allocation.over_read.max(past);
    }

    /// Keep two allocations of one tile in different memory elements.
    pub fn keep_apart(&mut self, a: AllocId, b: AllocId) {
        for (from, to) in [(a, b), (b, a)] {
            let distinct = &mut self.allocation(from).distinct;
            if let Err(at) = distinct.binary_search(&to) {
                distinct.insert(at, to);
            }
        }
    }

    /// A sequence is used where its members are counted.
    pub fn check_members(&self, site: &Site, tensor: TensorId) -> Result<(), PlaceError> {
        let members = self.mid.tensor(tensor).members();
        let count = self.count.unwrap_or(1);
        if members == 1 || members == count {
            return Ok(());
        }
        Err(PlaceError::Members {
            site: site.clone(),
            tensor: self.name(tensor),
            members,
            count,
        })
    }

    pub fn check_written(&self, site: &Site, tensor: TensorId) -> Result<(), PlaceError> {
        match self.mid.tensor(tensor).storage {
            Storage::Parameter(_) => Err(PlaceError::ParameterWritten {
                site: site.clone(),
                tensor: self.name(tensor),
            }),
            _ => Ok(()),
        }
    }
}

/// Every shard's extent is one that the order can hold without a gap.
fn check_order(tensor: &Tensor, grid: &Grid) -> Result<(), PlaceError> {
    for (row, rows) in grid.rows.iter().enumerate() {
        for (column, columns) in grid.columns.iter().enumerate() {
            let (rows, columns) = (rows.end - rows.start, columns.end - columns.start);
            if tensor.layout.order.physical(rows, columns) != (rows, columns) {
                return Err(PlaceError::Physical {
                    tensor: tensor.name.clone(),
                    tile: grid.part_tiles(grid.part(0, row, column))[0],
                    rows,
                    columns,
                });
            }
        }
    }
    Ok(())
}
