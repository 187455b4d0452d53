//! The independent checker of a package.
//!
//! Input: any package. Output: nothing, or the first fault in a fixed order.
//! Invariants: shares no code with placement or emission and has constants of its own; never
//! panics, whatever the indices; time n log n.
//! Not here: meaning of instructions, exchange rows and values.
//!
//! | what | where it may stand |
//! | --- | --- |
//! | kernels, tile program | boot element, or behind the tables element in region 0 |
//! | exchange rows | behind the tables element in region 0 |
//! | call frames | tables element, behind the runtime state |
//! | tensors | behind the runtime state, in no element that holds code or rows |
//!
//! Nothing overlaps but inputs with outputs, whose lives do not meet: an input is read before the
//! output is written, and is uploaded anew for each invocation. Parameters stay.

mod cover;
mod error;
mod host;
mod images;
mod memory;
mod tensors;

pub use error::{Axis, CheckError, Occupant};

use crate::types::Package;

/// First byte of tile memory.
const SRAM_BASE: u32 = 0x4c000;
/// End of the boot element, which holds the image's entry.
const BOOT_END: u32 = 0x50000;
/// End of the runtime state; frames and data may begin here.
const RUNTIME_END: u32 = 0x586e0;
/// End of the tables element; code and rows may begin here.
const TABLES_END: u32 = 0x5c000;
/// End of region 0, from which instructions are fetched.
const REGION0_END: u32 = 0x80000;
/// End of the memory that can be loaded.
const MEMORY_END: u32 = 0xe7bb0;
/// Bytes of an element of region 0.
const ELEMENT_BYTES: u32 = 0x4000;

/// Check everything that a package promises about itself.
pub fn check(package: &Package) -> Result<(), CheckError> {
    let tiles = package.tiles;
    if tiles == 0 || tiles > crate::limits::TILES_MAX {
        return Err(CheckError::TileCount { tiles });
    }
    images::check_segments(package)?;
    images::check_images(package)?;
    tensors::check_tensors(package)?;
    tensors::check_bindings(package)?;
    memory::check_memory(package)?;
    tensors::check_cover(package)?;
    host::check_host(package)
}
