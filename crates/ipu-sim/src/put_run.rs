//! Runs of coefficient puts: a panel of weights as one copy.
//!
//! Input: the lines from a put of 16 bytes on. Output: the coefficients, the load pointer and the
//! clock after all puts that follow one another, and their number.
//! Invariants: the same as one put after the other leaves; where a put would fault, read an
//! undefined word or wait for a worker, nothing is done.
//! Not here: a put by itself (see `supervisor`).

use ipu_target::issue;
use ipu_target::memory::{REGION_BOUNDARY, SRAM_BASE, SRAM_BYTES};

use crate::code::Line;
use crate::op::Op;
use crate::tile::Tile;

/// Most puts that are done at once.
pub(crate) const PUTS_MAX: usize = 32;

impl Tile {
    /// Do the puts at the beginning of the lines, but no more than so many; how many those are.
    pub(crate) fn put_run(&mut self, lines: &[Line], most: usize) -> usize {
        let mut run = 0;
        for line in &lines[..most.min(lines.len())] {
            if !matches!(line.main.op, Op::PutCoefficients128) || line.reads != 0 {
                break;
            }
            run += 1;
        }
        let from = self.control.coefficient_load;
        let bytes = 16 * run as u32;
        let end = SRAM_BASE + SRAM_BYTES;
        let within = from >= REGION_BOUNDARY && from <= end && bytes <= end - from;
        if !within || !from.is_multiple_of(16) || self.live_end > self.time {
            return 0;
        }
        if !matches!(self.memory.first_undefined(from, bytes / 4), Ok(None)) {
            return 0;
        }
        let Ok(words) = self.memory.words(from, bytes / 4) else {
            return 0;
        };
        let (puts, _) = words.as_chunks::<4>();
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        for (line, &[a, b, c, d]) in lines.iter().zip(puts) {
            let pair = [word(a, b), word(c, d)];
            self.coefficients.set_pair(line.main.imm as u8, pair);
        }
        let first = self.time.max(self.control.coefficient_load_ready);
        self.time = first + run as u64 * issue::COEFFICIENT_PUT;
        self.control.coefficient_load = from + bytes;
        run
    }
}
