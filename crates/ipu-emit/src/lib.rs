//! Assembler, linker, supervisor code, package image.

pub mod asm;
pub mod host;
mod kernels;
pub mod link;
pub mod object;
pub mod program;
mod tile_code;
mod words;

pub use kernels::{SUPPORT_BASE, TABLES};
pub use program::{EmitError, emit};
