//! The interpreter compiled for wide vectors, where the processor has them.
//!
//! The code is the same as the portable one: no sum is reordered and no product is fused that is
//! not written as fused, so results are equal bit for bit. Not here: any semantics.
#![allow(unsafe_code)]

mod widest;

use std::arch::x86_64::*;
use std::sync::OnceLock;

use ipu_isa::float::F8;

use crate::context::Context;
use crate::exec::Shared;
use crate::matrix::LANES;
use crate::numeric::{Lanes, NanOnOverflow, Portable};
use crate::product::{self, Plan};
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

/// Whether the processor has AVX-512 as well, as far as [`widest`] uses it.
fn has_widest_vectors() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        has_wide_vectors()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
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

#[target_feature(enable = "avx2,fma,f16c")]
fn product_wide(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
    product::run::<Wide>(plan, w, shared)
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
    fn widen16(bits: [u64; 4]) -> [f32; LANES] {
        // SAFETY: reached from `interpret_wide` only, so the processor has F16C.
        unsafe { widen16(bits) }
    }

    #[inline(always)]
    fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4] {
        // SAFETY: reached from `interpret_wide` only, so the processor has F16C.
        unsafe { narrow16(values, overflow) }
    }

    #[inline(always)]
    fn widen8(bits: u64, format: F8) -> [f32; 8] {
        match format {
            // SAFETY: reached from `interpret_wide` only, so the processor has AVX2 and F16C.
            F8::F143 => unsafe { widen_f143(bits) },
            F8::F152 => Portable::widen8(bits, format),
        }
    }

    fn product(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
        if has_widest_vectors() {
            return widest::product(plan, w, shared);
        }
        // SAFETY: reached from `interpret_wide` only, so the processor has what the function is
        // compiled for.
        unsafe { product_wide(plan, w, shared) }
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
fn widen16(bits: [u64; 4]) -> [f32; LANES] {
    let mut values = [0.0; LANES];
    let half = |low: u64, high: u64| _mm256_cvtph_ps(_mm_set_epi64x(high as i64, low as i64));
    let at = values.as_mut_ptr();
    // SAFETY: the array has room for sixteen lanes, eight at each of the two places.
    unsafe {
        _mm256_storeu_ps(at, half(bits[0], bits[1]));
        _mm256_storeu_ps(at.add(8), half(bits[2], bits[3]));
    }
    values
}

/// Lanes that are all below the maximum of F16 need no more than the instruction.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4] {
    let all = load16(values);
    let sign = _mm256_set1_ps(-0.0);
    let most = _mm256_set1_ps(65_504.0);
    let below = all.map(|v| _mm256_cmp_ps::<_CMP_LE_OQ>(_mm256_andnot_ps(sign, v), most));
    if _mm256_movemask_ps(_mm256_and_ps(below[0], below[1])) != 0xff {
        let (quads, _) = values.as_chunks::<4>();
        return [quads[0], quads[1], quads[2], quads[3]].map(|quad| narrow4(quad, overflow));
    }
    let codes = all.map(|v| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
    let word = |half: __m128i| [_mm_cvtsi128_si64(half), _mm_extract_epi64::<1>(half)];
    let ([a, b], [c, d]) = (word(codes[0]), word(codes[1]));
    [a as u64, b as u64, c as u64, d as u64]
}

/// F143 in the fields of F16 is the value over 128; the code of the NaN is taken apart.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen_f143(bits: u64) -> [f32; 8] {
    let codes = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(bits as i64));
    let magnitude = _mm_slli_epi16::<7>(_mm_and_si128(codes, _mm_set1_epi16(0x7f)));
    let sign = _mm_slli_epi16::<8>(_mm_and_si128(codes, _mm_set1_epi16(0x80)));
    let halves = _mm_or_si128(magnitude, sign);
    let nan = _mm_cmpeq_epi16(codes, _mm_set1_epi16(0x80));
    let halves = _mm_blendv_epi8(halves, _mm_set1_epi16(0x7e00), nan);
    let wide = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(128.0));
    let mut values = [0.0; 8];
    // SAFETY: the array has room for eight lanes.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), wide) };
    values
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
        for code in 0..=u8::MAX {
            let bits = u64::from(code) * 0x0101_0101_0101_0101;
            for format in [F8::F143, F8::F152] {
                let values = |x: [f32; 8]| x.map(f32::to_bits);
                let (wide, portable) = (Wide::widen8(bits, format), Portable::widen8(bits, format));
                assert_eq!(values(wide), values(portable), "{code:#x}");
            }
        }
        let mut state = 1u32;
        let mut previous = [[0.0; 4]; 4];
        for i in 0..1_000_000usize {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let near = 0x4700_0000 | state >> 8 & 0xff_ffff;
            let small = 0x3300_0000 + (state >> 6 & 0x7ff_ffff);
            let values = [
                state ^ i as u32,
                near,
                small | 1 << 31,
                state.rotate_left(16),
            ];
            let values = values.map(f32::from_bits);
            previous[i % 4] = values;
            // Every other time most lanes are below the maximum.
            let spread = if i & 4 == 0 { 1.0 } else { 1e30 };
            for overflow in [NanOnOverflow(false), NanOnOverflow(true)] {
                let wide = Wide::narrow4(values, overflow);
                assert_eq!(wide, Portable::narrow4(values, overflow), "{values:?}");
                let all = std::array::from_fn(|lane| previous[lane / 4][lane % 4] / spread);
                let wide = Wide::narrow16(&all, overflow);
                assert_eq!(wide, Portable::narrow16(&all, overflow), "{all:?}");
            }
        }
        let special = [f32::INFINITY, f32::NEG_INFINITY, -f32::NAN, 65_520.0];
        for overflow in [NanOnOverflow(false), NanOnOverflow(true)] {
            let wide = Wide::narrow4(special, overflow);
            assert_eq!(wide, Portable::narrow4(special, overflow));
        }
    }
}
