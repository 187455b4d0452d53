//! The `.ipuexe` format: what a device needs to run a model, and nothing about how it was made.

pub mod order;
pub mod types;

pub use order::{Dtype, Order};
pub use types::*;
