//! What instructions do, one file for each family.
//!
//! Input: a micro-operation, the registers of a context, memory and coefficients of its tile.
//! Output: changed registers and memory, or a fault. Auxiliary operations return their result,
//! which the caller writes after the main slot has run: both slots read the old state.
//! Invariants: an operation depends on nothing else; timing is the caller's.
//! Not here: control flow and system instructions (see `worker` and `supervisor`).

mod accumulate;
mod arith;
mod bits;
mod convert;
mod integer;
mod matrix;
mod memory;

pub use accumulate::AccOp;
pub use arith::{HalfOp, SingleOp};
pub use bits::BitOp;
pub use convert::ConvertOp;
pub use integer::{AluOp, BranchOp, UnaryOp};
pub use matrix::MatrixOp;
pub use memory::{LoadOp, PaceOp, StoreOp, pace_increments};

use crate::context::Context;
use crate::fault::{Exec, FaultKind};
use crate::matrix::Coefficients;
use crate::memo::record::Recorder;
use crate::memory::Memory;
use crate::numeric::Lanes;
use crate::op::{Micro, Op, Spread};
use crate::trace::Tracer;

/// What the contexts of a tile share.
pub struct Shared<'a> {
    pub memory: &'a mut Memory,
    pub coefficients: &'a mut Coefficients,
    /// Follows what decides the path, in runs without data.
    pub recorder: Option<&'a mut Recorder>,
    /// Is told each issue.
    pub tracer: Option<&'a mut Tracer>,
}

/// Result of an auxiliary operation: up to two words and a taint bit for each.
#[derive(Clone, Copy, Default)]
pub struct Out {
    pub value: u64,
    pub taint: u32,
}

/// Run a plain operation of the main slot. With `DATA` false, accesses of the A file are skipped
/// but all M registers are exact.
#[inline(always)]
pub fn main<const DATA: bool>(micro: &Micro, w: &mut Context, memory: &mut Memory) -> Exec<()> {
    let [d, x, y, z] = micro.r;
    match micro.op {
        Op::Nop => {}
        Op::SetM => w.set_m_defined(d, micro.imm as u32),
        Op::Alu(op) => {
            let value = integer::alu(op, w.m(x), w.m(y));
            let taint = w.m_tainted(x) | w.m_tainted(y);
            w.set_m(d, value, taint);
        }
        Op::AluImmediate(op) => {
            let value = integer::alu(op, w.m(x), micro.imm as u32);
            w.set_m(d, value, w.m_tainted(x));
        }
        Op::Unary(op) => w.set_m(d, integer::unary(op, w.m(x)), w.m_tainted(x)),
        Op::MovNotZero => {
            let taken = w.m(x) != 0;
            let value = if taken { w.m(y) } else { w.m(d) };
            let source = if taken {
                w.m_tainted(y)
            } else {
                w.m_tainted(d)
            };
            w.set_m(d, value, source | w.m_tainted(x));
        }
        Op::Atom => {
            let value = w.a[usize::from(x)];
            w.set_m(d, value, w.a_taint >> x & 1 != 0);
        }
        Op::Load(op, mode) => memory::load::<DATA>(op, mode, micro, w, memory)?,
        Op::Store(op, mode) => memory::store::<DATA>(op, mode, micro, w, memory)?,
        Op::StoreStepBase => memory::store_step_base(micro, w, memory)?,
        Op::TaPack => {
            let taint = w.m_tainted(x) | w.m_tainted(y) | w.m_tainted(z);
            let pair = ipu_target::amp::tapack([w.m(x), w.m(y), w.m(z)]);
            w.set_m(d, pair[0], taint);
            w.set_m(d + 1, pair[1], taint);
        }
        Op::Pace(op) => memory::pace::<DATA>(op, micro, w, memory)?,
        _ => return Err(refuse(micro)),
    }
    Ok(())
}

/// Run an operation of the auxiliary slot and return what it writes to `r[0]`.
#[inline(always)]
pub fn aux<V: Lanes>(micro: &Micro, w: &mut Context, coefficients: &mut Coefficients) -> Exec<Out> {
    let [_, x, y, _] = micro.r;
    Ok(match micro.op {
        Op::Nop => Out::default(),
        Op::Matrix(op) => matrix::multiply::<V>(op, micro, w, coefficients),
        Op::Half(op, s) => Out {
            value: arith::half::<V>(op, first(w, x, s), w.a64(y), w.overflow()),
            taint: match op {
                HalfOp::Clamp => clamp_taint(w, x, w.a_taint >> y & 1),
                _ => elementwise_taint(w, x, y, s),
            },
        },
        Op::Single(op, s) => Out {
            value: arith::single(op, first(w, x, s), w.a64(y)),
            taint: match op {
                SingleOp::Clamp => clamp_taint(w, x, w.a_taint2(y)),
                _ => elementwise_taint(w, x, y, s),
            },
        },
        Op::Bits(op, s) => Out {
            value: bits::apply(op, first(w, x, s), w.a64(y)),
            taint: bits::taint(op, w, x, y, s),
        },
        Op::BitsImmediate(op) => Out {
            value: bits::apply(op, w.a64(x), u64::from(micro.imm as u32)),
            taint: w.a_taint2(x),
        },
        Op::Convert(op) => convert::apply::<V>(op, micro, w),
        Op::Acc(op) => accumulate::apply::<V>(op, micro, w),
        Op::SetA => Out {
            value: u64::from(micro.imm as u32),
            taint: 0,
        },
        Op::Uget => upper_get(micro, w)?,
        Op::Uput => {
            upper_put(micro, w)?;
            Out::default()
        }
        _ => return Err(refuse(micro)),
    })
}

/// Write the result of an auxiliary operation.
#[inline(always)]
pub fn commit(micro: &Micro, w: &mut Context, out: Out) {
    match micro.width {
        1 => w.set_a32(micro.r[0], out.value as u32, out.taint),
        2 => w.set_a64(micro.r[0], out.value, out.taint),
        _ => {}
    }
}

#[cold]
fn refuse(micro: &Micro) -> Box<FaultKind> {
    Box::new(match micro.op {
        Op::ReadOnly => FaultKind::ReadOnlyRegister(micro.r[0]),
        Op::Unimplemented => {
            FaultKind::Unimplemented(ipu_isa::form::FormId(micro.imm as u16).form().key)
        }
        Op::Sync | Op::Sans | Op::Row => FaultKind::Unimplemented("row instruction outside a row"),
        _ => FaultKind::Bundle("operation in the wrong slot"),
    })
}

/// The first source, broadcast as asked.
#[inline(always)]
fn first(w: &Context, r: u8, spread: Spread) -> u64 {
    match spread {
        Spread::No => w.a64(r),
        Spread::Lower => u64::from(w.a[usize::from(r)] & 0xffff) * 0x0001_0001_0001_0001,
        Spread::Upper => u64::from(w.a[usize::from(r)] >> 16) * 0x0001_0001_0001_0001,
        Spread::Word => u64::from(w.a[usize::from(r)]) * 0x0000_0001_0000_0001,
    }
}

#[inline(always)]
fn elementwise_taint(w: &Context, x: u8, y: u8, spread: Spread) -> u32 {
    if w.a_taint == 0 {
        return 0;
    }
    first_taint(w, x, spread) | w.a_taint2(y)
}

#[inline(always)]
fn clamp_taint(w: &Context, x: u8, bounds: u32) -> u32 {
    w.a_taint2(x) | if bounds != 0 { 3 } else { 0 }
}

fn first_taint(w: &Context, x: u8, spread: Spread) -> u32 {
    match spread {
        Spread::No => w.a_taint2(x),
        _ => (w.a_taint >> x & 1) * 3,
    }
}

/// Upper control registers, by number less 256.
fn upper_get(micro: &Micro, w: &Context) -> Exec<Out> {
    let value = match micro.imm {
        0 => w.fp_sts,
        2 => w.fp_ctl,
        8 => w.tas,
        9 => w.fp_nfmt,
        10 => w.fp_scl as u32 & 0x3f,
        other => return Err(unknown(other)),
    };
    let taint = u32::from(micro.imm == 8 && w.tas_taint);
    Ok(Out {
        value: u64::from(value),
        taint,
    })
}

fn upper_put(micro: &Micro, w: &mut Context) -> Exec<()> {
    const CLEAR_ACCUMULATORS: u32 = 1 << 3;
    let r = micro.r[0];
    let value = w.a[usize::from(r)];
    let tainted = w.a_taint >> r & 1 != 0;
    if tainted && micro.imm != 8 {
        return Err(undefined_control());
    }
    match micro.imm {
        0 => w.fp_sts = value,
        1 => {
            w.fp_sts &= !(value & 7);
            if value & CLEAR_ACCUMULATORS != 0 {
                w.matrix.clear();
            }
        }
        2 => w.fp_ctl = value,
        // Seeds of the random generator, whose instructions have no semantics.
        3..=7 => {}
        8 => {
            w.tas = value;
            w.tas_taint = tainted;
        }
        9 => w.fp_nfmt = value & 3,
        10 => w.fp_scl = crate::context::scale_from_bits(value),
        other => return Err(unknown(other)),
    }
    Ok(())
}

#[cold]
pub fn undefined_control() -> Box<FaultKind> {
    Box::new(FaultKind::Undefined(crate::fault::Use::Control))
}

#[cold]
fn unknown(number: i32) -> Box<FaultKind> {
    Box::new(FaultKind::UnknownRegister(number as u16 + 256))
}
