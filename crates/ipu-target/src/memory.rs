//! The tile memory map, its elements and the classes of data it can hold.
//!
//! Input: byte addresses. Output: elements, regions and capacities.
//! Invariants: ranges are half open. Not here: who owns which bytes (placement decides).

use std::ops::Range;

/// First byte of tile memory (source: ISA memory map).
pub const SRAM_BASE: u32 = 0x4c000;
/// Boundary between region 0 (standard, executable) and region 1 (interleaved, never executable).
pub const REGION_BOUNDARY: u32 = 0x80000;
/// End of tile memory: 624 KiB after the base.
pub const SRAM_END: u32 = 0xe8000;
/// Bytes of tile memory.
pub const SRAM_BYTES: u32 = SRAM_END - SRAM_BASE;
/// End of what the boot loader can fill; the last 1,104 bytes are out of its reach (source: rows).
pub const LOADER_LIMIT: u32 = 0xe7bb0;
/// Where a tile image starts; its first word is reserved and holds a no-operation (source: rows).
pub const IMAGE_BASE: u32 = 0x4c010;
/// Entry of a tile image.
pub const IMAGE_ENTRY: u32 = 0x4c014;
/// Least payload of a tile image in bytes.
pub const IMAGE_BYTES_MIN: u32 = 0x4134;

/// Host aperture; standard transient data may live here between host phases (source: rows).
pub const APERTURE: Range<u32> = 0x50000..0x58000;
/// Bytes of the aperture that host packet headers can address.
pub const APERTURE_HOST_BYTES: u32 = 0x4000;
/// The two words of a transfer request are sent from here.
pub const HOST_REQUEST: u32 = 0x50000;
/// Packet headers of a target tile are sent from here.
pub const HOST_PACKETS: u32 = 0x50008;
/// Target of the zero-byte read that closes a download.
pub const HOST_CLOSING_READ: u32 = 0x50160;
/// Inputs land here before the supervisor copies them out.
pub const HOST_STAGING: u32 = 0x50180;

/// Runtime state: 224 bytes and six worker frames of 256 bytes.
pub const RUNTIME_STATE: Range<u32> = 0x58000..0x586e0;
/// Bytes of the runtime state.
pub const RUNTIME_STATE_BYTES: u32 = 1_760;
/// First byte for planned data.
pub const DATA_BASE: u32 = 0x586e0;
/// Bytes for planned data, support and exchange rows together.
pub const DATA_BYTES: u32 = LOADER_LIMIT - DATA_BASE;

/// Bytes of an element of region 0 (source: ISA).
pub const ELEMENT_BYTES: u32 = 0x4000;
/// Bytes of an interleaved pair of elements of region 1 (source: ISA).
pub const ELEMENT_PAIR_BYTES: u32 = 0x8000;
/// Elements of region 0 are numbered by absolute address, so region 1 starts at this number.
pub const REGION1_FIRST_ELEMENT: u32 = REGION_BOUNDARY / ELEMENT_BYTES;
/// One more than the greatest element number.
pub const ELEMENTS_END: u32 =
    REGION1_FIRST_ELEMENT + (SRAM_END - REGION_BOUNDARY) / ELEMENT_PAIR_BYTES;

/// Bytes that instruction fetch may read past the last instruction executed (source: rows).
pub const FETCH_LOOKAHEAD_BYTES: u32 = 64;

/// Bytes a supervisor or worker moves in one load of standard memory.
pub const STANDARD_LOAD_BYTES: u32 = 8;
/// Bytes one load of interleaved memory moves.
pub const INTERLEAVED_LOAD_BYTES: u32 = 16;

/// What memory a piece of data may live in.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum MemClass {
    /// Either region.
    Standard,
    /// Region 1 only: needed by 128-bit loads and by accesses that use both ports.
    Interleaved,
}

impl MemClass {
    /// The address ranges that data of this class may occupy, lowest first. A piece never crosses
    /// from one range to the next.
    pub fn regions(self) -> &'static [Range<u32>] {
        const BOTH: [Range<u32>; 2] = [SRAM_BASE..REGION_BOUNDARY, REGION_BOUNDARY..LOADER_LIMIT];
        match self {
            MemClass::Standard => &BOTH,
            MemClass::Interleaved => &BOTH[1..],
        }
    }

    /// Whether `bytes` bytes at `address` suit this class.
    pub fn admits(self, address: u32, bytes: u32) -> bool {
        let end = address.saturating_add(bytes);
        self.regions()
            .iter()
            .any(|r| r.start <= address && end <= r.end)
    }
}

/// The memory element of an address: one access an element a cycle. 16 KiB elements below the
/// region boundary, 32 KiB pairs above it; the numbers do not overlap.
pub fn element_of(address: u32) -> u32 {
    if address < REGION_BOUNDARY {
        address / ELEMENT_BYTES
    } else {
        REGION1_FIRST_ELEMENT + (address - REGION_BOUNDARY) / ELEMENT_PAIR_BYTES
    }
}

/// The elements that `bytes` bytes at `address` touch. Empty when `bytes` is 0.
pub fn elements_of(address: u32, bytes: u32) -> Range<u32> {
    if bytes == 0 {
        return 0..0;
    }
    element_of(address)..element_of(address + bytes - 1) + 1
}

/// The byte range of an element.
pub fn element_range(element: u32) -> Range<u32> {
    if element < REGION1_FIRST_ELEMENT {
        element * ELEMENT_BYTES..(element + 1) * ELEMENT_BYTES
    } else {
        let start = REGION_BOUNDARY + (element - REGION1_FIRST_ELEMENT) * ELEMENT_PAIR_BYTES;
        start..start + ELEMENT_PAIR_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities() {
        assert_eq!(SRAM_BYTES, 624 * 1024);
        assert_eq!(DATA_BYTES, 586_960);
        assert_eq!(RUNTIME_STATE.end - RUNTIME_STATE.start, RUNTIME_STATE_BYTES);
        assert_eq!(SRAM_END - LOADER_LIMIT, 1_104);
    }

    #[test]
    fn elements_partition_memory() {
        for element in element_of(SRAM_BASE)..ELEMENTS_END {
            let range = element_range(element);
            assert_eq!(element_of(range.start), element);
            assert_eq!(element_of(range.end - 1), element);
            assert_eq!(
                elements_of(range.start, range.end - range.start),
                element..element + 1
            );
        }
        assert_eq!(element_range(ELEMENTS_END - 1).end, SRAM_END);
        assert_eq!(elements_of(0x7fff8, 16), 31..33);
        assert_eq!(elements_of(0x60000, 0), 0..0);
    }

    #[test]
    fn classes() {
        assert!(MemClass::Standard.admits(0x60000, 64));
        assert!(!MemClass::Standard.admits(0x7fff0, 32));
        assert!(!MemClass::Interleaved.admits(0x7fff0, 16));
        assert!(MemClass::Interleaved.admits(0x80000, 416));
        assert!(!MemClass::Interleaved.admits(LOADER_LIMIT - 4, 8));
    }
}
