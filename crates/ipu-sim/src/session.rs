//! Host calls: parameters once, then inputs to outputs as often as asked.
//!
//! Input: a package and the host's tensors by name. Output: outputs, cycles and their parts.
//! Invariants: the program's host syncs come in this order: one at which parameters are written,
//! then for each invocation one at which inputs are written and one at which outputs are read.
//! The cycles of an invocation run from the last tile's arrival at the first of the two to the
//! last tile's arrival at the second.
//! Not here: the packets that carry bytes, comparison with references.

use std::collections::BTreeMap;

use ipu_package::{Binding, Package, Role, Tensor};
use rayon::prelude::*;

use crate::fault::{ContextId, DeviceFault, FaultKind, Use};
use crate::host::{pack, unpack, words_in_use};
use crate::machine::{CycleCount, LoadError, Machine};

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Fault(#[from] Box<DeviceFault>),
    #[error("tensor `{0}` was not given")]
    Missing(String),
    #[error("tensor `{name}` has {found} elements, not {expected}")]
    Extent {
        name: String,
        found: usize,
        expected: usize,
    },
    #[error("tensor `{name}` is bound to tile {tile}, which has no image")]
    NoTile { name: String, tile: u32 },
    #[error("parameters were not uploaded")]
    NotInitialized,
}

/// What one invocation gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    /// Logical matrices in row-major order, by name.
    pub outputs: BTreeMap<String, Vec<f32>>,
    /// Simulated cycles.
    pub cycles: u64,
    pub parts: CycleCount,
}

/// A loaded package between calls.
pub struct Session<'a> {
    package: &'a Package,
    machine: Machine,
    /// Bindings of each tensor.
    bindings: Vec<Vec<&'a Binding>>,
    initialized: bool,
    data: bool,
}

/// Tensors of the host, asked for one at a time.
pub type Source<'s> = dyn FnMut(&Tensor) -> Option<Vec<f32>> + 's;

impl<'a> Session<'a> {
    /// Load a package to compute outputs.
    pub fn new(package: &'a Package) -> Result<Session<'a>, SessionError> {
        Session::open(package, true)
    }

    /// Load a package to count cycles: tensors are neither asked for nor given.
    pub fn without_data(package: &'a Package) -> Result<Session<'a>, SessionError> {
        let mut session = Session::open(package, false)?;
        session.machine.recall_calls();
        Ok(session)
    }

    /// As [`Session::without_data`], with every kernel call executed.
    pub fn executing_each_call(package: &'a Package) -> Result<Session<'a>, SessionError> {
        Session::open(package, false)
    }

    fn open(package: &'a Package, data: bool) -> Result<Session<'a>, SessionError> {
        let mut bindings = vec![Vec::new(); package.tensors.len()];
        for binding in &package.bindings {
            bindings[binding.tensor as usize].push(binding);
        }
        Ok(Session {
            package,
            machine: Machine::new(package, data)?,
            bindings,
            initialized: false,
            data,
        })
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Upload the parameters, one tensor at a time.
    pub fn initialize(&mut self, source: &mut Source) -> Result<(), SessionError> {
        self.machine.run_to_host()?;
        self.upload(Role::Parameter, source)?;
        self.initialized = true;
        Ok(())
    }

    /// One invocation.
    pub fn invoke(&mut self, inputs: &mut Source) -> Result<Invocation, SessionError> {
        if !self.initialized {
            return Err(SessionError::NotInitialized);
        }
        self.machine.run_to_host()?;
        self.upload(Role::Input, inputs)?;
        self.machine.begin_count();
        self.machine.run_to_host()?;
        let parts = self.machine.count().clone();
        Ok(Invocation {
            outputs: self.download()?,
            cycles: parts.total(),
            parts,
        })
    }

    fn upload(&mut self, role: Role, source: &mut Source) -> Result<(), SessionError> {
        if !self.data {
            return Ok(());
        }
        for (tensor, bindings) in self.package.tensors.iter().zip(&self.bindings) {
            if tensor.role != role {
                continue;
            }
            let matrix =
                source(tensor).ok_or_else(|| SessionError::Missing(tensor.name.clone()))?;
            let expected = tensor.rows as usize * tensor.columns as usize;
            if matrix.len() != expected {
                return Err(SessionError::Extent {
                    name: tensor.name.clone(),
                    found: matrix.len(),
                    expected,
                });
            }
            let shards: Vec<Vec<u8>> = bindings
                .par_iter()
                .map(|binding| pack(tensor, binding, &matrix))
                .collect();
            for (binding, bytes) in bindings.iter().zip(shards) {
                let tile = self.machine.tile_mut(binding.tile);
                let tile = tile.ok_or_else(|| no_tile(tensor, binding))?;
                if let Err(kind) = tile.memory.write_bytes(binding.address, &bytes) {
                    let fault = tile.fault(ContextId::Supervisor, tile.pc, *kind);
                    return Err(SessionError::Fault(fault));
                }
            }
        }
        Ok(())
    }

    fn download(&self) -> Result<BTreeMap<String, Vec<f32>>, SessionError> {
        let mut outputs = BTreeMap::new();
        if !self.data {
            return Ok(outputs);
        }
        for (tensor, bindings) in self.package.tensors.iter().zip(&self.bindings) {
            if tensor.role != Role::Output {
                continue;
            }
            let mut matrix = vec![0.0; tensor.rows as usize * tensor.columns as usize];
            for binding in bindings {
                let bytes = self.shard(tensor, binding)?;
                unpack(tensor, binding, &bytes, &mut matrix);
            }
            outputs.insert(tensor.name.clone(), matrix);
        }
        Ok(outputs)
    }

    /// Bytes of an output's shard; elements in use must be defined.
    fn shard(&self, tensor: &Tensor, binding: &Binding) -> Result<Vec<u8>, SessionError> {
        let tile = self.machine.tile(binding.tile);
        let tile = tile.ok_or_else(|| no_tile(tensor, binding))?;
        let fault = |kind| SessionError::Fault(tile.fault(ContextId::Supervisor, tile.pc, kind));
        let count = binding.bytes().div_ceil(4);
        let memory = &tile.memory;
        let words = memory
            .words(binding.address, count)
            .map_err(|k| fault(*k))?;
        for word in words_in_use(tensor, binding) {
            let address = binding.address + 4 * word;
            if memory.first_undefined(address, 1) != Ok(None) {
                return Err(fault(FaultKind::Undefined(Use::Output { address })));
            }
        }
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}

fn no_tile(tensor: &Tensor, binding: &Binding) -> SessionError {
    SessionError::NoTile {
        name: tensor.name.clone(),
        tile: binding.tile,
    }
}
