//! From a model specification to its graph, its weights and its inputs.
//!
//! Input: a specification in TOML; a batch size; a seed or the bytes of a checkpoint.
//! Output: a [`Graph`](ipu_ir::graph::Graph); parameter matrices; input tensors; a checkpoint.
//! Invariants: operation and value ids do not depend on the batch size; an element of a seeded
//! tensor depends only on the seed, the checkpoint name of the tensor and its index.
//! Not here: files (the caller holds the bytes and the writer), evaluation, precision of a device.

mod builder;
pub mod checkpoint;
pub mod export;
pub mod inputs;
mod layer;
pub mod lower;
pub mod spec;
pub mod stream;
pub mod weights;

pub use checkpoint::Checkpoint;
pub use export::{ExportError, export_safetensors};
pub use inputs::input_tensor;
pub use lower::lower;
pub use spec::{ModelSpec, SpecError};
pub use weights::{
    CheckpointTensor, SeededWeights, WeightError, WeightSource, check_weights, checkpoint_tensors,
    param_matrix,
};
