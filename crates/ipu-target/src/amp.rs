//! Operand flags of the matrix instructions and the packed address pair.
//!
//! Assumptions: the vendor's numbers for these flags and its layout of the packed addresses are
//! not public. Programs assembled here use the names only, and the simulator reads the same
//! definitions, so any consistent numbering gives the same results. A program of real vendor
//! words that carries such a flag would be misread.
//!
//! Flag layout (six bits): bits 2:0 the phase, bits 4:3 the engine mode (0 = four engines per
//! unit, `E4`; 1 = two, `E2`; 2 = one, `E1`), bit 5 zero.
//!
//! Packed addresses: three byte addresses of 21 bits in an M register pair. The low word holds
//! address 0 in bits 20:0 and the low 11 bits of address 2 above it; the high word holds
//! address 1 in bits 20:0 and the high 10 bits of address 2 in bits 30:21. Bit 31 is zero. That
//! address 2 is split over both words is public; the exact split is the assumption.

/// Bits of a byte address.
pub const ADDRESS_BITS: u32 = 21;
const ADDRESS_MASK: u32 = (1 << ADDRESS_BITS) - 1;
const SPLIT_BITS: u32 = 32 - ADDRESS_BITS;
const SPLIT_MASK: u32 = (1 << SPLIT_BITS) - 1;

/// Mask of the phase within the flags.
pub const TAMP_PHASE_MASK: u8 = 0x7;
/// Engine mode field: four, two or one engine of a unit.
pub const TAMP_E4: u8 = 0 << 3;
pub const TAMP_E2: u8 = 1 << 3;
pub const TAMP_E1: u8 = 2 << 3;

/// The phase that the flags of a matrix instruction select.
pub const fn tamp_phase(flags: u8) -> u8 {
    flags & TAMP_PHASE_MASK
}

/// Names of the flag constants as kernels write them, with their values, in name order.
pub static TAMP_NAMES: &[(&str, u8)] = &[
    ("TAMP_F16V4_E1_P0", TAMP_E1),
    ("TAMP_F16V4_E2_P0", TAMP_E2),
    ("TAMP_F16V4_E2_P1", TAMP_E2 | 1),
    ("TAMP_F16V4_E4_P0", TAMP_E4),
    ("TAMP_F16V4_E4_P1", TAMP_E4 | 1),
    ("TAMP_F16V4_E4_P2", TAMP_E4 | 2),
    ("TAMP_F16V4_E4_P3", TAMP_E4 | 3),
    ("TAMP_F32_E1_P0", TAMP_E1),
    ("TAMP_F32_E1_P1", TAMP_E1 | 1),
    ("TAMP_F32_E2_P0", TAMP_E2),
    ("TAMP_F32_E2_P1", TAMP_E2 | 1),
    ("TAMP_F32_E2_P2", TAMP_E2 | 2),
    ("TAMP_F32_E2_P3", TAMP_E2 | 3),
    ("TAMP_F32_E4_P0", TAMP_E4),
    ("TAMP_F32_E4_P1", TAMP_E4 | 1),
    ("TAMP_F32_E4_P2", TAMP_E4 | 2),
    ("TAMP_F32_E4_P3", TAMP_E4 | 3),
    ("TAMP_F32_E4_P4", TAMP_E4 | 4),
    ("TAMP_F32_E4_P5", TAMP_E4 | 5),
    ("TAMP_F32_E4_P6", TAMP_E4 | 6),
    ("TAMP_F32_E4_P7", TAMP_E4 | 7),
    ("TAMP_F8V8_E4_P0", TAMP_E4),
    ("TAMP_F8V8_E4_P1", TAMP_E4 | 1),
    ("TAMP_F8V8_E4_P2", TAMP_E4 | 2),
    ("TAMP_F8V8_E4_P3", TAMP_E4 | 3),
];

/// The pair of words (low register, high register) that `tapack` makes of three addresses.
pub const fn tapack(addresses: [u32; 3]) -> [u32; 2] {
    let [a0, a1, a2] = addresses;
    let a2 = a2 & ADDRESS_MASK;
    [
        (a0 & ADDRESS_MASK) | (a2 & SPLIT_MASK) << ADDRESS_BITS,
        (a1 & ADDRESS_MASK) | (a2 >> SPLIT_BITS) << ADDRESS_BITS,
    ]
}

/// The three addresses of a packed pair.
pub const fn untapack(pair: [u32; 2]) -> [u32; 3] {
    let [low, high] = pair;
    let a2 = (low >> ADDRESS_BITS) | ((high >> ADDRESS_BITS) << SPLIT_BITS);
    [low & ADDRESS_MASK, high & ADDRESS_MASK, a2 & ADDRESS_MASK]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_addresses_come_back() {
        for shift in 0..ADDRESS_BITS {
            for place in 0..3 {
                let mut addresses = [0x12_3456, 0x1f_ffff, 0x0a_5a5a];
                addresses[place] ^= 1 << shift;
                let pair = tapack(addresses);
                assert_eq!(pair[1] >> 31, 0);
                assert_eq!(untapack(pair), addresses);
            }
        }
    }

    #[test]
    fn names_are_sorted_and_fit_six_bits() {
        assert!(TAMP_NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(TAMP_NAMES.iter().all(|&(_, value)| value < 64));
    }
}
