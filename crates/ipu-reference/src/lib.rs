//! What a graph computes, in FP32 and in the planned precision, and how far outputs are from it.
//!
//! Input: a graph, its parameters one at a time, input tensors. Output: output tensors; metrics.
//! Invariants: the same bytes for any number of threads; the order of each sum is fixed by
//! [`kernel_identity`], which belongs in the key of everything made here.
//! Not here: the number formats of `ipu-isa` and the kernels: this is a checker of both.

mod evaluate;
pub mod metrics;
mod operations;
mod product;
mod quantise;

pub use evaluate::{EvaluateError, Params, evaluate, evaluate_quantised};
pub use metrics::{Metrics, compare};
pub use product::kernel_identity;
pub use quantise::{Operand, Policy, Quantise, round_f143};
