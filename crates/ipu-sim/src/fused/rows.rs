//! Rows of a matrix product, several at once.
//!
//! A body of one row has four bundles, one for each phase. Its registers only carry words between
//! memory and the matrix unit, so a run of rows can be done in three steps: carry the loaded words
//! to the operands, compute the rows, carry the results to the stores. Rows do not depend on each
//! other, so the second step works on four of them and keeps the processor's multipliers busy.
//! Invariants: as in `fused`; each channel of a row is summed in ascending k by fused
//! multiply-adds, as everywhere.
//! Not here: bodies of other lengths, and what is checked before (see `fused`).

use super::{Body, Bundle, SINK, State, Track, four};
use crate::matrix::LANES;
use crate::memory::Memory;
use crate::numeric::Lanes;

/// Iterations in one run of the three steps.
const CHUNK: usize = 32;
/// Bundles, that is phases, of a row.
const PHASES: usize = 4;
/// Rows computed at once.
const TOGETHER: usize = 4;

/// Words between the steps, by bundle.
pub(super) struct Words {
    left: [u64; PHASES * CHUNK],
    /// The four that wait at the beginning, then one for each bundle.
    partials: [u64; PHASES * (CHUNK + 1)],
    results: [u64; PHASES * (CHUNK + 1)],
}

impl Words {
    pub(super) fn new() -> Words {
        Words {
            left: [0; PHASES * CHUNK],
            partials: [0; PHASES * (CHUNK + 1)],
            results: [0; PHASES * (CHUNK + 1)],
        }
    }
}

/// The bundle of phase 0, when the body is one row whose words can be carried in steps.
pub(super) fn first_phase(
    body: &Body,
    start: [u32; 3],
    tracks: &[Track; 3],
    count: u32,
) -> Option<usize> {
    let bundles = &body.bundles[..body.len];
    let in_turn = |i: usize| bundles[i].phase == (bundles[0].phase + i) % PHASES;
    if body.len != PHASES || !(0..PHASES).all(in_turn) {
        return None;
    }
    let bit = |pair: usize| if pair == SINK { 0 } else { 1u32 << pair };
    let (mut results, mut inputs, mut loads, mut stored) = (0, 0, 0, 0);
    for bundle in bundles {
        results |= bit(bundle.result);
        loads |= bit(bundle.loads[0]);
        if bundle.second_load {
            loads |= bit(bundle.loads[1]);
        }
        inputs |= bit(bundle.left) | bit(bundle.partials);
        stored |= bit(bundle.stored);
    }
    if results & (inputs | loads) != 0 || stored & loads != 0 {
        return None;
    }
    // No word is loaded after it was stored.
    let out = tracks[2].range(body.len, count)?;
    let before = |which: usize| {
        let Some(range) = tracks[which].range(body.len, count) else {
            return false;
        };
        let disjoint = range.1 + 8 <= out.0 || out.1 + 8 <= range.0;
        let forward = |b: &Bundle| b.by[which] == b.by[2] && b.by[2] as i32 > 0;
        disjoint || start[which] >= start[2] && bundles.iter().all(forward)
    };
    let second = bundles[0].second_load;
    (before(0) && (!second || before(1))).then(|| (PHASES - bundles[0].phase) % PHASES)
}

impl State {
    /// As `iterate`, where [`first_phase`] found the bundle of phase 0.
    #[inline(always)]
    pub(super) fn iterate_rows<V: Lanes, const K: usize>(
        &mut self,
        bundles: &[Bundle; PHASES],
        first: usize,
        mut count: usize,
        wide: &[f32],
        memory: &mut Memory,
        operand: impl Fn(u64) -> [f32; K],
    ) {
        let mut words = Words::new();
        while count > 0 {
            let now = count.min(CHUNK);
            self.gather(bundles, now, memory, &mut words);
            self.compute::<V, K>(first, now, wide, &mut words, &operand);
            self.scatter(bundles, now, memory, &words);
            count -= now;
        }
    }

    /// Load all words and note which of them each bundle multiplies and queues.
    #[inline(always)]
    fn gather(
        &mut self,
        bundles: &[Bundle; PHASES],
        count: usize,
        memory: &Memory,
        words: &mut Words,
    ) {
        for i in 0..PHASES {
            words.partials[i] = self.queue.partials[(self.queue.partials_at + i) & 3];
        }
        let [mut a0, mut a1, _] = self.addresses;
        let left = words.left.chunks_exact_mut(PHASES);
        let partials = words.partials[PHASES..].chunks_exact_mut(PHASES);
        for (left, partials) in left.zip(partials).take(count) {
            for (i, bundle) in bundles.iter().enumerate() {
                left[i] = self.pairs[bundle.left];
                partials[i] = self.pairs[bundle.partials];
                self.pairs[bundle.loads[0]] = memory.load64_checked(a0);
                if bundle.second_load {
                    self.pairs[bundle.loads[1]] = memory.load64_checked(a1);
                }
                a0 = a0.wrapping_add(bundle.by[0]);
                a1 = a1.wrapping_add(bundle.by[1]);
            }
        }
        self.addresses[0] = a0;
        self.addresses[1] = a1;
        for i in 0..PHASES {
            let last = words.partials[PHASES * count + i];
            self.queue.partials[(self.queue.partials_at + i) & 3] = last;
        }
    }

    /// Compute what every bundle takes off the queue of results.
    #[inline(always)]
    fn compute<V: Lanes, const K: usize>(
        &mut self,
        first: usize,
        count: usize,
        wide: &[f32],
        words: &mut Words,
        operand: &impl Fn(u64) -> [f32; K],
    ) {
        let wide: &[f32] = &wide[..PHASES * K * LANES];
        for (n, slot) in words.results[..first].iter_mut().enumerate() {
            *slot = self.queue.results[(self.queue.results_at + n) & 3];
        }
        // The row that the first bundles finish.
        let mut acc = [self.acc];
        for n in 0..first {
            let rows = weights::<K>(wide, PHASES - first + n);
            V::accumulate::<K, 1>(&mut acc, &[operand(words.left[n])], rows);
        }
        let mut finished = acc[0];
        let whole = count - 1;
        let mut row = 0;
        while row < whole {
            let n = first + PHASES * row;
            if row + TOGETHER <= whole {
                let acc = self.group::<V, K, TOGETHER>(n, wide, words, operand);
                self.finish::<V, TOGETHER>(n, &mut finished, acc, words);
                row += TOGETHER;
            } else {
                let acc = self.group::<V, K, 1>(n, wide, words, operand);
                self.finish::<V, 1>(n, &mut finished, acc, words);
                row += 1;
            }
        }
        // The row that the last bundles begin.
        let n = first + PHASES * whole;
        self.results = finished;
        for i in 0..PHASES {
            self.queue.results[i] = V::narrow4(four(&finished, i), self.overflow);
            words.results[n + i] = self.queue.results[i];
        }
        self.queue.results_at = (PHASES - first) & 3;
        let mut acc = [waiting::<V>(n, words)];
        for phase in 0..PHASES - first {
            let rows = weights::<K>(wide, phase);
            V::accumulate::<K, 1>(&mut acc, &[operand(words.left[n + phase])], rows);
        }
        self.acc = acc[0];
    }

    /// `G` rows, of which the first begins at bundle `n`.
    #[inline(always)]
    fn group<V: Lanes, const K: usize, const G: usize>(
        &self,
        n: usize,
        wide: &[f32],
        words: &Words,
        operand: &impl Fn(u64) -> [f32; K],
    ) -> [[f32; LANES]; G] {
        let mut acc: [[f32; LANES]; G] =
            std::array::from_fn(|g| waiting::<V>(n + PHASES * g, words));
        let left = &words.left[n..n + PHASES * G];
        for phase in 0..PHASES {
            let x = std::array::from_fn(|g| operand(left[PHASES * g + phase]));
            V::accumulate::<K, G>(&mut acc, &x, weights::<K>(wide, phase));
        }
        acc
    }

    /// Results leave one row behind.
    #[inline(always)]
    fn finish<V: Lanes, const G: usize>(
        &self,
        n: usize,
        finished: &mut [f32; LANES],
        acc: [[f32; LANES]; G],
        words: &mut Words,
    ) {
        for (g, acc) in acc.into_iter().enumerate() {
            for i in 0..PHASES {
                words.results[n + PHASES * g + i] = V::narrow4(four(finished, i), self.overflow);
            }
            *finished = acc;
        }
    }

    /// Store what every bundle stores.
    #[inline(always)]
    fn scatter(
        &mut self,
        bundles: &[Bundle; PHASES],
        count: usize,
        memory: &mut Memory,
        words: &Words,
    ) {
        let mut at = self.addresses[2];
        if bundles.iter().all(|bundle| bundle.by[2] == 8) {
            memory.define_checked(at, 2 * PHASES * count);
            for results in words.results.chunks_exact(PHASES).take(count) {
                for (i, (bundle, &result)) in bundles.iter().zip(results).enumerate() {
                    memory.put64_checked(at + 8 * i as u32, self.pairs[bundle.stored]);
                    self.pairs[bundle.result] = result;
                }
                at = at.wrapping_add(8 * PHASES as u32);
            }
            self.addresses[2] = at;
            return;
        }
        for results in words.results.chunks_exact(PHASES).take(count) {
            for (bundle, &result) in bundles.iter().zip(results) {
                memory.store64_checked(at, self.pairs[bundle.stored]);
                self.pairs[bundle.result] = result;
                at = at.wrapping_add(bundle.by[2]);
            }
        }
        self.addresses[2] = at;
    }
}

/// The partials that wait when bundle `n` begins a row.
#[inline(always)]
fn waiting<V: Lanes>(n: usize, words: &Words) -> [f32; LANES] {
    let mut acc = [0.0; LANES];
    for (acc, &word) in acc.chunks_exact_mut(4).zip(&words.partials[n..n + PHASES]) {
        acc.copy_from_slice(&V::widen4(word));
    }
    acc
}

/// The widened weights of a phase.
#[inline(always)]
fn weights<const K: usize>(wide: &[f32], phase: usize) -> &[[f32; LANES]; K] {
    let (rows, _) = wide[phase * K * LANES..].as_chunks::<LANES>();
    rows.first_chunk().expect("rows of a phase")
}
