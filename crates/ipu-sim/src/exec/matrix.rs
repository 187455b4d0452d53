//! The matrix instructions: operands in, multiply, results out.
//!
//! The names say what goes in and out: `h` F16 and `s` F32, first the partials (`hi`, `si`), then
//! the results (`ho`, `so`).

use ipu_isa::float::F8;
use ipu_target::amp::tamp_phase;

use super::Out;
use crate::context::Context;
use crate::matrix::{Coefficients, Wide};
use crate::numeric::{Lanes, narrow, widen};
use crate::op::Micro;

/// Matrix forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixOp {
    HalfHiho,
    HalfSiho,
    HalfSiso,
    HalfV4,
    ByteV4,
    SingleSiso,
    SingleSisoV2,
}

impl MatrixOp {
    pub fn by_name(name: &str) -> Option<MatrixOp> {
        use MatrixOp::*;
        Some(match name {
            "f16v4hihoamp" => HalfHiho,
            "f16v4sihoamp" => HalfSiho,
            "f16v4sisoamp" => HalfSiso,
            "f16v4hihov4amp" => HalfV4,
            "f8v8hihov4amp" => ByteV4,
            "f32sisoamp" => SingleSiso,
            "f32sisov2amp" => SingleSisoV2,
            _ => return None,
        })
    }

    /// Accumulators of one group.
    #[inline(always)]
    const fn lanes(self) -> usize {
        match self {
            MatrixOp::HalfV4 | MatrixOp::ByteV4 | MatrixOp::SingleSisoV2 => 16,
            _ => 8,
        }
    }

    #[inline(always)]
    fn wide(self, w: &Context) -> Wide {
        match self {
            MatrixOp::HalfV4 => Wide::F16 { v4: true },
            MatrixOp::ByteV4 => Wide::F8 {
                format: F8::from_format_bit(w.fp_nfmt & 1 != 0),
                scale: w.fp_scl,
            },
            MatrixOp::SingleSiso => Wide::F32 { v2: false },
            MatrixOp::SingleSisoV2 => Wide::F32 { v2: true },
            _ => Wide::F16 { v4: false },
        }
    }
}

#[inline(always)]
fn halves<const N: usize>(bits: u64) -> [f32; N] {
    std::array::from_fn(|i| widen((bits >> (16 * i)) as u16))
}

/// Taint of N lanes from the taint of words that hold `per_word` lanes each.
#[inline(always)]
fn spread_taint(words: u32, lanes: usize, per_word: usize) -> u16 {
    if words == 0 {
        return 0;
    }
    (0..lanes).fold(0, |taint, i| {
        taint | ((words >> (i / per_word) & 1) as u16) << i
    })
}

/// One matrix instruction: `r` holds destination, left operand and partials.
#[inline(always)]
pub fn multiply<V: Lanes>(
    op: MatrixOp,
    micro: &Micro,
    w: &mut Context,
    store: &mut Coefficients,
) -> Out {
    let phase = usize::from(tamp_phase(micro.imm as u8));
    let lanes = op.lanes();
    if phase == 0 {
        w.matrix.turn(lanes);
    }
    let [_, left, partials, _] = micro.r;
    let kind = op.wide(w);
    let (wide, coefficient_taint) = store.phase(kind, phase);
    let x = w.a64(left);
    match op {
        MatrixOp::ByteV4 => {
            let table = F8::from_format_bit(w.fp_nfmt & 2 != 0).table();
            let mut values = [0.0; 8];
            for (i, value) in values.iter_mut().enumerate() {
                *value = table[usize::from((x >> (8 * i)) as u8)];
            }
            w.matrix.accumulate_exact(values, wide);
        }
        MatrixOp::SingleSiso | MatrixOp::SingleSisoV2 => {
            w.matrix.accumulate_fused(f32::from_bits(x as u32), wide);
        }
        _ => w.matrix.accumulate_exact(V::widen4(x), wide),
    }
    let left_words = match op {
        MatrixOp::SingleSiso | MatrixOp::SingleSisoV2 => 1,
        _ => 3,
    };
    let x_tainted = w.a_taint >> left & left_words != 0;
    w.matrix.taint_by(x_tainted, coefficient_taint);
    let out = results::<V>(op, w, lanes);
    feed::<V>(op, partials, w, lanes);
    out
}

#[inline(always)]
fn results<V: Lanes>(op: MatrixOp, w: &mut Context, lanes: usize) -> Out {
    let overflow = w.overflow();
    match op {
        MatrixOp::HalfV4 | MatrixOp::ByteV4 => {
            let (values, taint) = w.matrix.pop::<4>(lanes);
            let value = V::narrow4(values, overflow);
            let taint = u32::from(taint & 3 != 0) | u32::from(taint & 12 != 0) << 1;
            Out { value, taint }
        }
        MatrixOp::HalfHiho | MatrixOp::HalfSiho => {
            let ([a, b], taint) = w.matrix.pop::<2>(lanes);
            let value = u64::from(narrow(a, overflow)) | u64::from(narrow(b, overflow)) << 16;
            let taint = u32::from(taint != 0);
            Out { value, taint }
        }
        MatrixOp::HalfSiso | MatrixOp::SingleSiso | MatrixOp::SingleSisoV2 => {
            let ([a, b], taint) = w.matrix.pop::<2>(lanes);
            Out {
                value: u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32,
                taint: u32::from(taint),
            }
        }
    }
}

#[inline(always)]
fn feed<V: Lanes>(op: MatrixOp, partials: u8, w: &mut Context, lanes: usize) {
    let bits = w.a64(partials);
    let words = w.a_taint2(partials);
    match op {
        MatrixOp::HalfV4 | MatrixOp::ByteV4 => {
            w.matrix
                .push(lanes, V::widen4(bits), spread_taint(words, 4, 2));
        }
        MatrixOp::HalfHiho => {
            w.matrix
                .push(lanes, halves::<2>(bits), spread_taint(words, 2, 2));
        }
        _ => {
            let values = [
                f32::from_bits(bits as u32),
                f32::from_bits((bits >> 32) as u32),
            ];
            w.matrix.push(lanes, values, spread_taint(words, 2, 1));
        }
    }
}
