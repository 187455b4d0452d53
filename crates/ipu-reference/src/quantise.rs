//! Rounding to the number formats of the device.
//!
//! Input: F32 numbers. Output: F32 numbers that the format holds exactly.
//! Invariants: nearest, ties to even; F143 saturates at 240 times its scale and has no negative
//! zero.
//! Not here: encodings: this shares no code with the codec that it checks.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// A format with its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantise {
    F16,
    /// FP8 with exponent 4, mantissa 3, bias 8; numbers are multiplied by `2^scale_exp`.
    F143 {
        scale_exp: i32,
    },
}

/// The part that a number plays in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operand {
    Activation,
    Weight,
    Query,
    Key,
    Value,
    /// Unnormalised exponentials of attention, at most one.
    Probabilities,
}

/// The format of an operand of the operation with a name; `None` is F16.
pub type Policy<'a> = dyn Fn(&str, Operand) -> Option<Quantise> + 'a;

/// Numbers rounded by one task.
const CHUNK: usize = 1 << 14;

impl Quantise {
    /// Round in place.
    pub fn apply(self, numbers: &mut [f32]) {
        numbers
            .par_chunks_mut(CHUNK)
            .for_each(|chunk| self.apply_here(chunk));
    }

    /// Round in place on the calling thread.
    pub(crate) fn apply_here(self, numbers: &mut [f32]) {
        match self {
            Quantise::F16 => {
                let mut halves = [f16::ZERO; 256];
                for piece in numbers.chunks_mut(halves.len()) {
                    let halves = &mut halves[..piece.len()];
                    halves.convert_from_f32_slice(piece);
                    halves.convert_to_f32_slice(piece);
                }
            }
            Quantise::F143 { scale_exp } => numbers
                .iter_mut()
                .for_each(|number| *number = round_f143(*number, scale_exp)),
        }
    }
}

/// The nearest F143 number times `2^scale_exp`; NaN stays NaN.
pub fn round_f143(number: f32, scale_exp: i32) -> f32 {
    const MAX: f64 = 240.0;
    const EXPONENT_MIN: i32 = -7;
    const MANTISSA_BITS: i32 = 3;
    let scaled = f64::from(number) * power_of_two(-scale_exp);
    if scaled.is_nan() {
        return f32::NAN;
    }
    let clamped = scaled.clamp(-MAX, MAX);
    let exponent = ((clamped.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let step = power_of_two(exponent.max(EXPONENT_MIN) - MANTISSA_BITS);
    // Adding a number whose last bit is worth one step rounds to a multiple of it.
    let anchor = step * 6_755_399_441_055_744.0;
    let rounded = (clamped + anchor) - anchor;
    if rounded == 0.0 {
        return 0.0;
    }
    (rounded * power_of_two(scale_exp)) as f32
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every finite F143 number, ascending, from the definition of the format.
    fn all_f143() -> Vec<f64> {
        let mut numbers: Vec<f64> = (0u32..256)
            .filter(|code| *code != 0x80)
            .map(|code| {
                let (exponent, mantissa) = ((code >> 3 & 15) as i32, f64::from(code & 7));
                let magnitude = if exponent == 0 {
                    mantissa * 2f64.powi(-10)
                } else {
                    (8.0 + mantissa) * 2f64.powi(exponent - 11)
                };
                if code >= 128 { -magnitude } else { magnitude }
            })
            .collect();
        numbers.sort_by(f64::total_cmp);
        numbers
    }

    #[test]
    fn every_code_is_a_fixed_point() {
        let numbers = all_f143();
        assert_eq!(
            (numbers.len(), numbers[0], numbers[254]),
            (255, -240.0, 240.0)
        );
        for scale in [-4, 0, 3] {
            for number in &numbers {
                let scaled = (number * 2f64.powi(scale)) as f32;
                assert_eq!(round_f143(scaled, scale), scaled);
            }
        }
    }

    #[test]
    fn between_two_codes_the_nearer_wins_and_ties_are_even() {
        let numbers = all_f143();
        for (index, pair) in numbers.windows(2).enumerate() {
            let middle = (pair[0] + pair[1]) / 2.0;
            let gap = pair[1] - pair[0];
            assert_eq!(round_f143((middle - gap / 8.0) as f32, 0), pair[0] as f32);
            assert_eq!(round_f143((middle + gap / 8.0) as f32, 0), pair[1] as f32);
            // Zero is in the middle of the list; codes count from there.
            let even = if (index as i32 - 127) % 2 == 0 { 0 } else { 1 };
            assert_eq!(round_f143(middle as f32, 0), pair[even] as f32);
        }
    }

    #[test]
    fn large_numbers_saturate_and_zero_is_positive() {
        assert_eq!(round_f143(16.0, -4), 15.0);
        assert_eq!(round_f143(f32::NEG_INFINITY, -4), -15.0);
        assert_eq!(round_f143(-1e-9, -4).to_bits(), 0);
        assert_eq!(round_f143(-0.0, 0).to_bits(), 0);
        assert!(round_f143(f32::NAN, 0).is_nan());
        assert_eq!(round_f143(f32::from_bits(1), 0), 0.0);
    }

    #[test]
    fn slices_are_rounded_element_by_element() {
        let numbers: Vec<f32> = (0..40_000).map(|i| (i as f32 - 2e4) / 999.0).collect();
        let mut halves = numbers.clone();
        Quantise::F16.apply(&mut halves);
        let mut eights = numbers.clone();
        Quantise::F143 { scale_exp: -4 }.apply(&mut eights);
        for (index, number) in numbers.iter().enumerate() {
            assert_eq!(halves[index], f16::from_f32(*number).to_f32());
            assert_eq!(eights[index], round_f143(*number, -4));
        }
    }
}
