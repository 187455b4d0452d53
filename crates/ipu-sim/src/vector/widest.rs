//! Products with vectors of 512 bits: one register holds the sixteen sums of a row.
//!
//! Entered through [`product`] only, which asks for the processor's features first.

use std::arch::x86_64::*;

use ipu_isa::float::F8;

use super::{Wide, has_widest_vectors};
use crate::context::Context;
use crate::exec::Shared;
use crate::matrix::LANES;
use crate::numeric::{Lanes, NanOnOverflow, TOGETHER_MAX};
use crate::product::{self, Plan};

/// A matrix product. Call only where the processor has these vectors.
pub fn product(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
    assert!(has_widest_vectors());
    // SAFETY: the processor has the features that the function is compiled for.
    unsafe { product_widest(plan, w, shared) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn product_widest(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
    product::run::<Widest>(plan, w, shared)
}

/// Conversions and sums by AVX-512. Used only in code that [`product`] has checked the processor for.
struct Widest;

impl Lanes for Widest {
    const TOGETHER: usize = TOGETHER_MAX;

    #[inline(always)]
    fn widen4(bits: u64) -> [f32; 4] {
        Wide::widen4(bits)
    }

    #[inline(always)]
    fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64 {
        Wide::narrow4(values, overflow)
    }

    #[inline(always)]
    fn widen16(bits: [u64; 4]) -> [f32; LANES] {
        // SAFETY: reached from `product_widest` only, so the processor has AVX-512.
        unsafe { widen16(bits) }
    }

    #[inline(always)]
    fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4] {
        // SAFETY: reached from `product_widest` only, so the processor has AVX-512.
        unsafe { narrow16(values, overflow) }
    }

    #[inline(always)]
    fn widen8(bits: u64, format: F8) -> [f32; 8] {
        Wide::widen8(bits, format)
    }

    #[inline(always)]
    fn widen32(bits: [u64; 4], format: F8) -> [f32; 32] {
        match format {
            // SAFETY: reached from `product_widest` only, so the processor has AVX-512.
            F8::F143 => unsafe { widen_f143(bits) },
            F8::F152 => Wide::widen32(bits, format),
        }
    }

    fn product(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
        product(plan, w, shared)
    }

    #[inline(always)]
    fn accumulate<const K: usize, const G: usize>(
        acc: &mut [[f32; LANES]; G],
        x: &[[f32; K]; G],
        rows: &[[f32; LANES]; K],
    ) {
        // SAFETY: reached from `product_widest` only, so the processor has AVX-512.
        unsafe { accumulate(acc, x, rows) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn load(values: &[f32; LANES]) -> __m512 {
    // SAFETY: the array holds sixteen lanes.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn store(values: &mut [f32; LANES], v: __m512) {
    // SAFETY: the array has room for sixteen lanes.
    unsafe { _mm512_storeu_ps(values.as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn load_words(bits: &[u64; 4]) -> __m256i {
    // SAFETY: the array holds 256 bits.
    unsafe { _mm256_loadu_si256(bits.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn widen16(bits: [u64; 4]) -> [f32; LANES] {
    let mut values = [0.0; LANES];
    store(&mut values, _mm512_cvtph_ps(load_words(&bits)));
    values
}

/// Lanes that are all below the maximum of F16 need no more than the instruction.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4] {
    let v = load(values);
    let most = _mm512_set1_ps(65_504.0);
    if _mm512_cmp_ps_mask::<_CMP_LE_OQ>(_mm512_abs_ps(v), most) != u16::MAX {
        return Wide::narrow16(values, overflow);
    }
    let codes = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
    let mut bits = [0; 4];
    // SAFETY: the array has room for 256 bits.
    unsafe { _mm256_storeu_si256(bits.as_mut_ptr().cast(), codes) };
    bits
}

/// F143 in the fields of F16 is the value over 128; the code of the NaN is taken apart.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn widen_f143(bits: [u64; 4]) -> [f32; 32] {
    let codes = _mm512_cvtepu8_epi16(load_words(&bits));
    let magnitude = _mm512_slli_epi16::<7>(_mm512_and_si512(codes, _mm512_set1_epi16(0x7f)));
    let sign = _mm512_slli_epi16::<8>(_mm512_and_si512(codes, _mm512_set1_epi16(0x80)));
    let nan = _mm512_cmpeq_epi16_mask(codes, _mm512_set1_epi16(0x80));
    let halves = _mm512_or_si512(magnitude, sign);
    let halves = _mm512_mask_blend_epi16(nan, halves, _mm512_set1_epi16(0x7e00));
    let mut values = [0.0; 32];
    let (parts, _) = values.as_chunks_mut::<LANES>();
    let of = [
        _mm512_castsi512_si256(halves),
        _mm512_extracti64x4_epi64::<1>(halves),
    ];
    for (part, half) in parts.iter_mut().zip(of) {
        let wide = _mm512_cvtph_ps(half);
        store(part, _mm512_mul_ps(wide, _mm512_set1_ps(128.0)));
    }
    values
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl")]
fn accumulate<const K: usize, const G: usize>(
    acc: &mut [[f32; LANES]; G],
    x: &[[f32; K]; G],
    rows: &[[f32; LANES]; K],
) {
    let mut sums = [_mm512_setzero_ps(); G];
    for g in 0..G {
        sums[g] = load(&acc[g]);
    }
    for k in 0..K {
        let row = load(&rows[k]);
        for g in 0..G {
            sums[g] = _mm512_fmadd_ps(_mm512_set1_ps(x[g][k]), row, sums[g]);
        }
    }
    for (acc, sum) in acc.iter_mut().zip(sums) {
        store(acc, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::Portable;

    fn bits<const N: usize>(values: [f32; N]) -> [u32; N] {
        values.map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() })
    }

    #[test]
    fn conversions_and_sums_equal_the_portable_ones() {
        if !has_widest_vectors() {
            println!("skipped: the processor has no AVX-512");
            return;
        }
        for code in 0..=u16::MAX {
            let word = u64::from(code) * 0x0001_0001_0001_0001;
            let row = [word, !word, word.rotate_left(5), word ^ 0x8000];
            assert_eq!(bits(Widest::widen16(row)), bits(Portable::widen16(row)));
            for format in [F8::F143, F8::F152] {
                let wide = bits(Widest::widen32(row, format));
                assert_eq!(wide, bits(Portable::widen32(row, format)), "{row:x?}");
            }
        }
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        for i in 0..200_000u32 {
            let small: [f32; LANES] = std::array::from_fn(|_| (next() >> 8) as f32 / 1e5 - 80.0);
            let any = std::array::from_fn(|_| f32::from_bits(next()));
            let values = if i % 3 == 0 { any } else { small };
            for overflow in [NanOnOverflow(false), NanOnOverflow(true)] {
                let wide = Widest::narrow16(&values, overflow);
                assert_eq!(wide, Portable::narrow16(&values, overflow), "{values:?}");
            }
        }
        // Values with few bits: their products are exact.
        for _ in 0..2_000 {
            let mut few = || (next() >> 21) as i32 as f32 / 1024.0 - 1.0;
            let x: [[f32; 32]; 7] = std::array::from_fn(|_| std::array::from_fn(|_| few()));
            let rows: [[f32; LANES]; 32] = std::array::from_fn(|_| std::array::from_fn(|_| few()));
            let mut wide: [[f32; LANES]; 7] =
                std::array::from_fn(|_| std::array::from_fn(|_| few()));
            let mut portable = wide;
            Widest::accumulate(&mut wide, &x, &rows);
            Portable::accumulate(&mut portable, &x, &rows);
            assert_eq!(wide.map(bits), portable.map(bits));
        }
    }
}
