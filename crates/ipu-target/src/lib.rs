//! C600 and IPU21 as constants with their source: memory, topology, timing, marked assumptions.
//!
//! Input: nothing; every item is a constant or a pure function of tile numbers and addresses.
//! Output: the facts of one C600 (one IPU21 chip) that more than one pass needs.
//! Invariants: logical tile numbers are `0..TILES`; addresses are byte addresses on a tile.
//! Not here: control register numbers and instruction words (`ipu-isa`), costs of kernels.
//!
//! Sources are named in doc comments by these short forms: *ISA* is the published tile vertex
//! instruction set manual; *rows* is the published behaviour of exchange rows and host packets
//! observed on C600 hardware; *timing* is the set of published C600 cycle counts with the issue
//! model fitted to them; *assumed* marks what the public record does not fix (see
//! [`assumptions`]).

pub mod amp;
pub mod assumptions;
pub mod exchange;
pub mod host;
pub mod issue;
pub mod memory;
pub mod topology;

pub use assumptions::{Assumption, assumptions};
pub use memory::{MemClass, element_of};
pub use topology::TILES;

/// Clock of the C600 in hertz, used to turn simulated cycles into seconds (source: timing).
pub const CLOCK_HZ: u64 = 1_500_000_000;

/// Worker contexts of a tile beside its supervisor (source: ISA).
pub const WORKERS: u32 = 6;
