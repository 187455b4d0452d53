//! One file a stage: binds a pass to its inputs, parameters, codec, fingerprint.
//!
//! Input: what a rule declares, through [`StageInputs`](ipub_engine::StageInputs). Output: named
//! blobs.
//! Invariants: a stage reads no file, clock or variable of its own; what it is given decides its
//! outputs.
//! Not here: algorithms (they are passes), terminals, exit codes.

mod candidates;
mod codec;
mod context;
mod device;
mod families;
pub mod fingerprint;
mod fixture;
mod kernel;
mod kernel_call;
mod kernel_cost;
mod lower;
mod metrics;
mod names;
mod npy;
pub mod object_file;
mod package;
mod place;
mod plan;
mod precision;
mod recipe;
mod reference;
mod run;
mod simulate;
mod stage;
mod time;
mod verify;
mod weights;

pub use context::{Context, Mismatch, Surroundings};
pub use device::device;
pub use fixture::{Fixture, fixture_inputs};
pub use kernel_call::{KernelCall, Scalars};
pub use kernel_cost::SimulatedCosts;
pub use names::full_key;
pub use npy::{Array, NpyError};
pub use recipe::RecipeFile;
pub use weights::Weights;

use ipub_engine::StageImpl;

/// The graph in the blob of `lower`.
pub fn decode_graph(bytes: &[u8]) -> Result<ipu_ir::graph::Graph, ipub_engine::StageFailure> {
    codec::unpack("graph", bytes)
}

/// All stages.
pub fn stages() -> Vec<Box<dyn StageImpl>> {
    vec![
        Box::new(fixture::STAGE),
        Box::new(kernel::STAGE),
        Box::new(lower::STAGE),
        Box::new(metrics::STAGE),
        Box::new(package::STAGE),
        Box::new(place::STAGE),
        Box::new(plan::STAGE),
        Box::new(reference::STAGE),
        Box::new(run::STAGE),
        Box::new(time::STAGE),
        Box::new(verify::STAGE),
        Box::new(weights::STAGE),
    ]
}
