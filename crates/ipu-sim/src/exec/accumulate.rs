//! Element-wise use of the accumulators: sums, squares, products, mixes, and their drain.
//!
//! Lane i of a vector stands in accumulator 2i. `gina` drains two lanes and moves the rest down.

use super::Out;
use crate::context::Context;
use crate::numeric::{Lanes, narrow, widen};
use crate::op::Micro;

/// Operations on the accumulators of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccOp {
    /// Add lanes: F16 or F32, as many as the operand has.
    Halves {
        lanes: u8,
        form: Addend,
    },
    Singles {
        form: Addend,
    },
    /// Product of neighbours summed: two lanes into accumulator 0, four into 0 and 2.
    HalfMac {
        lanes: u8,
    },
    SingleMac {
        lanes: u8,
    },
    OuterProduct,
    Axpy,
    Mix,
    GetHalves,
    DrainHalves,
    DrainSingles,
}

/// What is added of each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addend {
    Value,
    Magnitude,
    Square,
}

impl AccOp {
    pub fn by_name(name: &str) -> Option<AccOp> {
        use Addend::*;
        let halves = |lanes, form| AccOp::Halves { lanes, form };
        let singles = |form| AccOp::Singles { form };
        Some(match name {
            "f16v4acc" => halves(4, Value),
            "f16v8acc" => halves(8, Value),
            "f16v4absacc" => halves(4, Magnitude),
            "f16v8absacc" => halves(8, Magnitude),
            "f16v8sqacc" => halves(8, Square),
            "f32v4acc" => singles(Value),
            "f32v4absacc" => singles(Magnitude),
            "f32v4sqacc" => singles(Square),
            "f16v2cmac" => AccOp::HalfMac { lanes: 2 },
            "f16v4cmac" => AccOp::HalfMac { lanes: 4 },
            "f32mac" => AccOp::SingleMac { lanes: 1 },
            "f32v2mac" => AccOp::SingleMac { lanes: 2 },
            "f32v2aop" => AccOp::OuterProduct,
            "f32v2axpy" => AccOp::Axpy,
            "f16v4mix" => AccOp::Mix,
            "f16v4gacc" => AccOp::GetHalves,
            "f16v2gina" => AccOp::DrainHalves,
            "f32v2gina" => AccOp::DrainSingles,
            _ => return None,
        })
    }
}

fn half(bits: u64, lane: usize) -> f32 {
    widen((bits >> (16 * (lane % 4))) as u16)
}

fn single(bits: u64, lane: usize) -> f32 {
    f32::from_bits((bits >> (32 * (lane % 2))) as u32)
}

impl Addend {
    #[inline(always)]
    fn add(self, acc: &mut f32, x: f32) {
        match self {
            Addend::Value => *acc += x,
            Addend::Magnitude => *acc += x.abs(),
            Addend::Square => *acc = x.mul_add(x, *acc),
        }
    }

    /// As [`Addend::add`] for a widened F16, whose square is exact in F32.
    #[inline(always)]
    fn add_half(self, acc: &mut f32, x: f32) {
        match self {
            Addend::Square => *acc += x * x,
            other => other.add(acc, x),
        }
    }
}

/// The accumulators of `lanes` lanes that a taint of single words reaches.
fn lane_taint(words: u32, lanes: usize, lanes_per_word: usize) -> u16 {
    (0..lanes)
        .filter(|lane| words >> (lane / lanes_per_word) & 1 != 0)
        .fold(0, |taint, lane| taint | 1 << (2 * lane))
}

#[inline(always)]
pub fn apply<V: Lanes>(op: AccOp, micro: &Micro, w: &mut Context) -> Out {
    let r = micro.r;
    match op {
        AccOp::Halves { lanes, form } => sum_halves::<V>(usize::from(lanes), form, r[0], w),
        AccOp::Singles { form } => sum_singles(form, r[0], w),
        AccOp::HalfMac { .. } | AccOp::SingleMac { .. } | AccOp::OuterProduct => {
            multiply(op, r[0], r[1], w);
        }
        AccOp::Axpy => return axpy(r[1], r[2], w),
        AccOp::Mix => return mix(r[1], r[2], w),
        AccOp::GetHalves => return halves(w, 4),
        AccOp::DrainHalves => return drain_halves(r[1], w),
        AccOp::DrainSingles => return drain_singles(r[1], w),
    }
    Out::default()
}

#[inline(always)]
fn sum_halves<V: Lanes>(lanes: usize, form: Addend, r: u8, w: &mut Context) {
    let source = [w.a64(r), w.a64(r + 2)];
    for (i, &bits) in source[..lanes / 4].iter().enumerate() {
        for (lane, x) in V::widen4(bits).into_iter().enumerate() {
            form.add_half(&mut w.matrix.acc[2 * (4 * i + lane)], x);
        }
    }
    w.matrix.acc_taint |= lane_taint(w.a_taint >> r, lanes, 2);
}

#[inline(always)]
fn sum_singles(form: Addend, r: u8, w: &mut Context) {
    let source = [w.a64(r), w.a64(r + 2)];
    for lane in 0..4 {
        let x = single(source[lane / 2], lane);
        form.add(&mut w.matrix.acc[2 * lane], x);
    }
    w.matrix.acc_taint |= lane_taint(w.a_taint >> r, 4, 1);
}

/// Products of two operands into the accumulators.
fn multiply(op: AccOp, x: u8, y: u8, w: &mut Context) {
    let words = w.a_taint2(x) | w.a_taint2(y);
    let (x, y) = (w.a64(x), w.a64(y));
    let acc = &mut w.matrix.acc;
    w.matrix.acc_taint |= match op {
        AccOp::HalfMac { lanes } => {
            let lanes = usize::from(lanes);
            for lane in 0..lanes {
                acc[2 * (lane / 2)] += half(x, lane) * half(y, lane);
            }
            lane_taint(words, lanes / 2, 1)
        }
        AccOp::SingleMac { lanes } => {
            let lanes = usize::from(lanes);
            for lane in 0..lanes {
                let acc = &mut acc[2 * lane];
                *acc = single(x, lane).mul_add(single(y, lane), *acc);
            }
            lane_taint(words, lanes, 1)
        }
        _ => {
            for lane in 0..4 {
                let acc = &mut acc[2 * lane];
                *acc = single(x, lane % 2).mul_add(single(y, lane / 2), *acc);
            }
            if words != 0 { 0b0101_0101 } else { 0 }
        }
    };
}

/// Taint of a result of two operands and `$TAS`.
fn scaled_taint(x: u8, y: u8, w: &Context) -> u32 {
    w.a_taint2(x) | w.a_taint2(y) | if w.tas_taint { 3 } else { 0 }
}

fn axpy(x: u8, y: u8, w: &mut Context) -> Out {
    let previous = singles(w);
    let words = scaled_taint(x, y, w);
    let (x, y, a) = (w.a64(x), w.a64(y), f32::from_bits(w.tas));
    for lane in 0..2 {
        w.matrix.acc[2 * lane] = a.mul_add(single(x, lane), single(y, lane));
    }
    let keep = w.matrix.acc_taint & !0b101;
    w.matrix.acc_taint = keep | lane_taint(words, 2, 1);
    previous
}

fn mix(x: u8, y: u8, w: &mut Context) -> Out {
    let previous = halves(w, 4);
    let words = scaled_taint(x, y, w);
    let (x, y) = (w.a64(x), w.a64(y));
    let (a, b) = (widen(w.tas as u16), widen((w.tas >> 16) as u16));
    for lane in 0..4 {
        w.matrix.acc[2 * lane] = a * half(x, lane) + b * half(y, lane);
    }
    let keep = w.matrix.acc_taint & !0b101_0101;
    w.matrix.acc_taint = keep | lane_taint(words, 4, 2);
    previous
}

fn drain_halves(r: u8, w: &mut Context) -> Out {
    let out = halves(w, 2);
    let x = w.a64(r);
    let taint = (w.a_taint >> r & 1) * 3;
    drain(w, [half(x, 0), half(x, 1)], taint);
    Out {
        taint: u32::from(out.taint != 0),
        ..out
    }
}

fn drain_singles(r: u8, w: &mut Context) -> Out {
    let out = singles(w);
    let x = w.a64(r);
    let taint = w.a_taint2(r);
    drain(w, [single(x, 0), single(x, 1)], taint);
    out
}

/// Accumulators 0 and 2 as F32.
fn singles(w: &Context) -> Out {
    let [a, _, b, ..] = w.matrix.acc;
    let taint = u32::from(w.matrix.acc_taint);
    Out {
        value: u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32,
        taint: taint & 1 | (taint >> 1) & 2,
    }
}

/// The first lanes rounded to F16.
fn halves(w: &Context, lanes: usize) -> Out {
    let overflow = w.overflow();
    let mut out = Out::default();
    for lane in 0..lanes {
        let code = narrow(w.matrix.acc[2 * lane], overflow);
        out.value |= u64::from(code) << (16 * lane);
        out.taint |= u32::from(w.matrix.acc_taint >> (2 * lane) & 1) << (lane / 2);
    }
    out
}

/// Move every lane down by two and put new values at the top.
fn drain(w: &mut Context, top: [f32; 2], taint: u32) {
    for i in (0..12).step_by(2) {
        w.matrix.acc[i] = w.matrix.acc[i + 4];
    }
    w.matrix.acc[12] = top[0];
    w.matrix.acc[14] = top[1];
    let even = w.matrix.acc_taint & 0x5555;
    let top = ((taint & 1) << 12 | (taint >> 1 & 1) << 14) as u16;
    w.matrix.acc_taint = w.matrix.acc_taint & !0x5555 | even >> 4 | top;
}
