//! Code blocks: words at an address, decoded once for each mode.
//!
//! Input: words of a segment and the address where they stand. Output: lines that a context's
//! loop runs, one for each word.
//! Invariants: a block is shared by all tiles that have the same words at the same address; it is
//! decoded when it is first executed in a mode. Code is never written while a program runs.
//! Not here: what operations do (see `exec`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ipu_isa::form::{COISSUE_BIT, Slot};
use ipu_isa::{Decoded, Mode, decode};
use ipu_package::SegmentKind;
use ipu_target::memory::REGION_BOUNDARY;

use crate::fault::{Exec, FaultKind};
use crate::op::{Micro, Op, is_control, lower};
use crate::product::{Plan, may_begin, plan};

/// Words of code at an address.
pub struct Block {
    pub address: u32,
    pub kind: SegmentKind,
    pub words: Arc<[u32]>,
    worker: OnceLock<Vec<Line>>,
    products: OnceLock<Vec<Plan>>,
    supervisor: OnceLock<Vec<Line>>,
}

/// What stands at a word address.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub main: Micro,
    pub aux: Micro,
    pub kind: LineKind,
    /// May stand in a repeat body.
    pub repeatable: bool,
    /// Worker issues.
    pub issues: u16,
    /// M registers read and written, for the supervisor's dependences.
    pub reads: u16,
    pub writes: u16,
}

/// How a line is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    Main,
    Aux,
    Bundle,
    /// A bundle that begins a matrix product, the one of this number.
    Product(u16),
    /// Main slot needs the context's loop; `true` when an auxiliary operation stands beside it.
    Control(bool),
    NotAnInstruction,
    /// Half of a bundle that is not there, or not aligned.
    BrokenBundle,
}

impl Block {
    pub fn new(address: u32, kind: SegmentKind, words: impl Into<Arc<[u32]>>) -> Block {
        Block {
            address,
            kind,
            words: words.into(),
            worker: OnceLock::new(),
            products: OnceLock::new(),
            supervisor: OnceLock::new(),
        }
    }

    /// The same block, in which every line is interpreted.
    #[cfg(test)]
    pub(crate) fn without_products(self) -> Block {
        self.products.get_or_init(Vec::new);
        self
    }

    pub fn end(&self) -> u32 {
        self.address + 4 * self.words.len() as u32
    }

    /// Lines as the mode reads them.
    pub fn lines(&self, mode: Mode) -> &[Line] {
        let slot = match mode {
            Mode::Worker => &self.worker,
            Mode::Supervisor => &self.supervisor,
        };
        slot.get_or_init(|| {
            let mut lines: Vec<Line> = (0..self.words.len()).map(|i| self.line(i, mode)).collect();
            if mode == Mode::Worker {
                self.products
                    .get_or_init(|| products(&mut lines, self.address));
            }
            lines
        })
    }

    /// The plan of a line of kind [`LineKind::Product`].
    pub(crate) fn product(&self, number: u16) -> Option<&Plan> {
        self.products.get()?.get(usize::from(number))
    }

    fn line(&self, i: usize, mode: Mode) -> Line {
        let bad = |kind| Line {
            main: Micro::NOP,
            aux: Micro::NOP,
            kind,
            repeatable: false,
            issues: 1,
            reads: 0,
            writes: 0,
        };
        let Some(first) = decode(self.words[i], mode) else {
            return bad(LineKind::NotAnInstruction);
        };
        if !first.coissue {
            return solo(&first, mode);
        }
        let second = self.words.get(i + 1).and_then(|&word| decode(word, mode));
        let aligned = (self.address as usize + 4 * i).is_multiple_of(8);
        match second {
            Some(second)
                if aligned
                    && second.coissue
                    && first.form().slot == Slot::Main
                    && second.form().slot == Slot::Aux =>
            {
                bundle(&first, &second, mode)
            }
            _ => bad(LineKind::BrokenBundle),
        }
    }

    /// Mnemonics at a word, for messages.
    pub fn describe(&self, address: u32, mode: Mode) -> Option<String> {
        let i = (address.checked_sub(self.address)? / 4) as usize;
        let name = |word: u32| decode(word, mode).map(|d| d.form().mnemonic);
        let word = *self.words.get(i)?;
        let first = name(word)?;
        let second = self.words.get(i + 1).and_then(|&word| name(word));
        Some(match second {
            Some(second) if word & COISSUE_BIT != 0 => format!("{first} ; {second}"),
            _ => first.to_owned(),
        })
    }
}

/// Find the matrix products of a worker's lines and mark their first bundles.
fn products(lines: &mut [Line], base: u32) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    let starts: Vec<usize> = (0..lines.len())
        .filter(|&start| may_begin(&lines[start]))
        .collect();
    for start in starts {
        if let Some(plan) = plan(lines, base, start) {
            lines[start].kind = LineKind::Product(plans.len() as u16);
            plans.push(plan);
        }
    }
    plans
}

fn registers(decoded: &Decoded) -> (u16, u16) {
    let form = decoded.form();
    let (mut reads, _) = form.registers(form.reads, &decoded.ops);
    let (writes, _) = form.written(&decoded.ops);
    if form.mnemonic == "movz" {
        reads |= writes;
    }
    // The zero register depends on nothing.
    (reads & 0x7fff, writes & 0x7fff)
}

fn solo(decoded: &Decoded, mode: Mode) -> Line {
    let micro = lower(decoded, mode);
    let form = decoded.form();
    let main = form.slot == Slot::Main;
    let (reads, writes) = registers(decoded);
    Line {
        main: if main { micro } else { Micro::NOP },
        aux: if main { Micro::NOP } else { micro },
        kind: match (main, is_control(micro.op)) {
            (true, true) => LineKind::Control(false),
            (true, false) => LineKind::Main,
            (false, _) => LineKind::Aux,
        },
        repeatable: false,
        issues: form.issue.issues() as u16,
        reads,
        writes,
    }
}

fn bundle(first: &Decoded, second: &Decoded, mode: Mode) -> Line {
    let (main, aux) = (lower(first, mode), lower(second, mode));
    let (a, b) = (first.form(), second.form());
    let (reads, writes) = registers(first);
    Line {
        main,
        aux,
        kind: if is_control(main.op) {
            LineKind::Control(true)
        } else {
            LineKind::Bundle
        },
        repeatable: !(a.control || a.system || b.control || b.system),
        issues: a.issue.issues().max(b.issue.issues()) as u16,
        reads,
        writes,
    }
}

/// The code of one tile, blocks by address.
#[derive(Default)]
pub struct CodeMap {
    blocks: Vec<Arc<Block>>,
    /// Where an address was found last.
    last: AtomicUsize,
}

impl Clone for CodeMap {
    fn clone(&self) -> CodeMap {
        CodeMap::new(self.blocks.clone())
    }
}

impl CodeMap {
    pub fn new(mut blocks: Vec<Arc<Block>>) -> CodeMap {
        blocks.sort_by_key(|block| block.address);
        let last = AtomicUsize::new(0);
        CodeMap { blocks, last }
    }

    /// The same code and one block more.
    pub fn with(&self, block: Arc<Block>) -> CodeMap {
        let mut blocks = self.blocks.clone();
        blocks.push(block);
        CodeMap::new(blocks)
    }

    /// The block that holds an address.
    pub fn find(&self, address: u32) -> Exec<&Arc<Block>> {
        if address >= REGION_BOUNDARY {
            return Err(Box::new(FaultKind::NotExecutable { address }));
        }
        if !address.is_multiple_of(4) {
            return Err(Box::new(FaultKind::Misaligned { address, bytes: 4 }));
        }
        let holds = |block: &&Arc<Block>| (block.address..block.end()).contains(&address);
        let last = self.blocks.get(self.last.load(Ordering::Relaxed));
        if let Some(block) = last.filter(holds) {
            return Ok(block);
        }
        let after = self.blocks.partition_point(|b| b.address <= address);
        let found = after
            .checked_sub(1)
            .map(|i| (i, &self.blocks[i]))
            .filter(|(_, block)| holds(block));
        match found {
            Some((i, block)) => {
                self.last.store(i, Ordering::Relaxed);
                Ok(block)
            }
            None => Err(Box::new(FaultKind::NoCode { address })),
        }
    }

    pub fn describe(&self, address: u32, mode: Mode) -> Option<String> {
        self.find(address).ok()?.describe(address, mode)
    }
}

/// The fault of a line that cannot be issued.
#[cold]
pub fn broken(line: &Line, word: u32, mode: Mode) -> Box<FaultKind> {
    Box::new(match line.kind {
        LineKind::BrokenBundle => {
            FaultKind::Bundle("needs a main and an auxiliary word on an 8-byte boundary")
        }
        _ if line.main.op == Op::Unimplemented => FaultKind::Unimplemented("unknown"),
        _ => FaultKind::NoInstruction { word, mode },
    })
}
