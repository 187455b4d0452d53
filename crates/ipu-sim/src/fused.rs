//! Repeat bodies of matrix products as one native loop.
//!
//! A body qualifies when every bundle pairs a four-partial matrix instruction with a paced access
//! through one packed pointer. Addresses, ports, definedness and register use are checked once for
//! all iterations; what the checks do not allow, and iterations that would touch undefined words,
//! are left to the interpreter.
//! Invariants: registers, memory, accumulators and queues after [`run`] are, bit for bit, those
//! that the interpreter would leave after the same iterations; a test runs both.
//! Not here: faults (the interpreter raises them), bodies of other kinds.

mod rows;

use ipu_isa::float::F8;
use ipu_target::amp::{tamp_phase, tapack, untapack};
use ipu_target::memory::{REGION_BOUNDARY, SRAM_BASE, SRAM_BYTES, element_of};

use crate::code::Line;
use crate::context::Context;
use crate::exec::{MatrixOp, PaceOp, Shared, pace_increments};
use crate::matrix::{LANES, Wide};
use crate::memory::Memory;
use crate::numeric::{Lanes, NanOnOverflow, widen4};
use crate::op::Op;

/// Bundles of the longest body that is fused.
const BUNDLES_MAX: usize = 8;
/// Iterations below which checking costs more than it saves.
const ITERATIONS_MIN: u32 = 2;
/// Register pairs and one more that takes what is written to the zero pair.
const PAIRS: usize = 9;
const ZERO_PAIR: usize = 7;
const SINK: usize = 8;

/// One bundle with its registers as pair numbers.
#[derive(Clone, Copy, Default)]
struct Bundle {
    left: usize,
    partials: usize,
    result: usize,
    stored: usize,
    /// Where the first and the second load go.
    loads: [usize; 2],
    second_load: bool,
    phase: usize,
    /// What the access adds to the three addresses.
    by: [u32; 3],
}

/// A body that qualifies.
struct Body {
    bundles: [Bundle; BUNDLES_MAX],
    len: usize,
    op: MatrixOp,
    pointers: u8,
    /// A registers that are read and written, and M registers that are read.
    reads: u32,
    writes: u32,
    strides: u32,
}

/// The pair that is written for a register.
fn target(r: u8) -> usize {
    match usize::from(r / 2) {
        ZERO_PAIR => SINK,
        pair => pair,
    }
}

/// Recognise a body.
fn body(lines: &[Line], w: &Context) -> Option<Body> {
    let len = lines.len() / 2;
    if len > BUNDLES_MAX {
        return None;
    }
    let first = &lines[0];
    let (Op::Matrix(op), pointers) = (first.aux.op, first.main.r[2]) else {
        return None;
    };
    let mut found = Body {
        bundles: [Bundle::default(); BUNDLES_MAX],
        len,
        op,
        pointers,
        reads: 0,
        writes: 0,
        strides: 3 << pointers,
    };
    for (line, bundle) in lines.iter().step_by(2).zip(&mut found.bundles) {
        let (main, aux) = (&line.main, &line.aux);
        let Op::Pace(pace) = main.op else {
            return None;
        };
        let [d, source, at, stride] = main.r;
        let moves = (3u32 << pointers) >> stride & 1 != 0 && stride != 15;
        if aux.op != Op::Matrix(op) || at != pointers || moves {
            return None;
        }
        let second_load = match pace {
            PaceOp::LoadStore => false,
            PaceOp::Load2Store => true,
            _ => return None,
        };
        found.strides |= 1 << stride;
        found.reads |= 3 << aux.r[1] | 3 << aux.r[2] | 3 << source;
        found.writes |= 3 << aux.r[0] | if second_load { 15 << d } else { 3 << d };
        *bundle = Bundle {
            left: usize::from(aux.r[1] / 2),
            partials: usize::from(aux.r[2] / 2),
            result: target(aux.r[0]),
            stored: usize::from(source / 2),
            loads: [target(d), if second_load { target(d + 2) } else { SINK }],
            second_load,
            phase: usize::from(tamp_phase(aux.imm as u8)) & 3,
            by: pace_increments(pace, main.imm as u32, w.m(stride)),
        };
    }
    matches!(op, MatrixOp::HalfV4 | MatrixOp::ByteV4).then_some(found)
}

/// Addresses of an access over all iterations: the first of each bundle, and the step.
struct Track {
    first: [u32; BUNDLES_MAX],
    step: u32,
}

impl Track {
    fn new(body: &Body, which: usize, start: u32) -> Track {
        let mut first = [0; BUNDLES_MAX];
        let mut at = start;
        for (slot, bundle) in first.iter_mut().zip(&body.bundles[..body.len]) {
            *slot = at;
            at = at.wrapping_add(bundle.by[which]);
        }
        Track {
            first,
            step: at.wrapping_sub(start),
        }
    }

    /// Lowest and highest address over `count` iterations, if all are in memory and aligned.
    fn range(&self, len: usize, count: u32) -> Option<(u32, u32)> {
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        for &first in &self.first[..len] {
            let last = i64::from(first) + i64::from(self.step as i32) * i64::from(count - 1);
            low = low.min(i64::from(first)).min(last);
            high = high.max(i64::from(first)).max(last);
        }
        let (base, end) = (i64::from(SRAM_BASE), i64::from(SRAM_BASE + SRAM_BYTES));
        let fits = low >= base && high + 8 <= end && self.first[0].is_multiple_of(8);
        fits.then_some((low as u32, high as u32))
    }
}

/// Whether two accesses of one bundle never meet at a port.
fn apart(
    len: usize,
    (a, a_range): (&Track, (u32, u32)),
    (b, b_range): (&Track, (u32, u32)),
) -> bool {
    let (a_low, a_high) = (element_of(a_range.0), element_of(a_range.1));
    let (b_low, b_high) = (element_of(b_range.0), element_of(b_range.1));
    if a_high < b_low || b_high < a_low {
        return true;
    }
    let interleaved = a_range.0 >= REGION_BOUNDARY && b_range.0 >= REGION_BOUNDARY;
    let constant = (a.step ^ b.step) & 8 == 0;
    interleaved && constant && (0..len).all(|j| (a.first[j] ^ b.first[j]) & 8 != 0)
}

/// Iterations before one that loads an undefined word.
fn defined(memory: &Memory, track: &Track, len: usize, range: (u32, u32), count: u32) -> u32 {
    let words = (range.1 - range.0) / 4 + 2;
    match memory.first_undefined(range.0, words) {
        Ok(None) => count,
        Ok(Some(address)) if (track.step as i32) > 0 => {
            // An iteration is good when its highest word lies below the address.
            let top = track.first[..len].iter().max().map_or(0, |&top| top + 7);
            match address.checked_sub(top + 1) {
                Some(room) => count.min(room / track.step + 1),
                None => 0,
            }
        }
        _ => 0,
    }
}

/// Run as many iterations as the checks allow, and say how many.
#[inline(always)]
pub fn run<V: Lanes>(lines: &[Line], count: u32, w: &mut Context, shared: &mut Shared) -> u32 {
    if count < ITERATIONS_MIN {
        return 0;
    }
    let matrix = &w.matrix;
    if matrix.acc_taint | matrix.partials_taint | matrix.results_taint != 0 {
        return 0;
    }
    let Some(body) = body(lines, w) else {
        return 0;
    };
    if w.a_taint & body.reads | w.m_taint & body.strides != 0 {
        return 0;
    }
    let start = untapack([w.m(body.pointers), w.m(body.pointers + 1)]);
    let tracks: [Track; 3] = std::array::from_fn(|i| Track::new(&body, i, start[i]));
    let Some(count) = allowed(&body, &tracks, count, shared.memory) else {
        return 0;
    };
    if count < ITERATIONS_MIN {
        return 0;
    }
    let Some(queue) = Queue::from::<V>(w) else {
        return 0;
    };
    let Some((wide, _)) = shared.coefficients.all_phases::<V>(weights(&body, w)) else {
        return 0;
    };
    let mut state = State {
        pairs: std::array::from_fn(|pair| match pair {
            SINK => 0,
            _ => w.a64(2 * pair as u8),
        }),
        acc: w.matrix.acc,
        results: w.matrix.results,
        queue,
        addresses: start,
        overflow: w.overflow(),
    };
    let bundles = &body.bundles[..body.len];
    let first = rows::first_phase(&body, start, &tracks, count);
    let rows = first.and_then(|first| bundles.first_chunk().map(|row| (row, first)));
    let n = count as usize;
    if body.op == MatrixOp::HalfV4 {
        match rows {
            Some((row, first)) => {
                state.iterate_rows::<V, 4>(row, first, n, wide, shared.memory, V::widen4);
            }
            None => state.iterate::<V, 4>(bundles, count, wide, shared.memory, V::widen4),
        }
    } else {
        let table = F8::from_format_bit(w.fp_nfmt & 2 != 0).table();
        let bytes = |x: u64| -> [f32; 8] {
            let mut values = [0.0; 8];
            for (i, value) in values.iter_mut().enumerate() {
                *value = table[(x >> (8 * i)) as usize & 0xff];
            }
            values
        };
        match rows {
            Some((row, first)) => {
                state.iterate_rows::<V, 8>(row, first, n, wide, shared.memory, bytes);
            }
            None => state.iterate::<V, 8>(bundles, count, wide, shared.memory, bytes),
        }
    }
    state.leave(&body, w);
    count
}

/// Format of the weights that a body multiplies by.
fn weights(body: &Body, w: &Context) -> Wide {
    match body.op {
        MatrixOp::HalfV4 => Wide::F16 { v4: true },
        _ => Wide::F8 {
            format: F8::from_format_bit(w.fp_nfmt & 1 != 0),
            scale: w.fp_scl,
        },
    }
}

/// Iterations that touch only memory that can be accessed and words that are defined.
fn allowed(body: &Body, tracks: &[Track; 3], count: u32, memory: &Memory) -> Option<u32> {
    let len = body.len;
    let second = body.bundles[..len].iter().any(|b| b.second_load);
    if second && !body.bundles[..len].iter().all(|b| b.second_load) {
        return None;
    }
    let left = tracks[0].range(len, count)?;
    let out = tracks[2].range(len, count)?;
    let mut good = defined(memory, &tracks[0], len, left, count);
    let mut fine = apart(len, (&tracks[0], left), (&tracks[2], out));
    if second {
        let partials = tracks[1].range(len, count)?;
        good = good.min(defined(memory, &tracks[1], len, partials, count));
        fine &= apart(len, (&tracks[0], left), (&tracks[1], partials));
        fine &= apart(len, (&tracks[1], partials), (&tracks[2], out));
    }
    fine.then_some(good)
}

/// Waiting partials and results as F16 codes.
struct Queue {
    partials: [u64; 4],
    partials_at: usize,
    results: [u64; 4],
    results_at: usize,
}

#[inline(always)]
fn four(values: &[f32; LANES], i: usize) -> [f32; 4] {
    [
        values[4 * i],
        values[4 * i + 1],
        values[4 * i + 2],
        values[4 * i + 3],
    ]
}

impl Queue {
    /// None when the waiting partials are not F16 numbers.
    #[inline(always)]
    fn from<V: Lanes>(w: &Context) -> Option<Queue> {
        let matrix = &w.matrix;
        let (mut partials, mut results) = ([0; 4], [0; 4]);
        let mut exact = matrix.partials_at.is_multiple_of(4) && matrix.results_at.is_multiple_of(4);
        for i in 0..4 {
            let values = four(&matrix.partials, i);
            partials[i] = V::narrow4(values, NanOnOverflow(false));
            let back = V::widen4(partials[i]);
            exact &= (0..4).all(|j| back[j].to_bits() == values[j].to_bits());
            results[i] = V::narrow4(four(&matrix.results, i), w.overflow());
        }
        exact.then_some(Queue {
            partials,
            partials_at: usize::from(matrix.partials_at) / 4,
            results,
            results_at: usize::from(matrix.results_at) / 4,
        })
    }
}

struct State {
    pairs: [u64; PAIRS],
    acc: [f32; LANES],
    /// Results as they left the accumulators.
    results: [f32; LANES],
    queue: Queue,
    addresses: [u32; 3],
    overflow: NanOnOverflow,
}

impl State {
    #[inline(always)]
    fn turn<V: Lanes>(&mut self) {
        self.results = self.acc;
        for i in 0..4 {
            self.queue.results[i] = V::narrow4(four(&self.acc, i), self.overflow);
            let waiting = V::widen4(self.queue.partials[(self.queue.partials_at + i) & 3]);
            self.acc[4 * i..4 * i + 4].copy_from_slice(&waiting);
        }
        self.queue.results_at = 0;
    }

    #[inline(always)]
    fn iterate<V: Lanes, const K: usize>(
        &mut self,
        bundles: &[Bundle],
        count: u32,
        wide: &[f32],
        memory: &mut Memory,
        operand: impl Fn(u64) -> [f32; K],
    ) {
        for _ in 0..count {
            for bundle in bundles {
                if bundle.phase == 0 {
                    self.turn::<V>();
                }
                let x = operand(self.pairs[bundle.left]);
                let rows = &wide[bundle.phase * K * LANES..][..K * LANES];
                let mut acc = self.acc;
                for k in 0..K {
                    for j in 0..LANES {
                        acc[j] += x[k] * rows[k * LANES + j];
                    }
                }
                self.acc = acc;
                let result = self.queue.results[self.queue.results_at];
                self.queue.results_at = (self.queue.results_at + 1) & 3;
                self.queue.partials[self.queue.partials_at] = self.pairs[bundle.partials];
                self.queue.partials_at = (self.queue.partials_at + 1) & 3;
                self.access(bundle, memory);
                self.pairs[bundle.result] = result;
            }
        }
    }

    #[inline(always)]
    fn access(&mut self, bundle: &Bundle, memory: &mut Memory) {
        let [a0, a1, a2] = self.addresses;
        let first = memory.load64_checked(a0);
        let second = if bundle.second_load {
            memory.load64_checked(a1)
        } else {
            0
        };
        memory.store64_checked(a2, self.pairs[bundle.stored]);
        self.pairs[bundle.loads[0]] = first;
        self.pairs[bundle.loads[1]] = second;
        for (address, by) in self.addresses.iter_mut().zip(bundle.by) {
            *address = address.wrapping_add(by);
        }
    }

    /// Put everything back.
    fn leave(self, body: &Body, w: &mut Context) {
        for (pair, value) in self.pairs[..ZERO_PAIR].iter().enumerate() {
            let register = 2 * pair as u8;
            if body.writes >> register & 1 != 0 {
                w.set_a64(register, *value, 0);
            }
        }
        let matrix = &mut w.matrix;
        matrix.acc = self.acc;
        matrix.results = self.results;
        matrix.results_at = 4 * self.queue.results_at as u8;
        matrix.partials_at = 4 * self.queue.partials_at as u8;
        for i in 0..4 {
            let values = widen4(self.queue.partials[i]);
            matrix.partials[4 * i..4 * i + 4].copy_from_slice(&values);
        }
        let packed = tapack(self.addresses);
        w.set_m_defined(body.pointers, packed[0]);
        w.set_m_defined(body.pointers + 1, packed[1]);
    }
}

#[cfg(test)]
mod tests;
