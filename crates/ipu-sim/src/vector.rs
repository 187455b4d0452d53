//! The interpreter compiled for wide vectors, where the processor has them.
//!
//! The code is the same as the portable one: no sum is reordered and no product is fused that is
//! not written as fused, so results are equal bit for bit. Not here: any semantics.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::sync::OnceLock;

use crate::context::Context;
use crate::exec::Shared;
use crate::matrix::LANES;
use crate::numeric::{Lanes, NanOnOverflow};
use crate::worker::{Launch, Launched, WorkerFault};

/// Whether the processor has AVX2, FMA and F16C.
pub fn has_wide_vectors() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    })
}

/// Run a launch with wide vectors. Call only where [`has_wide_vectors`] holds.
pub fn run_wide(
    launch: &Launch,
    w: &mut Context,
    shared: &mut Shared,
) -> Result<Launched, WorkerFault> {
    assert!(has_wide_vectors());
    // SAFETY: the processor has the features that the function is compiled for.
    unsafe { interpret_wide(launch, w, shared) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn interpret_wide(
    launch: &Launch,
    w: &mut Context,
    shared: &mut Shared,
) -> Result<Launched, WorkerFault> {
    launch.interpret::<true, Wide>(w, shared)
}

/// Conversions by F16C. Used only in code that [`run_wide`] has checked the processor for.
pub(crate) struct Wide;

impl Lanes for Wide {
    #[inline(always)]
    fn widen4(bits: u64) -> [f32; 4] {
        // SAFETY: reached from `interpret_wide` only, so the processor has F16C.
        unsafe { widen4(bits) }
    }

    #[inline(always)]
    fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64 {
        // SAFETY: reached from `interpret_wide` only, so the processor has F16C.
        unsafe { narrow4(values, overflow) }
    }

    #[inline(always)]
    fn accumulate<const K: usize, const G: usize>(
        acc: &mut [[f32; LANES]; G],
        x: &[[f32; K]; G],
        rows: &[[f32; LANES]; K],
    ) {
        // SAFETY: reached from `interpret_wide` only, so the processor has AVX2 and FMA.
        unsafe { accumulate(acc, x, rows) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen4(bits: u64) -> [f32; 4] {
    let wide = _mm_cvtph_ps(_mm_cvtsi64_si128(bits as i64));
    let mut values = [0.0; 4];
    // SAFETY: the array has room for four lanes.
    unsafe { _mm_storeu_ps(values.as_mut_ptr(), wide) };
    values
}

/// The instruction rounds an overflow to an infinity; operands are changed before it so that
/// overflow and NaN come out as the tile has them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64 {
    // SAFETY: the array holds four lanes.
    let v = unsafe { _mm_loadu_ps(values.as_ptr()) };
    let sign = _mm_set1_ps(-0.0);
    let magnitude = _mm_andnot_ps(sign, v);
    let infinite = _mm_cmpge_ps(magnitude, _mm_set1_ps(f32::INFINITY));
    let nan = _mm_cmpunord_ps(v, v);
    let finite = if overflow.0 {
        // Halfway between the maximum and the next power of two, and above.
        let large = _mm_cmpge_ps(magnitude, _mm_set1_ps(65_520.0));
        _mm_blendv_ps(v, _mm_set1_ps(f32::NAN), large)
    } else {
        let least = _mm_min_ps(magnitude, _mm_set1_ps(65_504.0));
        _mm_or_ps(least, _mm_and_ps(sign, v))
    };
    let kept = _mm_blendv_ps(finite, v, infinite);
    let canonical = _mm_blendv_ps(kept, _mm_set1_ps(f32::NAN), nan);
    let codes = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(canonical);
    _mm_cvtsi128_si64(codes) as u64
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load16(values: &[f32; LANES]) -> [__m256; 2] {
    let at = values.as_ptr();
    // SAFETY: the array holds sixteen lanes, eight from each of the two places.
    unsafe { [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))] }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn accumulate<const K: usize, const G: usize>(
    acc: &mut [[f32; LANES]; G],
    x: &[[f32; K]; G],
    rows: &[[f32; LANES]; K],
) {
    let mut sums: [[__m256; 2]; G] = [[_mm256_setzero_ps(); 2]; G];
    for g in 0..G {
        sums[g] = load16(&acc[g]);
    }
    for k in 0..K {
        let [low, high] = load16(&rows[k]);
        for g in 0..G {
            let x = _mm256_set1_ps(x[g][k]);
            sums[g][0] = _mm256_fmadd_ps(x, low, sums[g][0]);
            sums[g][1] = _mm256_fmadd_ps(x, high, sums[g][1]);
        }
    }
    for (acc, [low, high]) in acc.iter_mut().zip(sums) {
        let at = acc.as_mut_ptr();
        // SAFETY: the array has room for sixteen lanes, eight at each of the two places.
        unsafe {
            _mm256_storeu_ps(at, low);
            _mm256_storeu_ps(at.add(8), high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::Portable;

    #[test]
    fn conversions_equal_the_portable_ones() {
        if !has_wide_vectors() {
            return;
        }
        for code in 0..=u16::MAX {
            let bits = u64::from(code) * 0x0001_0001_0001_0001;
            let (wide, portable) = (Wide::widen4(bits), Portable::widen4(bits));
            for (x, y) in wide.into_iter().zip(portable) {
                assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
            }
        }
        let mut state = 1u32;
        for i in 0..1_000_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let near = 0x4700_0000 | state >> 8 & 0xff_ffff;
            let small = 0x3300_0000 + (state >> 6 & 0x7ff_ffff);
            let values = [state ^ i, near, small | 1 << 31, state.rotate_left(16)];
            let values = values.map(f32::from_bits);
            for overflow in [NanOnOverflow(false), NanOnOverflow(true)] {
                let wide = Wide::narrow4(values, overflow);
                assert_eq!(wide, Portable::narrow4(values, overflow), "{values:?}");
            }
        }
        let special = [f32::INFINITY, f32::NEG_INFINITY, -f32::NAN, 65_520.0];
        for overflow in [NanOnOverflow(false), NanOnOverflow(true)] {
            let wide = Wide::narrow4(special, overflow);
            assert_eq!(wide, Portable::narrow4(special, overflow));
        }
    }
}
