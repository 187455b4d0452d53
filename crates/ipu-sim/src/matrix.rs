//! Accumulators of a worker and the coefficient store of a tile, with the multiply itself.
//!
//! The accumulators are F32. A group of instructions starts at phase 0: then the finished
//! accumulators move to the queue of results and the queue of partials moves in. Every
//! instruction takes the next results off the one queue and appends its partials to the other,
//! so partials come in one row ahead and results leave one row behind.
//!
//! Accumulators are kept in lane order, the order in which partials and results travel; the
//! coefficients are permuted to it as they are widened.
//!
//! Numerics: fused multiply-adds in F32, ascending k. Products of two F16 or two F8 values are
//! exact in F32, so a multiply and an add give the fused result and vector code is exact.
//! Not here: which registers an instruction names (see `exec::matrix`).

use ipu_isa::float::F8;

use crate::numeric::{Lanes, widen};

/// Most accumulator lanes.
pub const LANES: usize = 16;
/// Entries of the coefficient store.
pub const ENTRIES: usize = 64;
/// Sign of an F32.
const SIGN: u32 = 1 << 31;

/// Accumulators and the two queues of one worker.
#[derive(Clone, Default)]
pub struct Matrix {
    pub acc: [f32; LANES],
    pub partials: [f32; LANES],
    pub results: [f32; LANES],
    pub acc_taint: u16,
    pub partials_taint: u16,
    pub results_taint: u16,
    pub partials_at: u8,
    pub results_at: u8,
}

impl Matrix {
    /// Clear the accumulators and the waiting partials.
    pub fn clear(&mut self) {
        self.acc = [0.0; LANES];
        self.partials = [0.0; LANES];
        self.acc_taint = 0;
        self.partials_taint = 0;
        self.partials_at = 0;
    }

    /// Phase 0: a new group of `lanes` accumulators begins.
    #[inline(always)]
    pub fn turn(&mut self, lanes: usize) {
        self.results = self.acc;
        self.results_taint = self.acc_taint;
        self.results_at = 0;
        let at = usize::from(self.partials_at) % lanes;
        if at == 0 {
            self.acc = self.partials;
            self.acc_taint = self.partials_taint;
        } else {
            for j in 0..lanes {
                self.acc[j] = self.partials[(at + j) % lanes];
            }
            let taint = u32::from(self.partials_taint) & ((1 << lanes) - 1);
            self.acc_taint = (taint >> at | taint << (lanes - at)) as u16;
        }
    }

    /// Append partials.
    #[inline(always)]
    pub fn push<const N: usize>(&mut self, lanes: usize, values: [f32; N], taint: u16) {
        let at = usize::from(self.partials_at) & (lanes - N);
        self.partials[at..at + N].copy_from_slice(&values);
        let mask = ((1u32 << N) - 1) as u16;
        self.partials_taint = self.partials_taint & !(mask << at) | (taint & mask) << at;
        self.partials_at = ((at + N) & (lanes - 1)) as u8;
    }

    /// Take the next results.
    #[inline(always)]
    pub fn pop<const N: usize>(&mut self, lanes: usize) -> ([f32; N], u16) {
        let at = usize::from(self.results_at) & (lanes - N);
        let values = self.results[at..at + N].try_into().expect("N lanes");
        let taint = self.results_taint >> at & ((1u32 << N) - 1) as u16;
        self.results_at = ((at + N) & (lanes - 1)) as u8;
        (values, taint)
    }

    /// `acc += sum over k of x[k] * coefficients[k]`, ascending k, products exact.
    #[inline(always)]
    pub fn accumulate_exact<const K: usize>(&mut self, x: [f32; K], wide: &[f32]) {
        let wide = &wide[..K * LANES];
        for (k, xk) in x.into_iter().enumerate() {
            let row: &[f32; LANES] = wide[k * LANES..][..LANES].try_into().expect("a row");
            for (acc, w) in self.acc.iter_mut().zip(row) {
                *acc += xk * w;
            }
        }
    }

    /// One fused multiply-add for each lane.
    #[inline(always)]
    pub fn accumulate_fused(&mut self, x: f32, wide: &[f32]) {
        for (acc, &w) in self.acc.iter_mut().zip(&wide[..LANES]) {
            *acc = x.mul_add(w, *acc);
        }
    }

    /// Taint that a multiply leaves behind.
    #[inline(always)]
    pub fn taint_by(&mut self, x_tainted: bool, coefficients: u16) {
        self.acc_taint |= if x_tainted { u16::MAX } else { coefficients };
    }
}

/// How coefficients are read by a matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wide {
    /// Four F16 for each entry and phase; 16 outputs in v4 order or 8 in order.
    F16 { v4: bool },
    /// Eight F8 values times two to the scale.
    F8 { format: F8, scale: i32 },
    /// Two F32: phases 2q and 2q + 1.
    F32 { v2: bool },
}

impl Wide {
    const fn k(self) -> usize {
        match self {
            Wide::F16 { .. } => 4,
            Wide::F8 { .. } => 8,
            Wide::F32 { .. } => 1,
        }
    }

    /// Output channel of a lane.
    const fn channel(self, lane: usize) -> usize {
        match self {
            Wide::F16 { v4: true } | Wide::F8 { .. } => {
                let (phase, i) = (lane / 4, lane % 4);
                2 * phase + i % 2 + 8 * (i / 2)
            }
            Wide::F32 { v2: true } => {
                let (phase, i) = (lane / 2, lane % 2);
                2 * (phase / 2) + i + 8 * (phase % 2)
            }
            _ => lane,
        }
    }
}

/// The coefficient store, entry = 4 * channel + phase.
#[derive(Clone)]
pub struct Coefficients {
    entries: [u64; ENTRIES],
    /// Bit i: entry i is undefined.
    taint: u64,
    wide: Vec<f32>,
    wide_taint: [u16; 8],
    /// Whether all widened coefficients are known to be finite.
    finite: bool,
    state: Option<Wide>,
}

/// Byte i of word j becomes byte j of word i.
#[inline(always)]
fn transpose(mut words: [u64; 8]) -> [u64; 8] {
    let masks = [
        0x0000_0000_ffff_ffff,
        0x0000_ffff_0000_ffff,
        0x00ff_00ff_00ff_00ff,
    ];
    for (distance, mask) in [4, 2, 1].into_iter().zip(masks) {
        for i in (0..8).filter(|i| i & distance == 0) {
            let (a, b) = (words[i], words[i + distance]);
            words[i] = a & mask | (b & mask) << (8 * distance);
            words[i + distance] = a >> (8 * distance) & mask | b & !mask;
        }
    }
    words
}

impl Default for Coefficients {
    fn default() -> Self {
        Coefficients {
            entries: [0; ENTRIES],
            taint: 0,
            wide: vec![0.0; 8 * 4 * LANES],
            wide_taint: [0; 8],
            finite: false,
            state: None,
        }
    }
}

impl Coefficients {
    pub fn set(&mut self, entry: u8, value: u64, tainted: bool) {
        let entry = usize::from(entry) % ENTRIES;
        self.entries[entry] = value;
        self.taint = self.taint & !(1 << entry) | u64::from(tainted) << entry;
        self.state = None;
    }

    /// Whether entries and their definedness are the same.
    #[cfg(test)]
    pub(crate) fn same_entries(&self, other: &Coefficients) -> bool {
        (self.entries, self.taint) == (other.entries, other.taint)
    }

    /// Two entries that follow one another, both defined.
    #[inline(always)]
    pub fn set_pair(&mut self, entry: u8, pair: [u64; 2]) {
        self.set(entry, pair[0], false);
        self.set(entry.wrapping_add(1), pair[1], false);
    }

    pub fn clear(&mut self) {
        self.entries = [0; ENTRIES];
        self.taint = 0;
        self.state = None;
    }

    /// The widened coefficients of a phase, `[k][lane]`, and the lanes that are tainted.
    #[inline(always)]
    pub fn phase(&mut self, kind: Wide, phase: usize) -> (&[f32], u16) {
        if self.state != Some(kind) {
            self.widen(kind);
        }
        let phase = match kind {
            Wide::F32 { .. } => phase & 7,
            _ => phase & 3,
        };
        let row = kind.k() * LANES;
        (&self.wide[phase * row..][..row], self.wide_taint[phase])
    }

    /// The widened coefficients of all phases, `[phase][k][lane]`, when all are defined, and
    /// whether all are finite.
    #[inline(always)]
    pub fn all_phases<V: Lanes>(&mut self, kind: Wide) -> Option<(&[f32], bool)> {
        if self.taint != 0 {
            return None;
        }
        if self.state != Some(kind) {
            match kind {
                Wide::F8 { format, scale } => self.widen_bytes::<V>(format, scale),
                Wide::F16 { v4: true } => self.widen_halves::<V>(),
                _ => self.widen(kind),
            }
            self.wide_taint = [0; 8];
            self.state = Some(kind);
            let used = &self.wide[..4 * kind.k() * LANES];
            let most = used
                .iter()
                .fold(0, |most, x| (x.to_bits() & !SIGN).max(most));
            self.finite = most < f32::INFINITY.to_bits();
        }
        Some((&self.wide, self.finite))
    }

    #[inline(always)]
    fn widen_bytes<V: Lanes>(&mut self, format: F8, scale: i32) {
        let power = ipu_isa::float::pow2(scale) as f32;
        let kind = Wide::F8 { format, scale };
        let (rows, _) = self.wide.as_chunks_mut::<LANES>();
        for (phase, rows) in rows.chunks_exact_mut(8).take(4).enumerate() {
            for half in 0..2 {
                let entry = |i: usize| self.entries[4 * kind.channel(8 * half + i) + phase];
                let columns = transpose(std::array::from_fn(entry));
                for (row, codes) in rows.iter_mut().zip(columns) {
                    let wide = V::widen8(codes, format).map(|x| x * power);
                    row[8 * half..][..8].copy_from_slice(&wide);
                }
            }
        }
    }

    #[inline(always)]
    fn widen_halves<V: Lanes>(&mut self) {
        let (rows, _) = self.wide.as_chunks_mut::<LANES>();
        for (phase, rows) in rows.chunks_exact_mut(4).take(4).enumerate() {
            for lane in 0..LANES {
                let channel = (Wide::F16 { v4: true }).channel(lane);
                let values = V::widen4(self.entries[4 * channel + phase]);
                for (row, value) in rows.iter_mut().zip(values) {
                    row[lane] = value;
                }
            }
        }
    }

    #[cold]
    fn widen(&mut self, kind: Wide) {
        self.finite = false;
        let phases = if matches!(kind, Wide::F32 { .. }) {
            8
        } else {
            4
        };
        self.wide_taint = [0; 8];
        for phase in 0..phases {
            for lane in 0..LANES {
                let channel = kind.channel(lane);
                let entry = match kind {
                    Wide::F32 { .. } => 4 * channel + phase / 2,
                    _ => 4 * channel + phase,
                };
                let bits = self.entries[entry];
                let tainted = self.taint >> entry & 1 != 0;
                self.wide_taint[phase] |= u16::from(tainted) << lane;
                let at = phase * kind.k() * LANES + lane;
                match kind {
                    Wide::F16 { .. } => {
                        for k in 0..4 {
                            self.wide[at + k * LANES] = widen((bits >> (16 * k)) as u16);
                        }
                    }
                    Wide::F8 { format, scale } => {
                        let power = ipu_isa::float::pow2(scale) as f32;
                        let table = format.table();
                        let column = &mut self.wide[at..at + 7 * LANES + 1];
                        for (k, code) in bits.to_le_bytes().into_iter().enumerate() {
                            column[k * LANES] = table[usize::from(code)] * power;
                        }
                    }
                    Wide::F32 { .. } => {
                        self.wide[at] = f32::from_bits((bits >> (32 * (phase % 2))) as u32);
                    }
                }
            }
        }
        self.state = Some(kind);
    }
}
