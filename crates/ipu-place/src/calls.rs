//! Compute steps to kernel calls: frames in the order of the contract's arguments.
//!
//! Input: a compute step. Output: one call on each of its tiles, ascending by tile; what the
//! contract needs of the operands is recorded on their allocations.
//! Invariants: scalars are a shape the contract accepts; extents lie inside the shards.
//! Not here: the time a call takes.

use ipu_ir::contract::{Arg, Contract, Pointer};
use ipu_ir::layout::{Coordinates, Shard};
use ipu_ir::mid::{Compute, Filter, ScalarRule, TensorId};
use ipu_ir::program::{AllocId, Call, Place, Step, Word};
use ipu_package::StepKind;

use crate::build::Build;
use crate::error::{Extent, PlaceError, Site};

/// How one frame word is found on every tile.
enum Source<'a> {
    Pointer(&'a Pointer, TensorId, bool),
    Scalar(&'a str, &'a ScalarRule, Option<TensorId>),
}

/// A call that is being made.
struct Caller<'a> {
    site: Site,
    kernel: u32,
    contract: &'a Contract,
    sources: Vec<Source<'a>>,
}

impl Build<'_> {
    /// Expand a compute step; nothing when no tile takes part.
    pub fn compute(&mut self, compute: &Compute) -> Result<Option<Step>, PlaceError> {
        let site = Site::new(&compute.operation, &compute.label);
        let Some((kernel, contract)) = self.kernels.find(&compute.kernel) else {
            return Err(PlaceError::UnknownKernel {
                site,
                kernel: compute.kernel.clone(),
            });
        };
        for operand in &compute.operands {
            self.check_members(&site, operand.tensor)?;
        }
        let caller = Caller {
            sources: self.sources(&site, compute, contract)?,
            site,
            kernel,
            contract,
        };
        let driver = compute.operands[0].tensor;
        let mut tiles = self.grids[driver.0 as usize].tiles.clone();
        tiles.sort_unstable();
        let mut calls = Vec::with_capacity(tiles.len());
        for tile in tiles {
            let shard = self.shard(driver, tile);
            if compute.only == Filter::All || self.mid.tensor(driver).is_padded(&shard) {
                calls.push(self.call(&caller, tile)?);
            }
        }
        if calls.is_empty() {
            return Ok(None);
        }
        let info = self.info(&caller.site, "", StepKind::Compute);
        Ok(Some(Step::Calls { info, calls }))
    }

    fn sources<'c>(
        &self,
        site: &Site,
        compute: &'c Compute,
        contract: &'c Contract,
    ) -> Result<Vec<Source<'c>>, PlaceError> {
        let fault = |argument: &str, what: &str| PlaceError::Argument {
            site: site.clone(),
            kernel: compute.kernel.clone(),
            argument: argument.to_owned(),
            what: what.to_owned(),
        };
        let tensor = |name: &str| {
            let mut operands = compute.operands.iter();
            operands
                .find(|operand| operand.argument == name)
                .map(|operand| operand.tensor)
        };
        let named = compute.operands.iter().map(|operand| &operand.argument);
        for name in named.chain(compute.scalars.keys()) {
            if contract.arg(name).is_none() {
                return Err(fault(name, "not in the contract"));
            }
        }
        let mut sources = Vec::with_capacity(contract.args.len());
        for arg in &contract.args {
            let name = arg.name();
            if let Some(pointer) = arg.pointer() {
                let operand = tensor(name).ok_or_else(|| fault(name, "no operand"))?;
                if arg.writes() {
                    self.check_written(site, operand)?;
                }
                let whole = matches!(arg, Arg::Out(_));
                sources.push(Source::Pointer(pointer, operand, whole));
                continue;
            }
            let rule = compute.scalars.get(name);
            let rule = rule.ok_or_else(|| fault(name, "no value"))?;
            let measured = match rule {
                ScalarRule::Const(_) => None,
                ScalarRule::Measure { argument, .. } => {
                    Some(tensor(argument).ok_or_else(|| fault(argument, "no operand"))?)
                }
            };
            sources.push(Source::Scalar(name, rule, measured));
        }
        Ok(sources)
    }

    /// The shard of a tensor on a tile; the verified mid has one wherever it is asked for.
    fn shard(&self, tensor: TensorId, tile: u32) -> Shard {
        let grid = &self.grids[tensor.0 as usize];
        let part = grid.shard_on(tile).map_or(0, |shard| grid.part_of(shard));
        Shard {
            tile,
            region: grid.region(part),
            coordinates: Coordinates::default(),
        }
    }

    fn operand(&self, tensor: TensorId, tile: u32) -> AllocId {
        let grid = &self.grids[tensor.0 as usize];
        grid.allocation(grid.shard_on(tile).unwrap_or(0))
    }

    fn scalar(
        &self,
        caller: &Caller,
        tile: u32,
        source: (&str, &ScalarRule, Option<TensorId>),
    ) -> Result<i64, PlaceError> {
        let (name, rule, tensor) = source;
        match (rule, tensor) {
            (ScalarRule::Const(value), _) => Ok(*value),
            (
                ScalarRule::Measure {
                    measure, divisor, ..
                },
                Some(tensor),
            ) => {
                let value = measure.of(self.mid.tensor(tensor), &self.shard(tensor, tile));
                if *divisor == 0 || value % divisor != 0 {
                    let what = format!("{name}: {divisor} does not divide {value}");
                    return Err(caller.refused(tile, what));
                }
                Ok(i64::from(value / divisor))
            }
            (ScalarRule::Measure { .. }, None) => {
                Err(caller.refused(tile, format!("{name} measures nothing")))
            }
        }
    }

    fn call(&mut self, caller: &Caller, tile: u32) -> Result<Call, PlaceError> {
        let mut scalars = Vec::new();
        let mut frame = Vec::with_capacity(caller.sources.len());
        for source in &caller.sources {
            frame.push(match *source {
                Source::Pointer(_, tensor, _) => Word::Address(Place {
                    allocation: self.operand(tensor, tile),
                    offset: 0,
                }),
                Source::Scalar(name, rule, tensor) => {
                    let value = self.scalar(caller, tile, (name, rule, tensor))?;
                    scalars.push(value);
                    Word::Scalar(value as u32)
                }
            });
        }
        let extents = self
            .kernels
            .extents(caller.kernel, &scalars)
            .map_err(|what| caller.refused(tile, what))?;
        let pointers = caller.sources.iter().filter_map(|source| match *source {
            Source::Pointer(pointer, tensor, whole) => Some((pointer, tensor, whole)),
            Source::Scalar(..) => None,
        });
        for ((pointer, tensor, whole), needed) in pointers.zip(extents) {
            let id = self.operand(tensor, tile);
            let available = self.allocation(id).bytes;
            if needed > u64::from(available) {
                return Err(PlaceError::Extent(Box::new(Extent {
                    site: caller.site.clone(),
                    kernel: caller.contract.name.clone(),
                    tile,
                    argument: pointer.name.clone(),
                    tensor: self.name(tensor),
                    needed,
                    available,
                })));
            }
            self.demand(id, pointer, 0, needed);
            self.defined[id.0 as usize] |= whole && needed == u64::from(available);
        }
        self.separate(caller.site.clone(), caller.contract, &frame)?;
        Ok(Call {
            tile,
            kernel: caller.kernel,
            frame,
        })
    }

    /// Record the contract's distinct edges between the allocations of a frame.
    pub fn separate(
        &mut self,
        site: Site,
        contract: &Contract,
        frame: &[Word],
    ) -> Result<(), PlaceError> {
        for edge in &contract.distinct {
            let place = |name: &str| {
                let at = contract.args.iter().position(|arg| arg.name() == name)?;
                match frame[at] {
                    Word::Address(place) => Some(place.allocation),
                    Word::Scalar(_) => None,
                }
            };
            let (Some(a), Some(b)) = (place(&edge.args[0]), place(&edge.args[1])) else {
                continue;
            };
            if a == b {
                let tensor = TensorId(self.allocation(a).tensor);
                return Err(PlaceError::SelfDistinct {
                    site,
                    kernel: contract.name.clone(),
                    tensor: self.name(tensor),
                });
            }
            self.keep_apart(a, b);
        }
        Ok(())
    }
}

impl Caller<'_> {
    fn refused(&self, tile: u32, what: String) -> PlaceError {
        PlaceError::Shape {
            site: self.site.clone(),
            kernel: self.contract.name.clone(),
            tile,
            what,
        }
    }
}
