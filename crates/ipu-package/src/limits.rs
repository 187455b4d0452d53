//! Bounds of a package, checked before anything is allocated.
//!
//! Invariants: every full-chip package fits; a reader that keeps to them needs at most about
//! 1.5 GiB, whatever the bytes it is given.
//! Not here: admission limits of a target (the package stage compares those).

use crate::error::SectionId;

/// Tiles of the chip.
pub const TILES_MAX: u32 = 1_472;
/// Bytes of region 0, where all code, rows and frames stand.
pub const IMAGE_BYTES_MAX: u32 = 0x80000 - 0x4c000;
/// Words of one segment.
pub const SEGMENT_WORDS_MAX: u32 = IMAGE_BYTES_MAX / 4;
/// Bytes of all segments: every tile's region 0 filled with words of its own.
pub const SEGMENT_BYTES_MAX: u64 = TILES_MAX as u64 * IMAGE_BYTES_MAX as u64;
/// Uncompressed bytes of one group of segments.
pub const GROUP_BYTES_MAX: u32 = 4 << 20;
/// Entries of the section table: neighbouring groups together exceed one group's bytes.
pub const SECTIONS_MAX: u32 = 9 + 2 * (SEGMENT_BYTES_MAX / GROUP_BYTES_MAX as u64) as u32;

pub const SEGMENTS_MAX: u32 = 1 << 22;
pub const PIECES_MAX: u32 = 1 << 22;
pub const MARKS_MAX: u32 = 1 << 24;
pub const TENSORS_MAX: u32 = 1 << 16;
pub const SPANS_MAX: u32 = 1 << 22;
pub const BINDINGS_MAX: u32 = 1 << 22;
/// Runs of bytes that the host moves, all calls together.
pub const RUNS_MAX: u32 = 1 << 22;
pub const STEPS_MAX: u32 = 1 << 20;
/// Bytes of one name.
pub const NAME_BYTES_MAX: u32 = 1 << 12;

/// Uncompressed bytes of a section.
pub const fn section_bytes_max(section: SectionId) -> u64 {
    match section {
        SectionId::Header => 46 + 56 * SECTIONS_MAX as u64,
        SectionId::Program => 8 << 10,
        SectionId::Segments => 32 << 20,
        SectionId::Images => 160 << 20,
        SectionId::Tensors => 64 << 20,
        SectionId::Bindings => 256 << 20,
        SectionId::Host => 96 << 20,
        SectionId::Steps => 64 << 20,
        SectionId::Words(_) => GROUP_BYTES_MAX as u64,
    }
}
