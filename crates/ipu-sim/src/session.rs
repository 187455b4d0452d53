//! Host calls: parameters once, then inputs to outputs as often as asked.
//!
//! Input: a package and the host's tensors by name. Output: outputs, cycles and their parts.
//! Invariants: each host sync of the program gets one mark: one at the start, two for each batch
//! of a call; slots are filled before the entry of an upload is released, and read after the
//! closing sync of a download. The cycles of an invocation run from the last tile's arrival at the
//! sync after the last staging copy to the last tile's arrival at the entry sync of the outputs.
//! Not here: packets (`machine`), comparison with references.

use std::collections::BTreeMap;

use ipu_package::host::{HostRun, batches};
use ipu_package::{Binding, Package, Role, Tensor};
use rayon::prelude::*;

use crate::fault::{ContextId, DeviceFault, FaultKind, Use};
use crate::files::Files;
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
    #[error("a shard of tensor `{name}` on tile {tile} is in no run of the host plan")]
    NoRun { name: String, tile: u32 },
    #[error("tile {0} has no slot in the host plan")]
    NoSlot(u32),
    #[error("the host plan has no {0:?}")]
    NoTransfer(Role),
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
    /// Slot of each tile that has one.
    slots: BTreeMap<u32, usize>,
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
        let plan = &package.host;
        let calls = [
            (Role::Input, &plan.inputs),
            (Role::Output, &plan.outputs),
            (Role::Parameter, &plan.parameters),
        ];
        // Cycles have no start without an input and no end without an output.
        if let Some((role, _)) = calls[..2].iter().find(|(_, runs)| runs.is_empty()) {
            return Err(SessionError::NoTransfer(*role));
        }
        let slots: BTreeMap<u32, usize> = plan.slots.iter().copied().zip(0..).collect();
        let mut runs = calls.iter().flat_map(|(_, runs)| runs.iter());
        if let Some(run) = runs.find(|run| !slots.contains_key(&run.tile)) {
            return Err(SessionError::NoSlot(run.tile));
        }
        Ok(Session {
            package,
            machine: Machine::new(package, data)?,
            bindings,
            slots,
            initialized: false,
            data,
        })
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Start the program and upload the parameters, one tensor at a time.
    pub fn initialize(&mut self, source: &mut Source) -> Result<(), SessionError> {
        let package = self.package;
        let runs = &package.host.parameters;
        let files = self.files(Role::Parameter, runs, source)?;
        self.machine.run_to_host()?;
        self.release()?;
        for batch in batches(runs) {
            self.fill(&batch, &files);
            self.release()?;
            self.release()?;
        }
        self.initialized = true;
        Ok(())
    }

    /// One invocation.
    pub fn invoke(&mut self, inputs: &mut Source) -> Result<Invocation, SessionError> {
        if !self.initialized {
            return Err(SessionError::NotInitialized);
        }
        let plan = &self.package.host;
        let files = self.files(Role::Input, &plan.inputs, inputs)?;
        let uploads = batches(&plan.inputs);
        for (index, batch) in uploads.iter().enumerate() {
            self.fill(batch, &files);
            self.release()?;
            if index + 1 == uploads.len() {
                self.machine.count_from_next_sync();
            }
            self.release()?;
        }
        // All tiles stand at the entry sync of the outputs.
        let parts = self.machine.count().clone();
        let mut files = Files::new(&plan.outputs);
        for batch in batches(&plan.outputs) {
            self.release()?;
            self.release()?;
            self.collect(&batch, &mut files);
        }
        Ok(Invocation {
            outputs: self.outputs(&files)?,
            cycles: parts.total(),
            parts,
        })
    }

    /// Give one mark and run to the next host sync.
    fn release(&mut self) -> Result<(), SessionError> {
        self.machine.mark();
        self.machine.run_to_host()?;
        Ok(())
    }

    /// The bytes of all runs of a role.
    fn files(
        &self,
        role: Role,
        runs: &[HostRun],
        source: &mut Source,
    ) -> Result<Files, SessionError> {
        let mut files = Files::new(runs);
        if !self.data {
            return Ok(files);
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
                let place = files.place(&run_of(binding));
                let place = place.ok_or_else(|| no_run(tensor, binding))?;
                for (word, bytes) in files.words[place].iter_mut().zip(bytes.as_chunks().0) {
                    *word = u32::from_le_bytes(*bytes);
                }
            }
        }
        Ok(files)
    }

    /// Fill the slots of a batch.
    fn fill(&mut self, batch: &[HostRun], files: &Files) {
        if !self.data {
            return;
        }
        for slice in batch {
            let place = files.place(slice).expect("slices lie in runs");
            let slot = self.slots[&slice.tile];
            self.machine.pages_mut().fill(slot, &files.words[place]);
        }
    }

    /// Read the slots of a batch.
    fn collect(&self, batch: &[HostRun], files: &mut Files) {
        if !self.data {
            return;
        }
        for slice in batch {
            let place = files.place(slice).expect("slices lie in runs");
            let slot = self.slots[&slice.tile];
            let (words, defined) = self.machine.pages().collect(slot, slice.bytes);
            files.words[place.clone()].copy_from_slice(words);
            files.defined[place].copy_from_slice(defined);
        }
    }

    fn outputs(&self, files: &Files) -> Result<BTreeMap<String, Vec<f32>>, SessionError> {
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
                let bytes = self.shard(files, tensor, binding)?;
                unpack(tensor, binding, &bytes, &mut matrix);
            }
            outputs.insert(tensor.name.clone(), matrix);
        }
        Ok(outputs)
    }

    /// Bytes of an output's shard; elements in use must be defined.
    fn shard(
        &self,
        files: &Files,
        tensor: &Tensor,
        binding: &Binding,
    ) -> Result<Vec<u8>, SessionError> {
        let place = files.place(&run_of(binding));
        let place = place.ok_or_else(|| no_run(tensor, binding))?;
        let defined = &files.defined[place.clone()];
        let undefined = words_in_use(tensor, binding)
            .into_iter()
            .find(|word| !defined[*word as usize]);
        if let (Some(word), Some(tile)) = (undefined, self.machine.tile(binding.tile)) {
            let address = binding.address + 4 * word;
            let kind = FaultKind::Undefined(Use::Output { address });
            return Err(tile.fault(ContextId::Supervisor, tile.pc, kind).into());
        }
        let words = files.words[place].iter();
        Ok(words.flat_map(|word| word.to_le_bytes()).collect())
    }
}

/// The whole words that hold a binding.
fn run_of(binding: &Binding) -> HostRun {
    HostRun {
        tile: binding.tile,
        address: binding.address,
        bytes: binding.bytes().next_multiple_of(4),
    }
}

fn no_run(tensor: &Tensor, binding: &Binding) -> SessionError {
    SessionError::NoRun {
        name: tensor.name.clone(),
        tile: binding.tile,
    }
}
