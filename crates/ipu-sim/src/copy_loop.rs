//! The supervisor's copy loops in closed form.
//!
//! A body that loads some words, advances the source, stores them in the same order and advances
//! the destination moves a block when it repeats.
//! Input: a tile behind a taken branch to the top of a loop. Output: the tile before the last
//! iteration, or unchanged.
//! Invariants: memory, registers and times are those that the interpreter would leave: only an
//! iteration that takes as long as the one before it, in every register, stands for others; source
//! and destination do not overlap, and all source words are defined.
//! Without data, words that are undefined are not copied.
//! Not here: the first and the last iterations, which the interpreter runs.

use ipu_target::issue;

use crate::code::{Line, LineKind};
use crate::exec::{AluOp, BranchOp, LoadOp, StoreOp};
use crate::op::{Mode4, Op};
use crate::tile::Tile;

/// What a loop copies in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyLoop {
    words: u32,
    source: u8,
    destination: u8,
    counter: u8,
}

/// The loop of a body that ends with its branch.
fn recognise(body: &[Line]) -> Option<CopyLoop> {
    let words = body.len().checked_sub(3)? / 2;
    if words == 0 || body.len() != 2 * words + 3 {
        return None;
    }
    let (loads, rest) = body.split_at(words);
    let (advance_source, rest) = rest.split_first()?;
    let (stores, rest) = rest.split_at(words);
    let [advance_destination, branch] = rest else {
        return None;
    };
    if branch.main.op != Op::Branch(BranchOp::NotZeroDecrement) {
        return None;
    }
    let counter = branch.main.r[0];
    let (source, destination) = (loads[0].main.r[1], stores[0].main.r[1]);
    let mut used = 1u32 << counter;
    for register in [source, destination] {
        if used >> register & 1 != 0 || register == 15 {
            return None;
        }
        used |= 1 << register;
    }
    for (offset, (load, store)) in (0..).step_by(4).zip(loads.iter().zip(stores)) {
        let (a, b) = (&load.main, &store.main);
        let register = a.r[0];
        let sound = a.op == Op::Load(LoadOp::M32, Mode4::Immediate)
            && b.op == Op::Store(StoreOp::M, Mode4::Immediate)
            && (a.r[1], a.r[2], a.imm) == (source, 15, offset)
            && (b.r[0], b.r[1], b.r[2], b.imm) == (register, destination, 15, offset);
        if !sound || used >> register & 1 != 0 || register == 15 {
            return None;
        }
        used |= 1 << register;
    }
    let bytes = 4 * words as i32;
    for (line, register) in [(advance_source, source), (advance_destination, destination)] {
        let micro = &line.main;
        let sound = micro.op == Op::AluImmediate(AluOp::Add)
            && (micro.r[0], micro.r[1], micro.imm) == (register, register, bytes);
        if !sound {
            return None;
        }
    }
    let plain = |line: &Line| line.kind == LineKind::Main;
    body[..body.len() - 1]
        .iter()
        .all(plain)
        .then_some(CopyLoop {
            words: words as u32,
            source,
            destination,
            counter,
        })
}

impl Tile {
    /// Run all iterations but the last, if the body is a copy loop in its steady state.
    pub(crate) fn copy_loop<const DATA: bool>(&mut self, body: &[Line]) {
        if !self.fuse_copies || self.live_end > self.time || self.pending.is_some() {
            return;
        }
        let Some(copy) = recognise(body) else {
            return;
        };
        let count = self.supervisor.m(copy.counter);
        let Some((period, ready)) = self.steady(body) else {
            return;
        };
        let Some(bytes) = count.checked_mul(4 * copy.words) else {
            return;
        };
        let source = self.supervisor.m(copy.source);
        let destination = self.supervisor.m(copy.destination);
        let tainted = [copy.source, copy.destination, copy.counter]
            .iter()
            .any(|register| self.supervisor.m_tainted(*register));
        if count == 0 || tainted || (!self.copy(source, destination, bytes) && DATA) {
            return;
        }
        let skipped = u64::from(count) * period;
        self.time += skipped;
        for (register, line) in self.ready.iter_mut().zip(ready) {
            if line > *register {
                *register = line + skipped - period;
            }
        }
        let context = &mut self.supervisor;
        context.set_m(copy.source, source.wrapping_add(bytes), false);
        context.set_m(copy.destination, destination.wrapping_add(bytes), false);
        context.set_m(copy.counter, 0, false);
    }

    /// Cycles of an iteration and when registers are ready after one, if all that follow are alike.
    fn steady(&self, body: &[Line]) -> Option<(u64, [u64; 16])> {
        let (mut time, mut ready) = (self.time, self.ready);
        for line in body {
            let mut at = time;
            for register in (0..16).filter(|register| line.reads >> register & 1 != 0) {
                at = at.max(ready[register]);
            }
            for register in (0..16).filter(|register| line.writes >> register & 1 != 0) {
                ready[register] = at + issue::DEPENDENT_USE;
            }
            time = at
                + match line.main.op {
                    Op::Branch(_) => issue::BRANCH_TAKEN,
                    _ => issue::SUPERVISOR_ISSUE,
                };
        }
        let waits = |ready: &[u64; 16], time: u64| ready.map(|cycle| cycle.saturating_sub(time));
        let used = body
            .iter()
            .fold(0, |used, line| used | line.reads | line.writes);
        let (before, after) = (waits(&self.ready, self.time), waits(&ready, time));
        let alike = (0..16).all(|r| used >> r & 1 == 0 || before[r] == after[r]);
        alike.then_some((time - self.time, ready))
    }

    /// Copy a block of defined words. False, and nothing is changed, when it is not one.
    fn copy(&mut self, source: u32, destination: u32, bytes: u32) -> bool {
        let disjoint = source.abs_diff(destination) >= bytes;
        let defined = self.memory.first_undefined(source, bytes / 4);
        if !disjoint || !matches!(defined, Ok(None)) {
            return false;
        }
        self.memory
            .copy_words(source, destination, bytes / 4)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ipu_isa::Mode;
    use ipu_isa::text::assemble_statement;
    use ipu_package::SegmentKind;

    use super::*;
    use crate::code::{Block, CodeMap};
    use crate::supervisor::{RETURN_ADDRESS, Stop};

    const CODE: u32 = 0x5c000;
    const FROM: u32 = 0x50180;
    const TO: u32 = 0x60000;

    fn tile(words: usize, iterations: u32, to: u32) -> Tile {
        let registers = ["$m1", "$m4", "$m8", "$m10"];
        let mut text = vec![
            format!("setzi $m7, {}", iterations - 1),
            format!("setzi $m6, {FROM}"),
            format!("setzi $m0, {to}"),
        ];
        let top = CODE / 4 + text.len() as u32;
        for (i, register) in registers[..words].iter().enumerate() {
            text.push(format!("ld32 {register}, $m6, $m15, {i}"));
        }
        text.push(format!("add $m6, $m6, {}", 4 * words));
        for (i, register) in registers[..words].iter().enumerate() {
            text.push(format!("st32 {register}, $m0, $m15, {i}"));
        }
        text.push(format!("add $m0, $m0, {}", 4 * words));
        text.push(format!("brnzdec $m7, {top}"));
        text.push("br $m9".to_owned());
        let word = |text: &String| {
            let words = assemble_statement(text, Mode::Supervisor);
            words.unwrap_or_else(|e| panic!("{text}: {e:?}"))[0]
        };
        let code: Vec<u32> = text.iter().map(word).collect();
        let block = Block::new(CODE, SegmentKind::Kernel, code);
        let mut tile = Tile::new(0, CodeMap::new(vec![Arc::new(block)]));
        let data: Vec<u32> = (0..2_000)
            .map(|i| u32::wrapping_mul(i, 2_654_435_761))
            .collect();
        tile.memory.write_words(FROM, &data).unwrap();
        tile.supervisor.set_m(9, RETURN_ADDRESS, false);
        tile.pc = CODE;
        tile.time = 17;
        tile
    }

    fn compare<const DATA: bool>(fused: &mut Tile, plain: &mut Tile) {
        plain.fuse_copies = false;
        let (a, b) = (fused.run::<DATA>(), plain.run::<DATA>());
        assert_eq!(a.is_ok(), b.is_ok());
        if let Ok(stop) = a {
            assert_eq!(stop, Stop::Return);
        }
        assert_eq!((fused.time, fused.pc), (plain.time, plain.pc));
        assert_eq!(fused.ready, plain.ready);
        if DATA {
            assert_eq!(fused.supervisor.m, plain.supervisor.m);
            assert_eq!(fused.supervisor.m_taint, plain.supervisor.m_taint);
            let all = |tile: &Tile| tile.memory.words(0x4c000, 0x27000).unwrap().to_vec();
            assert!(all(fused) == all(plain));
            for at in (TO..TO + 0x2000).step_by(4) {
                let defined = |tile: &Tile| tile.memory.first_undefined(at, 1).unwrap();
                assert_eq!(defined(fused), defined(plain));
            }
        }
    }

    #[test]
    fn a_fused_loop_is_the_interpreted_one() {
        for words in 1..=4 {
            for iterations in [1, 2, 3, 4, 17, 256] {
                // Apart, overlapping, misaligned, and leaving memory.
                for to in [TO, FROM + 64, FROM - 8, TO + 2, 0xe7fc0] {
                    let make = || tile(words, iterations, to);
                    compare::<true>(&mut make(), &mut make());
                    if to == TO {
                        compare::<false>(&mut make(), &mut make());
                    }
                }
                let mut tiles = [tile(words, iterations, TO), tile(words, iterations, TO)];
                for tile in &mut tiles {
                    tile.memory.poison(FROM + 4 * iterations, 1).unwrap();
                }
                let [fused, plain] = &mut tiles;
                compare::<true>(fused, plain);
            }
        }
    }

    #[test]
    fn a_fused_loop_does_not_run_word_by_word() {
        let mut tile = tile(4, 256, TO);
        let block = Arc::clone(tile.code.find(CODE).unwrap());
        let lines = block.lines(Mode::Supervisor);
        let loop_of = recognise(&lines[3..14]).unwrap();
        assert_eq!((loop_of.words, loop_of.counter), (4, 7));
        assert!(recognise(&lines[4..14]).is_none());
        tile.run::<true>().unwrap();
        assert_eq!(
            tile.memory.words(TO + 4_092, 1).unwrap()[0],
            1_023u32.wrapping_mul(2_654_435_761)
        );
    }
}
