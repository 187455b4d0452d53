//! The number formats of the tile: F16, F143 and F152.
//!
//! F16 is IEEE binary16. F143 has exponent bias 8, maximum 240 and smallest step 2^-10; F152 has
//! bias 16 and maximum 57,344. Both 8-bit formats have one NaN, code 0x80, and neither infinity
//! nor negative zero. Encoding rounds to nearest even; a finite value beyond the maximum follows
//! [`Overflow`].
//!
//! Assumptions, since no public text fixes them: an F16 infinity that comes in exactly stays an
//! infinity; an infinity into an 8-bit format is treated as overflow; NaN becomes the canonical
//! NaN (0x7e00 in F16, 0x80 in the 8-bit formats).

use half::f16;
use std::sync::OnceLock;

/// What an encoder does with a finite value beyond the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Clamp to the largest finite value.
    Saturate,
    /// Give NaN, as with the NANOO control bit set.
    Nan,
}

/// Canonical F16 NaN.
pub const F16_NAN: u16 = 0x7e00;
/// Largest finite F16.
pub const F16_MAX: u16 = 0x7bff;
/// The only NaN of F143 and F152.
pub const F8_NAN: u8 = 0x80;

/// Widen F16, exactly.
pub fn f16_decode(code: u16) -> f32 {
    f16::from_bits(code).to_f32()
}

/// Round F32 to F16.
pub fn f16_encode(value: f32, overflow: Overflow) -> u16 {
    if value.is_nan() {
        return F16_NAN;
    }
    let code = f16::from_f32(value).to_bits();
    if code & 0x7fff == 0x7c00 && value.is_finite() {
        return match overflow {
            Overflow::Saturate => code & 0x8000 | F16_MAX,
            Overflow::Nan => F16_NAN,
        };
    }
    code
}

/// An 8-bit float format.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum F8 {
    /// Sign, five exponent bits, two mantissa bits; format bit 0.
    F152,
    /// Sign, four exponent bits, three mantissa bits; format bit 1.
    F143,
}

impl F8 {
    /// The format selected by a bit of `$FP_NFMT` or `$FP_INFMT`.
    pub fn from_format_bit(bit: bool) -> F8 {
        if bit { F8::F143 } else { F8::F152 }
    }

    pub const fn mantissa_bits(self) -> u32 {
        match self {
            F8::F143 => 3,
            F8::F152 => 2,
        }
    }

    pub const fn bias(self) -> i32 {
        match self {
            F8::F143 => 8,
            F8::F152 => 16,
        }
    }

    /// Largest finite value.
    pub const fn max(self) -> f32 {
        match self {
            F8::F143 => 240.0,
            F8::F152 => 57_344.0,
        }
    }

    /// Value of a code.
    pub fn decode(self, code: u8) -> f32 {
        self.table()[usize::from(code)]
    }

    /// Values of all codes.
    pub fn table(self) -> &'static [f32; 256] {
        static TABLES: OnceLock<[[f32; 256]; 2]> = OnceLock::new();
        let tables = TABLES.get_or_init(|| {
            let fill = |format: F8| std::array::from_fn(|code| format.decode_code(code as u8));
            [fill(F8::F152), fill(F8::F143)]
        });
        &tables[self as usize]
    }

    fn decode_code(self, code: u8) -> f32 {
        if code == F8_NAN {
            return f32::NAN;
        }
        let bits = self.mantissa_bits();
        let mantissa = i32::from(code) & ((1 << bits) - 1);
        let exponent = (i32::from(code) & 0x7f) >> bits;
        let (significand, power) = match exponent {
            0 => (mantissa, 1 - self.bias()),
            _ => (mantissa | 1 << bits, exponent - self.bias()),
        };
        let magnitude = significand as f32 * pow2(power - bits as i32) as f32;
        if code & 0x80 != 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// Round a value to a code. F64 holds every F16 and F32 times a tensor scale exactly.
    pub fn encode(self, value: f64, overflow: Overflow) -> u8 {
        if value.is_nan() {
            return F8_NAN;
        }
        let sign = if value < 0.0 { 0x80 } else { 0 };
        let magnitude = value.abs();
        let bits = self.mantissa_bits();
        let exponent = exponent_of(magnitude).max(1 - self.bias());
        let code = if magnitude.is_infinite() || exponent > 64 {
            u64::MAX
        } else {
            let steps = (magnitude / pow2(exponent - bits as i32)).round_ties_even() as u64;
            // A step count of 2^bits or more carries into the exponent field by addition.
            (((exponent + self.bias() - 1) as u64) << bits) + steps
        };
        let largest = self.max_code();
        match (code > u64::from(largest), overflow) {
            (false, _) if code == 0 => 0,
            (false, _) => sign | code as u8,
            (true, Overflow::Saturate) => sign | largest,
            (true, Overflow::Nan) => F8_NAN,
        }
    }

    /// Code of the largest finite value.
    pub const fn max_code(self) -> u8 {
        0x7f
    }
}

/// Two to a power within the range of normal F64 numbers.
pub fn pow2(power: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&power));
    f64::from_bits(((power + 1023) as u64) << 52)
}

/// Floor of the binary logarithm; a subnormal F64 counts as the smallest normal one.
fn exponent_of(magnitude: f64) -> i32 {
    ((magnitude.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes() {
        assert_eq!(F8::F143.decode(0x7f), 240.0);
        assert_eq!(F8::F152.decode(0x7f), 57_344.0);
        assert_eq!(F8::F143.decode(0x01), 2f32.powi(-10));
        assert_eq!(F8::F152.decode(0x01), 2f32.powi(-17));
        assert_eq!(F8::F143.decode(0x40), 1.0);
        assert_eq!(F8::F152.decode(0x40), 1.0);
        assert_eq!(F8::F143.decode(0xc0), -1.0);
        assert!(F8::F143.decode(0x80).is_nan());
    }

    #[test]
    fn every_code_encodes_to_itself() {
        for format in [F8::F143, F8::F152] {
            for code in 0..=255u8 {
                let value = f64::from(format.decode(code));
                for overflow in [Overflow::Saturate, Overflow::Nan] {
                    assert_eq!(format.encode(value, overflow), code, "{format:?} {code:#x}");
                }
            }
        }
    }

    #[test]
    fn neighbours_round_to_nearest_even() {
        for format in [F8::F143, F8::F152] {
            for code in 0..0x7fu8 {
                let (low, high) = (format.decode(code), format.decode(code + 1));
                let middle = f64::from(low).midpoint(f64::from(high));
                let even = code + (code & 1);
                let at = |value| format.encode(value, Overflow::Nan);
                assert_eq!(at(middle), even);
                assert_eq!(at(middle * (1.0 - 1e-12)), code);
                assert_eq!(at(middle * (1.0 + 1e-12)), code + 1);
                let mirrored = if even == 0 { 0 } else { even | 0x80 };
                assert_eq!(at(-middle), mirrored);
            }
        }
    }

    #[test]
    fn overflow_follows_the_mode() {
        let f143 = |value, overflow| F8::F143.encode(value, overflow);
        assert_eq!(f143(247.9, Overflow::Nan), 0x7f);
        assert_eq!(f143(248.0, Overflow::Nan), F8_NAN);
        assert_eq!(f143(248.0, Overflow::Saturate), 0x7f);
        assert_eq!(f143(-1e300, Overflow::Saturate), 0xff);
        assert_eq!(f143(f64::INFINITY, Overflow::Saturate), 0x7f);
        assert_eq!(f143(f64::NAN, Overflow::Saturate), F8_NAN);
        assert_eq!(f143(-0.0, Overflow::Saturate), 0);
        assert_eq!(f143(-1e-300, Overflow::Saturate), 0);
        assert_eq!(f16_encode(65_519.9, Overflow::Nan), F16_MAX);
        assert_eq!(f16_encode(65_520.0, Overflow::Nan), F16_NAN);
        assert_eq!(f16_encode(-65_520.0, Overflow::Saturate), 0xfbff);
        assert_eq!(f16_encode(f32::INFINITY, Overflow::Saturate), 0x7c00);
        assert_eq!(f16_encode(-f32::NAN, Overflow::Saturate), F16_NAN);
        assert_eq!(f16_encode(2f32.powi(-25), Overflow::Saturate), 0);
        assert_eq!(f16_encode(2f32.powi(-24), Overflow::Saturate), 1);
    }
}
