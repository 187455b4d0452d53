//! Assembler, linker, supervisor code, package image.

pub mod asm;
pub mod link;
pub mod object;
