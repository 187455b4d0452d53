//! Runs of coefficient puts: a panel of weights as one copy.
//!
//! Input: the lines from a put of 16 bytes on. Output: the coefficients, the load pointer and the
//! clock after all puts that follow one another, and their number.
//! Invariants: the same as one put after the other leaves; where a put would fault, read an
//! undefined word or wait for a worker, nothing is done.
//! Not here: a put by itself (see `supervisor`).

use ipu_target::issue;
use ipu_target::memory::{REGION_BOUNDARY, SRAM_BASE, SRAM_BYTES};

use crate::code::{Block, Line};
use crate::op::Op;
use crate::tile::Tile;

/// Most puts that are done at once.
const PUTS_MAX: usize = 32;

impl Tile {
    /// Whether the line was a put that was done with those that follow it.
    #[inline(always)]
    pub(crate) fn puts(
        &mut self,
        line: &Line,
        lines: &[Line],
        block: &Block,
        budget: &mut u64,
    ) -> bool {
        if !matches!(line.main.op, Op::PutCoefficients128) || !self.fuse_copies {
            return false;
        }
        let first = ((self.pc - block.address) / 4) as usize;
        let most = (*budget - 1).min(PUTS_MAX as u64) as usize;
        let puts = self.put_run(&lines[first..], most);
        *budget -= puts as u64;
        self.pc += 4 * puts as u32;
        puts != 0
    }

    /// Do the puts at the beginning of the lines, but no more than so many; how many those are.
    fn put_run(&mut self, lines: &[Line], most: usize) -> usize {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ipu_isa::Mode;
    use ipu_isa::text::assemble_statement;
    use ipu_package::SegmentKind;

    use super::*;
    use crate::code::CodeMap;
    use crate::supervisor::RETURN_ADDRESS;

    const CODE: u32 = 0x5c000;
    const FROM: u32 = 0x80000;

    fn tile(puts: u32, from: u32, undefined: u32) -> Tile {
        let mut text = vec!["put $CCCSLOAD, $m1".to_owned()];
        text.extend((0..puts).map(|i| format!("ld128putcs {}", 2 * i % 64)));
        text.push("br $m9".to_owned());
        let word = |text: &String| {
            let words = assemble_statement(text, Mode::Supervisor);
            words.unwrap_or_else(|e| panic!("{text}: {e:?}"))[0]
        };
        let code: Vec<u32> = text.iter().map(word).collect();
        let block = Block::new(CODE, SegmentKind::Kernel, code);
        let mut tile = Tile::new(0, CodeMap::new(vec![Arc::new(block)]));
        let data: Vec<u32> = (1..500)
            .map(|i| u32::wrapping_mul(i, 2_654_435_761))
            .collect();
        tile.memory.write_words(FROM, &data).unwrap();
        tile.memory.poison(FROM + undefined, 1).unwrap();
        tile.supervisor.set_m(1, from, false);
        tile.supervisor.set_m(9, RETURN_ADDRESS, false);
        tile.pc = CODE;
        tile.time = 17;
        tile
    }

    #[test]
    fn a_run_of_puts_is_one_put_after_the_other() {
        for puts in [1, 2, 31, 32, 33, 64] {
            for from in [FROM, FROM + 16, FROM + 8, 0x60000, 0xe7fe0, 0xe8000, 0] {
                for undefined in [4, 1900] {
                    let mut run = tile(puts, from, undefined);
                    let mut plain = tile(puts, from, undefined);
                    plain.fuse_copies = false;
                    let (a, b) = (run.run::<true>(), plain.run::<true>());
                    assert_eq!(a.is_ok(), b.is_ok());
                    if let (Err(a), Err(b)) = (a, b) {
                        assert_eq!(a.to_string(), b.to_string());
                    }
                    assert_eq!((run.time, run.pc), (plain.time, plain.pc));
                    let pointer = |tile: &Tile| tile.control.coefficient_load;
                    assert_eq!(pointer(&run), pointer(&plain));
                    assert!(run.coefficients.same_entries(&plain.coefficients));
                }
            }
        }
    }
}
