//! Arithmetic and comparisons on lanes of F16 and F32.
//!
//! F16 sums, differences and products are computed in F32 and rounded once, which equals the
//! direct rounding. A comparison gives all ones or all zeros in each lane.

use crate::numeric::{Lanes, NanOnOverflow, max, min, widen};

/// Operations on F16 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfOp {
    Add,
    Sub,
    Mul,
    Max,
    Min,
    AbsAdd,
    AbsMax,
    Clamp,
    CmpEq,
    CmpGe,
    CmpGt,
    CmpLe,
    CmpLt,
    CmpNe,
}

impl HalfOp {
    /// By the mnemonic without `f16v2` or `f16v4`.
    pub fn by_name(name: &str) -> Option<HalfOp> {
        use HalfOp::*;
        Some(match name {
            "add" => Add,
            "sub" => Sub,
            "mul" => Mul,
            "max" => Max,
            "min" => Min,
            "absadd" => AbsAdd,
            "absmax" => AbsMax,
            "clamp" => Clamp,
            "cmpeq" => CmpEq,
            "cmpge" => CmpGe,
            "cmpgt" => CmpGt,
            "cmple" => CmpLe,
            "cmplt" => CmpLt,
            "cmpne" => CmpNe,
            _ => return None,
        })
    }
}

#[inline(always)]
fn map<V: Lanes>(x: u64, y: u64, f: impl Fn(f32, f32) -> u16) -> u64 {
    let (x, y) = (V::widen4(x), V::widen4(y));
    let mut result = 0;
    for i in 0..4 {
        result |= u64::from(f(x[i], y[i])) << (16 * i);
    }
    result
}

#[inline(always)]
fn four<V: Lanes>(x: u64, y: u64, overflow: NanOnOverflow, f: impl Fn(f32, f32) -> f32) -> u64 {
    let (x, y) = (V::widen4(x), V::widen4(y));
    let mut values = [0.0; 4];
    for i in 0..4 {
        values[i] = f(x[i], y[i]);
    }
    V::narrow4(values, overflow)
}

fn mask16(condition: bool) -> u16 {
    if condition { u16::MAX } else { 0 }
}

/// Four lanes; a two-lane instruction ignores the upper ones.
#[inline(always)]
pub fn half<V: Lanes>(op: HalfOp, x: u64, y: u64, overflow: NanOnOverflow) -> u64 {
    match op {
        HalfOp::Add => four::<V>(x, y, overflow, |x, y| x + y),
        HalfOp::Sub => four::<V>(x, y, overflow, |x, y| x - y),
        HalfOp::Mul => four::<V>(x, y, overflow, |x, y| x * y),
        HalfOp::Max => four::<V>(x, y, overflow, max),
        HalfOp::Min => four::<V>(x, y, overflow, min),
        HalfOp::AbsAdd => four::<V>(x, y, overflow, |x, y| x.abs() + y.abs()),
        HalfOp::AbsMax => four::<V>(x, y, overflow, |x, y| max(x.abs(), y.abs())),
        HalfOp::Clamp => {
            let (low, high) = (widen(y as u16), widen((y >> 16) as u16));
            four::<V>(x, x, overflow, |x, _| min(max(x, low), high))
        }
        HalfOp::CmpEq => map::<V>(x, y, |x, y| mask16(x == y)),
        HalfOp::CmpGe => map::<V>(x, y, |x, y| mask16(x >= y)),
        HalfOp::CmpGt => map::<V>(x, y, |x, y| mask16(x > y)),
        HalfOp::CmpLe => map::<V>(x, y, |x, y| mask16(x <= y)),
        HalfOp::CmpLt => map::<V>(x, y, |x, y| mask16(x < y)),
        HalfOp::CmpNe => map::<V>(x, y, |x, y| mask16(x != y)),
    }
}

/// Operations on F32 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    AbsAdd,
    AbsMax,
    Clamp,
    CmpEq,
    CmpGe,
    CmpGt,
    CmpLe,
    CmpLt,
    CmpNe,
}

impl SingleOp {
    /// By the mnemonic without `f32` or `f32v2`.
    pub fn by_name(name: &str) -> Option<SingleOp> {
        use SingleOp::*;
        Some(match name {
            "add" => Add,
            "sub" => Sub,
            "mul" => Mul,
            "div" => Div,
            "max" => Max,
            "min" => Min,
            "absadd" => AbsAdd,
            "absmax" => AbsMax,
            "clamp" => Clamp,
            "cmpeq" => CmpEq,
            "cmpge" => CmpGe,
            "cmpgt" => CmpGt,
            "cmple" => CmpLe,
            "cmplt" => CmpLt,
            "cmpne" => CmpNe,
            _ => return None,
        })
    }
}

#[inline(always)]
fn map2(x: u64, y: u64, f: impl Fn(f32, f32) -> f32) -> u64 {
    let lane = |bits: u64, i: u32| f32::from_bits((bits >> (32 * i)) as u32);
    u64::from(f(lane(x, 0), lane(y, 0)).to_bits())
        | u64::from(f(lane(x, 1), lane(y, 1)).to_bits()) << 32
}

fn mask32(condition: bool) -> f32 {
    f32::from_bits(if condition { u32::MAX } else { 0 })
}

/// Two lanes; a one-lane instruction ignores the upper one.
#[inline(always)]
pub fn single(op: SingleOp, x: u64, y: u64) -> u64 {
    match op {
        SingleOp::Add => map2(x, y, |x, y| x + y),
        SingleOp::Sub => map2(x, y, |x, y| x - y),
        SingleOp::Mul => map2(x, y, |x, y| x * y),
        SingleOp::Div => map2(x, y, |x, y| x / y),
        SingleOp::Max => map2(x, y, max),
        SingleOp::Min => map2(x, y, min),
        SingleOp::AbsAdd => map2(x, y, |x, y| x.abs() + y.abs()),
        SingleOp::AbsMax => map2(x, y, |x, y| max(x.abs(), y.abs())),
        SingleOp::Clamp => {
            let low = f32::from_bits(y as u32);
            let high = f32::from_bits((y >> 32) as u32);
            map2(x, x, |x, _| min(max(x, low), high))
        }
        SingleOp::CmpEq => map2(x, y, |x, y| mask32(x == y)),
        SingleOp::CmpGe => map2(x, y, |x, y| mask32(x >= y)),
        SingleOp::CmpGt => map2(x, y, |x, y| mask32(x > y)),
        SingleOp::CmpLe => map2(x, y, |x, y| mask32(x <= y)),
        SingleOp::CmpLt => map2(x, y, |x, y| mask32(x < y)),
        SingleOp::CmpNe => map2(x, y, |x, y| mask32(x != y)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::Portable;

    fn pack(values: [f32; 4]) -> u64 {
        let mut bits = 0;
        for (i, value) in values.into_iter().enumerate() {
            bits |= u64::from(half::f16::from_f32(value).to_bits()) << (16 * i);
        }
        bits
    }

    #[test]
    fn half_lanes() {
        let keep = NanOnOverflow(false);
        let x = pack([1.0, -2.0, 60000.0, 0.5]);
        let y = pack([0.25, 3.0, 60000.0, -0.5]);
        assert_eq!(
            half::<Portable>(HalfOp::Add, x, y, keep),
            pack([1.25, 1.0, 65504.0, 0.0])
        );
        assert_eq!(
            half::<Portable>(HalfOp::Mul, x, y, keep) & 0xffff_ffff,
            pack([0.25, -6.0, 0.0, 0.0])
        );
        assert_eq!(half::<Portable>(HalfOp::CmpLt, x, y, keep), 0xffff_0000);
        assert_eq!(
            half::<Portable>(HalfOp::Clamp, x, pack([-1.0, 1.0, 0.0, 0.0]), keep),
            pack([1.0, -1.0, 1.0, 0.5])
        );
        assert_eq!(
            half::<Portable>(HalfOp::AbsAdd, x, y, keep) & 0xffff_ffff,
            pack([1.25, 5.0, 0.0, 0.0])
        );
    }

    #[test]
    fn single_lanes() {
        let pair = |x: f32, y: f32| u64::from(x.to_bits()) | u64::from(y.to_bits()) << 32;
        assert_eq!(
            single(SingleOp::Sub, pair(1.0, 2.0), pair(0.5, 5.0)),
            pair(0.5, -3.0)
        );
        assert_eq!(
            single(SingleOp::CmpGt, pair(1.0, 2.0), pair(0.5, 5.0)),
            0xffff_ffff
        );
        assert_eq!(
            single(SingleOp::Clamp, pair(-3.0, 9.0), pair(-1.0, 4.0)),
            pair(-1.0, 4.0)
        );
    }
}
