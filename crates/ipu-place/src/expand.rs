//! Mid to tile program.
//!
//! Input: a mid and the contracts of its kernels. Output: allocations, calls, transfers, host
//! bindings and lifetimes; or what the mid asks for that no program can do.
//! Invariants: the host's steps come first and last; steps keep the order of the mid, and the local
//! copies of an exchange follow its phase.
//! Not here: addresses (`allocate`), rows (`phases`).

use std::collections::BTreeMap;

use ipu_ir::contract::{Arg, Contract};
use ipu_ir::mid::{Mid, Step as MidStep, Storage};
use ipu_ir::program::{AllocId, Step, TileProgram};
use ipu_package::StepKind;

use crate::build::Build;
use crate::error::{PlaceError, Site};
use crate::{host, life};

/// Expand a candidate.
pub fn expand(
    mid: &Mid,
    contracts: &BTreeMap<String, Contract>,
) -> Result<TileProgram, PlaceError> {
    mid.verify()
        .map_err(|error| PlaceError::Mid(error.to_string()))?;
    let mut build = Build::new(mid, contracts)?;
    let (host_tensors, bindings) = host::bindings(mid, &build.grids);
    let inputs = build.held_by(|storage| matches!(storage, Storage::Input(_)), true);
    let outputs = build.held_by(|storage| matches!(storage, Storage::Output(_)), false);
    let mut steps = Vec::new();
    if !inputs.is_empty() {
        let info = build.info(&host_site("upload"), "", StepKind::HostUpload);
        steps.push(Step::HostUpload { info });
    }
    steps.extend(build.steps(&mid.steps)?);
    if !outputs.is_empty() {
        let info = build.info(&host_site("download"), "", StepKind::HostDownload);
        steps.push(Step::HostDownload { info });
    }
    let kernels = build.kernels.names();
    let only_written: Vec<Vec<bool>> = kernels
        .iter()
        .map(|name| {
            let args = contracts[name].args.iter();
            args.map(|arg| matches!(arg, Arg::Out(_))).collect()
        })
        .collect();
    let mut allocations = build.allocations;
    for allocation in &mut allocations {
        allocation.stride = allocation.bytes.next_multiple_of(allocation.align);
    }
    let mut program = TileProgram {
        tiles: mid.tiles,
        allocations,
        kernels,
        infos: build.infos,
        steps,
        host_tensors,
        bindings,
    };
    life::assign(&mut program, &only_written, &inputs, &outputs);
    Ok(program)
}

fn host_site(label: &str) -> Site {
    Site::new("host", label)
}

impl Build<'_> {
    fn steps(&mut self, steps: &[MidStep]) -> Result<Vec<Step>, PlaceError> {
        let mut expanded = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                MidStep::Exchange(exchange) => expanded.extend(self.exchange(exchange)?),
                MidStep::Compute(compute) => expanded.extend(self.compute(compute)?),
                MidStep::Repeat { count, body } => {
                    let outer = self.count.replace(*count);
                    let body = self.steps(body)?;
                    self.count = outer;
                    expanded.push(Step::Repeat {
                        count: *count,
                        body,
                    });
                }
            }
        }
        Ok(expanded)
    }

    /// Allocations of the tensors of one kind; without `replicas` only the first of each part.
    fn held_by(&self, kind: impl Fn(&Storage) -> bool, replicas: bool) -> Vec<AllocId> {
        let tensors = self.mid.tensors.iter().zip(&self.grids);
        let wanted = tensors.filter(|(tensor, _)| kind(&tensor.storage));
        wanted
            .flat_map(|(_, grid)| {
                let step = if replicas { 1 } else { grid.replicas };
                let shards = (0..grid.tiles.len() as u32).step_by(step as usize);
                shards.map(|shard| grid.allocation(shard))
            })
            .collect()
    }
}
