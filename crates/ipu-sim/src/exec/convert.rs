//! Conversions, special functions and horizontal operations: one source, one result.

use ipu_isa::float::{F8, pow2};

use super::Out;
use crate::context::Context;
use crate::numeric::{Lanes, Special, max, narrow, narrow_byte, round_to_integer, widen};
use crate::op::Micro;

/// Operations with one auxiliary source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertOp {
    F16ToF32,
    F16v2ToF32,
    F32ToF16,
    F32v2ToF16,
    F32v4ToF16,
    F16v2ToF8,
    F16v8ToF8,
    F8v2ToF16,
    F8v4ToF16,
    F32ToI32,
    F32ToU32,
    F32FromI32,
    F32FromU32,
    F32Int,
    /// Sums of neighbours, in F32.
    F16Sum,
    /// The larger of two neighbours, in both lanes.
    F16v2Maxc,
    /// The larger of lanes 0 and 1, and of lanes 2 and 3.
    F16v4Maxc,
    Half(Special),
    Single(Special),
}

impl ConvertOp {
    pub fn by_name(name: &str) -> Option<ConvertOp> {
        use ConvertOp::*;
        Some(match name {
            "f16tof32" => F16ToF32,
            "f16v2tof32" => F16v2ToF32,
            "f32tof16" => F32ToF16,
            "f32v2tof16" => F32v2ToF16,
            "f32v4tof16" => F32v4ToF16,
            "f16v2tof8" => F16v2ToF8,
            "f16v8tof8" => F16v8ToF8,
            "f8v2tof16" => F8v2ToF16,
            "f8v4tof16" => F8v4ToF16,
            "f32toi32" => F32ToI32,
            "f32toui32" => F32ToU32,
            "f32fromi32" => F32FromI32,
            "f32fromui32" => F32FromU32,
            "f32int" => F32Int,
            "f16v2sum" | "f16v4sum" => F16Sum,
            "f16v2maxc" => F16v2Maxc,
            "f16v4maxc" => F16v4Maxc,
            _ => return special(name),
        })
    }
}

fn special(name: &str) -> Option<ConvertOp> {
    let (half, stem) = match name.strip_prefix("f16v2") {
        Some(stem) => (true, stem),
        None => (false, name.strip_prefix("f32")?),
    };
    let function = match stem {
        "exp" => Special::Exp,
        "exp2" => Special::Exp2,
        "ln" => Special::Ln,
        "log2" => Special::Log2,
        "tanh" => Special::Tanh,
        "sigm" => Special::Sigm,
        "sqrt" => Special::Sqrt,
        "oorx" => Special::Oorx,
        "oox" => Special::Oox,
        _ => return None,
    };
    Some(if half {
        ConvertOp::Half(function)
    } else {
        ConvertOp::Single(function)
    })
}

fn single(bits: u64, lane: u32) -> f32 {
    f32::from_bits((bits >> (32 * lane)) as u32)
}

fn half(bits: u64, lane: u32) -> f32 {
    widen((bits >> (16 * lane)) as u16)
}

#[inline(always)]
pub fn apply<V: Lanes>(op: ConvertOp, micro: &Micro, w: &Context) -> Out {
    let r = micro.r[1];
    let x = w.a64(r);
    let value = value::<V>(op, micro, w, x);
    let taint = if w.a_taint == 0 { 0 } else { taint(op, w, r) };
    Out { value, taint }
}

fn taint(op: ConvertOp, w: &Context, r: u8) -> u32 {
    let any = |bits: u32| u32::from(bits != 0);
    let low = w.a_taint2(r);
    match op {
        ConvertOp::F16v2ToF32 | ConvertOp::F8v4ToF16 => (low & 1) * 3,
        ConvertOp::F32v2ToF16 | ConvertOp::F16v4Maxc => any(low),
        ConvertOp::F32v4ToF16 | ConvertOp::F16v8ToF8 => any(low) | any(w.a_taint2(r + 2)) << 1,
        _ => low,
    }
}

#[inline(always)]
fn value<V: Lanes>(op: ConvertOp, micro: &Micro, w: &Context, x: u64) -> u64 {
    let overflow = w.overflow();
    let n = |value: f32| u64::from(narrow(value, overflow));
    match op {
        ConvertOp::F16ToF32 => u64::from(half(x, 0).to_bits()),
        ConvertOp::F16v2ToF32 => {
            u64::from(half(x, 0).to_bits()) | u64::from(half(x, 1).to_bits()) << 32
        }
        ConvertOp::F32ToF16 => n(single(x, 0)) * 0x0001_0001,
        ConvertOp::F32v2ToF16 => n(single(x, 0)) | n(single(x, 1)) << 16,
        ConvertOp::F32v4ToF16 => {
            let y = w.a64(micro.r[1] + 2);
            V::narrow4(
                [single(x, 0), single(x, 1), single(y, 0), single(y, 1)],
                overflow,
            )
        }
        ConvertOp::F16v2ToF8 => {
            let [a, b, ..] = V::widen4(x);
            let codes = to_f8(w, [a, b]);
            u64::from(u16::from_le_bytes(codes)) * 0x0001_0001
        }
        ConvertOp::F16v8ToF8 => {
            let y = w.a64(micro.r[1] + 2);
            let ([a, b, c, d], [e, f, g, h]) = (V::widen4(x), V::widen4(y));
            u64::from_le_bytes(to_f8(w, [a, b, c, d, e, f, g, h]))
        }
        ConvertOp::F8v2ToF16 | ConvertOp::F8v4ToF16 => {
            let format = format(w);
            let scale = pow2(w.fp_scl) as f32;
            let table = format.table();
            let mut values = [0.0; 4];
            for (lane, value) in values.iter_mut().enumerate() {
                *value = table[(x >> (8 * lane)) as usize & 0xff] * scale;
            }
            V::narrow4(values, overflow)
        }
        ConvertOp::F32ToI32 => u64::from(single(x, 0).round_ties_even() as i32 as u32),
        ConvertOp::F32ToU32 => u64::from(single(x, 0).round_ties_even() as u32),
        ConvertOp::F32FromI32 => u64::from((x as u32 as i32 as f32).to_bits()),
        ConvertOp::F32FromU32 => u64::from((x as u32 as f32).to_bits()),
        ConvertOp::F32Int => u64::from(round_to_integer(single(x, 0), micro.imm).to_bits()),
        ConvertOp::F16Sum => {
            let low = half(x, 0) + half(x, 1);
            let high = half(x, 2) + half(x, 3);
            u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32
        }
        ConvertOp::F16v2Maxc => n(max(half(x, 0), half(x, 1))) * 0x0001_0001,
        ConvertOp::F16v4Maxc => {
            n(max(half(x, 0), half(x, 1))) | n(max(half(x, 2), half(x, 3))) << 16
        }
        ConvertOp::Half(f) => {
            let lane = |shift: u32| u64::from(f.half((x >> shift) as u16, overflow));
            lane(0) | lane(16) << 16
        }
        ConvertOp::Single(f) => u64::from(f.single(single(x, 0)).to_bits()),
    }
}

/// The 8-bit format of conversions.
fn format(w: &Context) -> F8 {
    F8::from_format_bit(w.fp_nfmt & 1 != 0)
}

/// Values of F16 times the scale, which F32 holds exactly.
#[inline(always)]
fn to_f8<const N: usize>(w: &Context, values: [f32; N]) -> [u8; N] {
    let (scale, overflow) = (pow2(w.fp_scl) as f32, w.overflow());
    let mut codes = [0; N];
    // Two loops, each for the constants of a format.
    match format(w) {
        F8::F143 => {
            for (code, value) in codes.iter_mut().zip(values) {
                *code = narrow_byte(value * scale, F8::F143, overflow);
            }
        }
        F8::F152 => {
            for (code, value) in codes.iter_mut().zip(values) {
                *code = narrow_byte(value * scale, F8::F152, overflow);
            }
        }
    }
    codes
}
