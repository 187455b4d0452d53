//! Assembler, linker, supervisor code, package image.
