//! Scalar arithmetic of the tile: exact widening, one rounding, special functions.
//!
//! Invariants: results depend on the operands only; no transcendental comes from `std`. Special
//! functions of F16 are tables of all 65,536 results, each rounded once from F64.
//! Not here: which lanes an instruction works on.

use std::sync::OnceLock;

use ipu_isa::float::{F8, F8_NAN, F16_MAX, F16_NAN};

use crate::context::Context;
use crate::exec::Shared;
use crate::matrix::LANES;
use crate::product::{self, Plan};

/// What a conversion to F16 does with a finite value beyond the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NanOnOverflow(pub bool);

/// Widen F16, exactly. Free of branches, so that lanes become vector code.
#[inline(always)]
pub fn widen(code: u16) -> f32 {
    const SMALLEST_NORMAL: u32 = 113 << 23;
    let magnitude = u32::from(code & 0x7fff) << 13;
    let exponent = code & 0x7c00;
    let normal = magnitude + (112 << 23);
    let subnormal = f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL);
    let bits = if exponent == 0 {
        subnormal.to_bits()
    } else if exponent == 0x7c00 {
        normal + (112 << 23)
    } else {
        normal
    };
    f32::from_bits(bits | u32::from(code & 0x8000) << 16)
}

/// Round F32 to F16, nearest even. Free of branches, so that lanes become vector code.
#[inline(always)]
pub fn narrow(value: f32, overflow: NanOnOverflow) -> u16 {
    narrow_word(value, overflow) as u16
}

#[inline(always)]
fn narrow_word(value: f32, overflow: NanOnOverflow) -> u32 {
    const SUBNORMAL_MAGIC: u32 = 126 << 23;
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let shifted = f32::from_bits(magnitude) + f32::from_bits(SUBNORMAL_MAGIC);
    let subnormal = shifted.to_bits().wrapping_sub(SUBNORMAL_MAGIC);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let small = magnitude < 113 << 23;
    let code = if small { subnormal } else { normal };
    let (most, most_sign) = if overflow.0 {
        (u32::from(F16_NAN), 0)
    } else {
        (u32::from(F16_MAX), sign)
    };
    let finite = if code < 0x7c00 {
        code | sign
    } else {
        most | most_sign
    };
    let large = magnitude >= 143 << 23;
    let finite = if large { most | most_sign } else { finite };
    let infinite = if magnitude == 0x7f80_0000 {
        sign | 0x7c00
    } else {
        finite
    };
    if magnitude > 0x7f80_0000 {
        u32::from(F16_NAN)
    } else {
        infinite
    }
}

/// Round F32 to an 8-bit format, nearest even. Free of branches, so that lanes become vector code.
#[inline(always)]
pub fn narrow_byte(value: f32, format: F8, overflow: NanOnOverflow) -> u8 {
    let (bits, bias) = (format.mantissa_bits(), format.bias() as u32);
    let shift = 23 - bits;
    // A number whose last place is the smallest step of the format.
    let magic = (127 + 24 - bias - bits) << 23;
    let magnitude = value.to_bits() & 0x7fff_ffff;
    let shifted = f32::from_bits(magnitude) + f32::from_bits(magic);
    let subnormal = shifted.to_bits().wrapping_sub(magic);
    let half = (1 << (shift - 1)) - 1 + ((magnitude >> shift) & 1);
    let normal = magnitude
        .wrapping_sub((127 - bias) << 23)
        .wrapping_add(half)
        >> shift;
    let small = magnitude < (128 - bias) << 23;
    let code = if small { subnormal } else { normal };
    let sign = if code == 0 {
        0
    } else {
        (value.to_bits() >> 24) & 0x80
    };
    let most = u32::from(format.max_code());
    let large = if overflow.0 {
        u32::from(F8_NAN)
    } else {
        sign | most
    };
    let finite = if code > most { large } else { sign | code };
    if magnitude > 0x7f80_0000 {
        F8_NAN
    } else {
        finite as u8
    }
}

/// Four F16 lanes widened.
#[inline(always)]
pub fn widen4(bits: u64) -> [f32; 4] {
    let mut values = [0.0; 4];
    for (i, value) in values.iter_mut().enumerate() {
        *value = widen((bits >> (16 * i)) as u16);
    }
    values
}

/// Four lanes rounded to F16.
#[inline(always)]
pub fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64 {
    let mut codes = [0; 4];
    for (code, value) in codes.iter_mut().zip(values) {
        *code = narrow_word(value, overflow);
    }
    u64::from(codes[0] | codes[1] << 16) | u64::from(codes[2] | codes[3] << 16) << 32
}

/// Most rows of a product computed at once.
pub const TOGETHER_MAX: usize = 8;

/// Conversions of four lanes, in portable code or with instructions of the processor. All give the
/// same results, except for the bits of a NaN that stays F32.
pub trait Lanes {
    /// Whether each issue is told to a tracer; loops are then not fused.
    const TRACED: bool = false;
    /// Rows of a product computed at once, at most [`TOGETHER_MAX`]: as many sums as registers hold.
    const TOGETHER: usize = 6;
    fn widen4(bits: u64) -> [f32; 4];
    fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64;
    fn widen16(bits: [u64; 4]) -> [f32; LANES];
    fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4];
    /// Eight 8-bit codes.
    fn widen8(bits: u64, format: F8) -> [f32; 8];
    /// A row of 8-bit codes.
    #[inline(always)]
    fn widen32(bits: [u64; 4], format: F8) -> [f32; 32] {
        let parts = bits.map(|word| Self::widen8(word, format));
        std::array::from_fn(|i| parts[i / 8][i % 8])
    }
    /// A matrix product, compiled for the width.
    fn product(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64>;
    /// `acc[g] += sum over k of x[g][k] * rows[k]`, ascending k. Products are exact in F32: fused
    /// or not, the sums are the same.
    fn accumulate<const K: usize, const G: usize>(
        acc: &mut [[f32; LANES]; G],
        x: &[[f32; K]; G],
        rows: &[[f32; LANES]; K],
    );
}

/// Conversions without special instructions.
pub struct Portable;

impl Lanes for Portable {
    #[inline(always)]
    fn widen4(bits: u64) -> [f32; 4] {
        widen4(bits)
    }

    #[inline(always)]
    fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64 {
        narrow4(values, overflow)
    }

    #[inline(always)]
    fn widen16(bits: [u64; 4]) -> [f32; LANES] {
        std::array::from_fn(|i| widen((bits[i / 4] >> (16 * (i % 4))) as u16))
    }

    #[inline(always)]
    fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4] {
        let (quads, _) = values.as_chunks::<4>();
        std::array::from_fn(|i| narrow4(quads[i], overflow))
    }

    #[inline(always)]
    fn widen8(bits: u64, format: F8) -> [f32; 8] {
        let table = format.table();
        bits.to_le_bytes().map(|code| table[usize::from(code)])
    }

    fn product(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
        product::run::<Portable>(plan, w, shared)
    }

    #[inline(always)]
    fn accumulate<const K: usize, const G: usize>(
        acc: &mut [[f32; LANES]; G],
        x: &[[f32; K]; G],
        rows: &[[f32; LANES]; K],
    ) {
        for (acc, x) in acc.iter_mut().zip(x) {
            for (x, row) in x.iter().zip(rows) {
                for (acc, w) in acc.iter_mut().zip(row) {
                    *acc += x * w;
                }
            }
        }
    }
}

/// Unary special functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Exp,
    Exp2,
    Ln,
    Log2,
    Tanh,
    Sigm,
    Sqrt,
    /// One over the square root.
    Oorx,
    /// One over the value.
    Oox,
}

/// Special functions with F16 tables, in table order.
const TABLED: [Special; 6] = [
    Special::Exp,
    Special::Exp2,
    Special::Ln,
    Special::Log2,
    Special::Tanh,
    Special::Sigm,
];

impl Special {
    fn wide(self, x: f64) -> f64 {
        match self {
            Special::Exp => libm::exp(x),
            Special::Exp2 => libm::exp2(x),
            Special::Ln => libm::log(x),
            Special::Log2 => libm::log2(x),
            Special::Tanh => libm::tanh(x),
            Special::Sigm => 1.0 / (1.0 + libm::exp(-x)),
            Special::Sqrt => x.sqrt(),
            Special::Oorx => 1.0 / x.sqrt(),
            Special::Oox => 1.0 / x,
        }
    }

    /// F32 in, F32 out, rounded from F64.
    pub fn single(self, x: f32) -> f32 {
        self.wide(f64::from(x)) as f32
    }

    /// All results in F16; overflow is an infinity here.
    pub fn half_table(self) -> &'static [u16] {
        static TABLES: [OnceLock<Vec<u16>>; TABLED.len()] =
            [const { OnceLock::new() }; TABLED.len()];
        let slot = TABLED.iter().position(|&f| f == self).expect("tabled");
        TABLES[slot].get_or_init(|| {
            (0..=u16::MAX)
                .map(|code| {
                    let exact = self.wide(f64::from(widen(code)));
                    if exact.is_nan() {
                        F16_NAN
                    } else {
                        half::f16::from_f64(exact).to_bits()
                    }
                })
                .collect()
        })
    }

    /// F16 in, F16 out.
    #[inline(always)]
    pub fn half(self, code: u16, overflow: NanOnOverflow) -> u16 {
        let result = self.half_table()[usize::from(code)];
        // An infinity that no infinite or zero operand explains is an overflow.
        if result & 0x7fff == 0x7c00 && code & 0x7c00 != 0x7c00 && code & 0x7fff != 0 {
            return if overflow.0 {
                F16_NAN
            } else {
                result & 0x8000 | F16_MAX
            };
        }
        result
    }
}

/// The larger operand; a NaN loses against a number.
#[inline(always)]
pub fn max(x: f32, y: f32) -> f32 {
    if x.is_nan() || y > x { y } else { x }
}

/// The smaller operand; a NaN loses against a number.
#[inline(always)]
pub fn min(x: f32, y: f32) -> f32 {
    if x.is_nan() || y < x { y } else { x }
}

/// Round to an integer value: 0 nearest even, 1 up, 2 down, 3 towards zero.
pub fn round_to_integer(x: f32, mode: i32) -> f32 {
    match mode & 3 {
        0 => x.round_ties_even(),
        1 => x.ceil(),
        2 => x.floor(),
        _ => x.trunc(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_conversions_agree_with_the_half_crate() {
        for code in 0..=u16::MAX {
            let expected = half::f16::from_bits(code).to_f32();
            let value = widen(code);
            assert!(value == expected || value.is_nan() && expected.is_nan());
            assert_eq!(value.is_sign_negative(), code & 0x8000 != 0);
            if !value.is_nan() {
                assert_eq!(narrow(value, NanOnOverflow(false)), code);
            }
        }
    }

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        let mut state = 1u32;
        for _ in 0..2_000_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let exponent = 0x60 + (state >> 25) % 0x38;
            let value = f32::from_bits(state & 0x807f_ffff | exponent << 23);
            let expected = half::f16::from_f32(value).to_bits();
            let found = narrow(value, NanOnOverflow(false));
            if expected & 0x7fff == 0x7c00 {
                assert_eq!(found, expected & 0x8000 | F16_MAX);
                assert_eq!(narrow(value, NanOnOverflow(true)), F16_NAN);
            } else {
                assert_eq!(found, expected, "{value:e}");
            }
        }
    }

    #[test]
    fn bytes_are_rounded_as_the_formats_say() {
        use ipu_isa::float::{Overflow, pow2};
        for code in 0..=u16::MAX {
            for scale in [-32, -9, -4, -1, 0, 1, 5, 31] {
                let value = widen(code) * pow2(scale) as f32;
                for format in [F8::F143, F8::F152] {
                    for (keep, overflow) in [(false, Overflow::Saturate), (true, Overflow::Nan)] {
                        let expected = format.encode(f64::from(value), overflow);
                        let found = narrow_byte(value, format, NanOnOverflow(keep));
                        assert_eq!(found, expected, "{value:e} {format:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn special_functions() {
        let one = 0x3c00;
        let keep = NanOnOverflow(false);
        assert_eq!(Special::Exp.half(0, keep), one);
        assert_eq!(Special::Tanh.half(0x7c00, keep), one);
        assert_eq!(Special::Ln.half(0, keep), 0xfc00);
        assert_eq!(Special::Exp.half(0x4c00, keep), F16_MAX);
        assert_eq!(Special::Exp.half(0x7c00, keep), 0x7c00);
        assert_eq!(Special::Oorx.single(4.0), 0.5);
        assert_eq!(Special::Sigm.single(0.0), 0.5);
        assert_eq!(max(f32::NAN, 1.0), 1.0);
        assert_eq!(max(1.0, f32::NAN), 1.0);
        assert_eq!(min(-1.0, 2.0), -1.0);
    }
}
