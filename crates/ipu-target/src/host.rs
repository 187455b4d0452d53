//! Host pages, packet headers and limits of the host exchange.
//!
//! Invariants: a host offset counts bytes over the attached pages in order: the command page,
//! then one page of data for each participating tile (its slot). Source: rows, except as noted.
//! Not here: programs and packets of a tile (`ipu-emit`), addresses on the tile (`memory`).

/// Bytes of the command page, of a slot, and most bytes of one transfer of a tile.
pub const PAGE_BYTES: u32 = 4_096;
/// Host offset of the first slot: behind the command page.
pub const SLOTS_OFFSET: u32 = PAGE_BYTES;

/// Header of a read from the host, short form.
pub const READ_SHORT: u32 = 0xcc00_0200;
/// Header of a read from the host, long form.
pub const READ_LONG: u32 = 0xec00_0200;
/// Header of a write to the host, short form.
pub const WRITE_SHORT: u32 = 0x8000_0000;
/// Header of a write to the host, long form.
pub const WRITE_LONG: u32 = 0xa000_0000;
/// Bits that all read headers of a stream but the last clear.
pub const LAST_OF_STREAM: u32 = 0x0c00_0000;
/// Set in every header, never in a request word.
pub const HEADER_BIT: u32 = 1 << 31;
/// Bits of the tile address in a read header, in units of [`WINDOW_UNIT_BYTES`].
pub const WINDOW_FIELD: u32 = 0x1ff;
/// A read lands at a multiple of this many bytes from the aperture's start.
pub const WINDOW_UNIT_BYTES: u32 = 32;

/// Most bytes of a short packet.
pub const SHORT_BYTES_MAX: u32 = 60;
/// A long packet is a multiple of this many bytes, at such a multiple of host offset.
pub const LONG_UNIT_BYTES: u32 = 64;
/// Most bytes of a long read.
pub const READ_BYTES_MAX: u32 = 1_024;
/// Most bytes of a long write.
pub const WRITE_BYTES_MAX: u32 = 256;
/// Bytes of a packet where neither the long form nor the rest fits.
pub const PARTIAL_BYTES: u32 = 32;
/// Events from the first payload word of a write to the next header, at least.
pub const WRITE_EVENTS_MIN: u32 = 18;
/// Bits of the first word of a request; the others stand in the second.
pub const REQUEST_WORD_BITS: u32 = 24;

/// Cycles from a tile's wait for host words to the first of them. Assumed: not published; no
/// reported figure includes it.
pub const READ_LATENCY: u64 = 1_000;
/// Cycles of each word that a tile reads from the host. Assumed, as above.
pub const READ_WORD: u64 = 1;

/// The bit that asks for the packets of a physical tile, in the request of its serving tile.
pub fn request_bit(physical: u32) -> u32 {
    2 * (physical >> 6) + ((physical >> 1) & 1)
}

/// The physical tile that a bit of a request of a serving tile asks for.
pub fn requested_tile(serving: u32, bit: u32) -> u32 {
    serving + 64 * (bit / 2) + 2 * (bit % 2)
}

/// Host offset of a slot.
pub const fn slot_offset(slot: u32) -> u32 {
    SLOTS_OFFSET + PAGE_BYTES * slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{TILES, serving_tile};

    #[test]
    fn each_serving_tile_has_46_targets() {
        let mut bits = vec![0u64; 64];
        for physical in 0..TILES {
            let (serving, bit) = (serving_tile(physical), request_bit(physical));
            assert_eq!(requested_tile(serving, bit), physical);
            bits[serving as usize] |= 1 << bit;
        }
        let full = (1 << 46) - 1;
        assert_eq!(bits.iter().filter(|bits| **bits == full).count(), 32);
        assert_eq!(bits.iter().filter(|bits| **bits == 0).count(), 32);
    }
}
