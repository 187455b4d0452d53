//! Matrix products: the launch of a worker as one native computation.
//!
//! Code that clears the accumulators, multiplies rows in a loop and exits is recognised once for
//! each block. When a worker comes to it, addresses, ports and definedness are checked once for
//! all accesses; what the checks do not allow is left to the interpreter.
//! Input: a plan, registers, memory, coefficients. Output: the same after the launch, and its
//! issues.
//! Invariants: registers, memory, accumulators and queues are, bit for bit, those that the
//! interpreter would leave; a test runs both. Each channel is summed in ascending k by fused
//! multiply-adds.
//! Not here: faults (the interpreter raises them), how plans are found (see `plan`).

mod plan;
mod trace;

use ipu_isa::float::F8;
use ipu_target::amp::tapack;
use ipu_target::memory::{REGION_BOUNDARY, SRAM_BASE, SRAM_BYTES, element_of};

use crate::context::Context;
use crate::exec::{MatrixOp, PaceOp, Shared, pace_increments};
use crate::matrix::{LANES, Wide};
use crate::memory::Memory;
use crate::numeric::{Lanes, NanOnOverflow, TOGETHER_MAX};

use plan::Address;
use plan::{Last, ROW, Start, Stream, Tail};
pub(crate) use plan::{Plan, may_begin, plan};

/// Largest count of a repeat.
const REPEAT_MAX: u32 = 0xffff;
/// What the clear register must hold: accumulators and nothing else.
const CLEAR_ACCUMULATORS: u32 = 8;
/// Bytes of a row.
const ROW_BYTES: u32 = 8 * ROW as u32;

/// A word of eight bytes and a taint bit for each half.
type Tainted = (u64, u32);

/// Operands behind the rows, as they were before anything was stored.
#[derive(Default)]
struct Behind {
    partials: [Tainted; ROW],
    waiting: [Tainted; ROW],
    /// Words that registers hold at the end.
    loaded: [u32; 14],
    taint: u32,
}

/// A launch whose accesses are all allowed.
struct Bounds {
    rows: usize,
    /// First address of each stream.
    starts: [u32; 3],
    /// Bytes from row to row of each.
    strides: [u32; 3],
}

impl Bounds {
    #[inline(always)]
    fn row(&self, stream: Stream, row: usize) -> u32 {
        self.starts[stream as usize] + self.strides[stream as usize] * row as u32
    }
}

fn sum(address: Address, w: &Context) -> u32 {
    let mut sum = address.offset;
    let mut registers = address.registers;
    while registers != 0 {
        sum = sum.wrapping_add(w.m[registers.trailing_zeros() as usize]);
        registers &= registers - 1;
    }
    sum
}

/// Run the launch from the line of the plan to its exit: the issues, if the checks allow it.
#[inline(always)]
pub fn run<V: Lanes>(plan: &Plan, w: &mut Context, shared: &mut Shared) -> Option<u64> {
    let bounds = bounds(plan, w, shared.memory)?;
    let kind = match plan.op {
        MatrixOp::HalfV4 => Wide::F16 { v4: true },
        _ => Wide::F8 {
            format: F8::from_format_bit(w.fp_nfmt & 1 != 0),
            scale: w.fp_scl,
        },
    };
    let (wide, finite) = shared.coefficients.all_phases::<V>(kind)?;
    let behind = behind(plan, &bounds, shared.memory);
    // All rows are stored.
    let stored = 2 * ROW * bounds.rows;
    shared.memory.define_checked(bounds.starts[2], stored);
    let count = bounds.rows as u64 - u64::from(plan.outside);
    let rows = Rows {
        finite,
        accumulate: plan.accumulate,
        bounds: &bounds,
        behind: &behind,
        overflow: w.overflow(),
    };
    let (results, acc) = if plan.op == MatrixOp::HalfV4 {
        let (wide, _) = wide.as_chunks::<LANES>();
        let wide: &[[f32; LANES]; 16] = wide.first_chunk().expect("rows of four phases");
        rows.compute::<V, 16>(wide, shared.memory, V::widen16)
    } else {
        let format = F8::from_format_bit(w.fp_nfmt & 2 != 0);
        let (wide, _) = wide.as_chunks::<LANES>();
        let wide: &[[f32; LANES]; 32] = wide.first_chunk().expect("rows of four phases");
        rows.compute::<V, 32>(wide, shared.memory, |row| V::widen32(row, format))
    };
    leave::<V>(plan, &bounds, &behind, results, acc, w);
    Some(plan.issues + plan.body_issues * count)
}

/// Check everything that could make an instruction fault or undefined words count.
#[inline(always)]
fn bounds(plan: &Plan, w: &Context, memory: &Memory) -> Option<Bounds> {
    let clear = usize::from(plan.clear);
    let tainted = w.m_taint & plan.reads != 0 || w.a_taint >> clear & 1 != 0;
    if tainted || w.a[clear] != CLEAR_ACCUMULATORS {
        return None;
    }
    let count = sum(plan.count, w);
    if count > REPEAT_MAX {
        return None;
    }
    let rows = count + plan.outside;
    let words = ROW as u32 * rows;
    let strides = strides(plan, w)?;
    let start_of = |start: &Start, stride: u32| {
        sum(start.address, w).wrapping_sub(stride.wrapping_mul(start.rows as u32))
    };
    let (mut starts, mut ends) = ([0; 3], [0; 3]);
    for (i, all) in plan.starts.iter().enumerate() {
        let Some((first, others)) = all.split_first() else {
            continue;
        };
        let start = start_of(first, strides[i]);
        if others
            .iter()
            .any(|other| start_of(other, strides[i]) != start)
        {
            return None;
        }
        let offset = start.wrapping_sub(SRAM_BASE);
        let bytes = strides[i] * (rows - 1) + 8 * (ROW as u32 + plan.beyond[i] as u32);
        if offset > SRAM_BYTES || bytes > SRAM_BYTES - offset || !offset.is_multiple_of(8) {
            return None;
        }
        starts[i] = start;
        ends[i] = start + bytes;
    }
    for &(stream, word) in &plan.wide {
        let at = starts[stream as usize].wrapping_add((8 * word) as u32);
        if at < REGION_BOUNDARY || !at.is_multiple_of(16) {
            return None;
        }
    }
    let [left, partials, out] = starts;
    let [left_end, partials_end, out_end] = ends;
    let apart = left_end <= out || out_end <= left;
    let in_place = partials == out || partials_end <= out || out_end <= partials;
    if !apart || plan.accumulate && !in_place {
        return None;
    }
    for &(a, b, odd) in &plan.together {
        let (a, b) = (a as usize, b as usize);
        let elements = |i: usize| (element_of(starts[i]), element_of(ends[i] - 1));
        let (a_range, b_range) = (elements(a), elements(b));
        let separate = a_range.1 < b_range.0 || b_range.1 < a_range.0;
        let interleaved = starts[a].min(starts[b]) >= REGION_BOUNDARY;
        let other_half = ((starts[a] ^ starts[b]) & 8 != 0) != odd;
        if !(separate || interleaved && other_half) {
            return None;
        }
    }
    let mut left_rows = (0..rows).map(|row| left + strides[0] * row);
    let defined = |start: u32| matches!(memory.first_undefined(start, 2 * words), Ok(None));
    let defined = left_rows.all(|row| memory.row_is_defined_checked(row))
        && (!plan.accumulate || defined(partials));
    defined.then_some(Bounds {
        rows: rows as usize,
        starts,
        strides,
    })
}

/// Bytes from row to row of each stream: those of the left operand do not overlap, and from row
/// to row the ports stay the same.
#[inline(always)]
fn strides(plan: &Plan, w: &Context) -> Option<[u32; 3]> {
    let stride = &plan.stride;
    let [_, _, next] = pace_increments(PaceOp::Store, stride.selection, sum(stride.address, w));
    let bytes = next.wrapping_add(8 * (ROW as u32 - 1));
    let allowed = bytes.is_multiple_of(16) && (ROW_BYTES..0x10000).contains(&bytes);
    allowed.then_some([bytes, ROW_BYTES, ROW_BYTES])
}

/// Load the words behind the rows.
#[inline(always)]
fn behind(plan: &Plan, bounds: &Bounds, memory: &Memory) -> Behind {
    let load = |stream: Stream, word: i32| -> Tainted {
        let word = (ROW * bounds.rows).wrapping_add_signed(word as isize);
        let at = bounds.row(stream, word / ROW) + 8 * (word % ROW) as u32;
        memory.load64(at).expect("the stream is in memory")
    };
    let tail = |tail: &Tail| tail.map(|word| word.map_or((0, 0), |(s, word)| load(s, word)));
    let mut behind = Behind {
        partials: tail(&plan.partials),
        waiting: tail(&plan.waiting),
        ..Behind::default()
    };
    for (register, last) in &plan.a {
        if let Last::Load { stream, word, half } = *last {
            let (value, taint) = load(stream, word);
            behind.loaded[usize::from(*register)] = (value >> (32 * half)) as u32;
            behind.taint |= (taint >> half & 1) << register;
        }
    }
    behind
}

struct Rows<'a> {
    accumulate: bool,
    /// Whether all coefficients are finite.
    finite: bool,
    bounds: &'a Bounds,
    behind: &'a Behind,
    overflow: NanOnOverflow,
}

impl Rows<'_> {
    /// Compute all rows and what is left in the accumulators: the last row and that.
    #[inline(always)]
    fn compute<V: Lanes, const ALL: usize>(
        &self,
        wide: &[[f32; LANES]; ALL],
        memory: &mut Memory,
        operand: impl Fn([u64; ROW]) -> [f32; ALL],
    ) -> ([f32; LANES], [f32; LANES]) {
        const { assert!(V::TOGETHER <= TOGETHER_MAX) };
        let (mut row, end) = (0, self.bounds.rows);
        loop {
            let last = match (end - row).min(V::TOGETHER) {
                1 => self.group::<V, ALL, 1>(row, wide, memory, &operand),
                2 => self.group::<V, ALL, 2>(row, wide, memory, &operand),
                3 => self.group::<V, ALL, 3>(row, wide, memory, &operand),
                4 => self.group::<V, ALL, 4>(row, wide, memory, &operand),
                5 => self.group::<V, ALL, 5>(row, wide, memory, &operand),
                6 => self.group::<V, ALL, 6>(row, wide, memory, &operand),
                7 => self.group::<V, ALL, 7>(row, wide, memory, &operand),
                _ => self.group::<V, ALL, TOGETHER_MAX>(row, wide, memory, &operand),
            };
            row += V::TOGETHER;
            if row >= end {
                return (last, self.behind::<V, ALL>(wide));
            }
        }
    }

    /// The accumulators of the group behind the rows, whose left operand is zero. Products of
    /// zero and finite values change no sum but a negative zero.
    #[inline(always)]
    fn behind<V: Lanes, const ALL: usize>(&self, wide: &[[f32; LANES]; ALL]) -> [f32; LANES] {
        let mut acc = [V::widen16(self.behind.partials.map(|(word, _)| word))];
        let negative_zero = acc[0].iter().any(|x| x.to_bits() == (-0.0f32).to_bits());
        if !self.finite || negative_zero {
            V::accumulate::<ALL, 1>(&mut acc, &[[0.0; ALL]], wide);
        }
        acc[0]
    }

    /// `G` rows from one on; the last of them.
    #[inline(always)]
    fn group<V: Lanes, const ALL: usize, const G: usize>(
        &self,
        row: usize,
        wide: &[[f32; LANES]; ALL],
        memory: &mut Memory,
        operand: &impl Fn([u64; ROW]) -> [f32; ALL],
    ) -> [f32; LANES] {
        let at = |stream, g| self.bounds.row(stream, row + g);
        let mut x = [[0.0; ALL]; G];
        let mut acc = [[0.0; LANES]; G];
        for g in 0..G {
            x[g] = operand(memory.row_checked(at(Stream::Left, g)));
            if self.accumulate {
                acc[g] = V::widen16(memory.row_checked(at(Stream::Partials, g)));
            }
        }
        V::accumulate::<ALL, G>(&mut acc, &x, wide);
        for (g, acc) in acc.iter().enumerate() {
            memory.put_row_checked(at(Stream::Out, g), V::narrow16(acc, self.overflow));
        }
        acc[G - 1]
    }
}

/// Put everything in its place.
#[inline(always)]
fn leave<V: Lanes>(
    plan: &Plan,
    bounds: &Bounds,
    behind: &Behind,
    results: [f32; LANES],
    acc: [f32; LANES],
    w: &mut Context,
) {
    let codes = V::narrow16(&results, w.overflow());
    for (register, last) in &plan.a {
        let at = usize::from(*register);
        let taint = behind.taint >> register & 1;
        w.a[at] = match *last {
            Last::Constant(value) => value,
            Last::Load { .. } => behind.loaded[at],
            Last::Result { word, half } => (codes[usize::from(word)] >> (32 * half)) as u32,
        };
        w.a_taint = w.a_taint & !(1 << register) | taint << register;
    }
    let matrix = &mut w.matrix;
    matrix.acc = acc;
    matrix.results = results;
    matrix.partials = V::widen16(behind.waiting.map(|(word, _)| word));
    (matrix.results_taint, matrix.results_at, matrix.partials_at) = (0, 0, 0);
    (matrix.acc_taint, matrix.partials_taint) = (lanes(&behind.partials), lanes(&behind.waiting));
    let count = bounds.rows as u32 - plan.outside;
    let packed = &plan.packed;
    let pointers = tapack(std::array::from_fn(|i| {
        let (outside, inside) = (packed.outside[i], packed.inside[i]);
        let words = (outside.words as u32).wrapping_add(inside.words as u32 * count);
        let rows = outside.rows as u32 + inside.rows as u32 * count;
        let by = words
            .wrapping_mul(8)
            .wrapping_add(rows.wrapping_mul(bounds.strides[0]));
        sum(packed.start[i], w).wrapping_add(by)
    }));
    // All sums are of the registers before.
    let mut values = [0; 15];
    for (value, (_, address)) in values.iter_mut().zip(&plan.m) {
        *value = sum(*address, w);
    }
    for (value, (register, _)) in values.iter().zip(&plan.m) {
        w.set_m_defined(*register, *value);
    }
    w.set_m_defined(packed.register, pointers[0]);
    w.set_m_defined(packed.register + 1, pointers[1]);
}

/// Taint of sixteen lanes from that of the words that hold them.
fn lanes(words: &[Tainted; ROW]) -> u16 {
    let lanes = |(i, (_, taint)): (usize, &Tainted)| {
        let low = if taint & 1 != 0 { 3 } else { 0 };
        let high = if taint & 2 != 0 { 12 } else { 0 };
        ((low | high) as u16) << (4 * i)
    };
    words.iter().enumerate().map(lanes).fold(0, |a, b| a | b)
}

#[cfg(test)]
mod tests;
