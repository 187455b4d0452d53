//! Which values decide the path of a kernel call.
//!
//! Input: the instructions of one call, each before it is executed. Output: the registers and
//! memory words, with their values before the call, that decided branches, repeat counts, launch
//! entries and the addresses of loads into M registers.
//! Method: every M register and every word the kernel stores carries the set of sources that its
//! value was computed from. Another call in which the decisive sources have equal values executes
//! the same instructions: until the first difference all decisions were taken on equal values.
//! An address in a frame counts as the frame's address, which decides nothing, and an offset.
//! Without data no instruction takes a time that depends on an operand or an address.
//! Invariants: a call that does anything not followed here is given up, not guessed.
//! Not here: values and times (see `worker` and `supervisor`).

use std::collections::BTreeMap;
use std::ops::Range;

use ipu_package::SegmentKind;
use ipu_target::memory::RUNTIME_STATE;

use crate::code::{Line, LineKind};
use crate::context::Context;
use crate::exec::{AluOp, BranchOp, LoadOp, StoreOp};
use crate::memory::Memory;
use crate::op::{Micro, Mode4, Op};
use crate::supervisor::{csr, zone};
use crate::tile::WORKER_COUNT;
use crate::worker;

/// The worker frames: words a kernel may keep while it runs. Nothing there outlives a call.
pub const SCRATCH: Range<u32> = RUNTIME_STATE.start + 224..RUNTIME_STATE.start + 224 + 6 * 256;

/// Something that has its value before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// M register of the supervisor.
    Register(u8),
    /// Word at an offset from the frame, that is, from `$m0`.
    Frame(u32),
    /// Word at an address.
    Word(u32),
}

/// What a value was computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Origin {
    /// Bit r: register r of the supervisor; [`STALE`]; from [`FIRST_WORD`] on words that were read.
    sources: u64,
    /// The value is the frame's address and a sum that `sources` tells.
    frame: bool,
}

/// A register of a worker, or a word of a worker frame, as the call found it.
const STALE: u64 = 1 << 15;
const FIRST_WORD: usize = 16;

impl Origin {
    const CONSTANT: Origin = Origin {
        sources: 0,
        frame: false,
    };

    /// All sources, the frame's address among them.
    fn all(self) -> u64 {
        self.sources | u64::from(self.frame)
    }

    fn mixed(self, other: Origin) -> Origin {
        Origin {
            sources: self.all() | other.all(),
            frame: false,
        }
    }

    fn sum(self, other: Origin) -> Origin {
        if self.frame && other.frame {
            return self.mixed(other);
        }
        Origin {
            sources: self.sources | other.sources,
            frame: self.frame | other.frame,
        }
    }
}

/// Index of the supervisor among the contexts.
pub const SUPERVISOR: usize = WORKER_COUNT;

/// Follows one call.
#[derive(Clone)]
pub struct Recorder {
    link: u8,
    frame: u32,
    origins: [[Origin; 16]; WORKER_COUNT + 1],
    words: Vec<(Source, u32)>,
    /// Words that the kernel stored.
    stored: BTreeMap<u32, Origin>,
    decisive: u64,
    pointer_put: bool,
    returned: bool,
    given_up: bool,
    /// M registers of the supervisor that were written.
    pub written: u16,
    /// All workers were launched.
    pub launched: bool,
}

impl Recorder {
    pub fn new(link: u8, frame: u32) -> Recorder {
        let stale = Origin {
            sources: STALE,
            frame: false,
        };
        let mut origins = [[stale; 16]; WORKER_COUNT + 1];
        origins[SUPERVISOR] = std::array::from_fn(|r| Origin {
            sources: 1 << r,
            frame: false,
        });
        origins[SUPERVISOR][0] = Origin {
            sources: 0,
            frame: true,
        };
        for context in &mut origins {
            context[15] = Origin::CONSTANT;
        }
        Recorder {
            link,
            frame,
            origins,
            words: Vec::new(),
            stored: BTreeMap::new(),
            decisive: 0,
            pointer_put: false,
            returned: false,
            given_up: false,
            written: 0,
            launched: false,
        }
    }

    /// Whether something that an earlier call left behind was decisive.
    pub fn used_stale(&self) -> bool {
        self.decisive & STALE != 0
    }

    /// The decisive sources with their values; nothing when the call was given up.
    pub fn decided(self) -> Option<Vec<(Source, u32)>> {
        // A register that the call began with is followed only as the frame or the link.
        let registers = self.decisive & ((1 << FIRST_WORD) - 1);
        if self.given_up || !self.returned || registers & !1 != 0 {
            return None;
        }
        let frame = (registers & 1 != 0).then_some((Source::Register(0), self.frame));
        let words = self.words.iter().enumerate();
        let words = words.filter(|(i, _)| match FIRST_WORD + i {
            bit @ 0..64 => self.decisive >> bit & 1 != 0,
            _ => true,
        });
        Some(frame.into_iter().chain(words.map(|(_, &w)| w)).collect())
    }

    /// Code of a block is executed.
    #[inline]
    pub fn enter(&mut self, kind: SegmentKind) {
        self.given_up |= kind != SegmentKind::Kernel;
    }

    fn decides(&mut self, origin: Origin) {
        self.decisive |= origin.all();
    }

    fn write(&mut self, context: usize, r: u8, origin: Origin) {
        let r = usize::from(r & 15);
        if context == SUPERVISOR {
            self.written |= 1 << r;
        }
        if r != 15 {
            self.origins[context][r] = origin;
        }
    }

    /// An instruction or bundle of a context, before it is executed.
    pub fn line(&mut self, context: usize, line: &Line, w: &Context, memory: &Memory) {
        match line.kind {
            LineKind::Main | LineKind::Bundle => self.main(context, line, w, memory),
            LineKind::Control(_) => self.control(context, line),
            _ => {}
        }
    }

    /// The lines of a repeat body that only advances pointers, `count` times.
    pub fn body(&mut self, context: usize, body: &[Line], count: u32, w: &Context, m: &Memory) {
        for _ in 0..count {
            let before = self.origins[context];
            for line in body.iter().step_by(2) {
                self.line(context, line, w, m);
            }
            if before == self.origins[context] {
                break;
            }
        }
    }

    fn main(&mut self, context: usize, line: &Line, w: &Context, memory: &Memory) {
        let micro = &line.main;
        let [d, x, y, _] = micro.r;
        let of = |r: u8| self.origins[context][usize::from(r & 15)];
        match micro.op {
            Op::Nop => {}
            Op::SetM => self.write(context, d, Origin::CONSTANT),
            Op::Alu(AluOp::Add) => self.write(context, d, of(x).sum(of(y))),
            Op::Alu(AluOp::Or) if x == 15 || y == 15 => {
                self.write(context, d, of(x).sum(of(y)));
            }
            Op::Alu(AluOp::Sub) if !of(y).frame => self.write(context, d, of(x).sum(of(y))),
            Op::AluImmediate(AluOp::Add) => self.write(context, d, of(x)),
            Op::AluImmediate(AluOp::Or) if micro.imm == 0 => self.write(context, d, of(x)),
            Op::Load(op, mode) => self.load(context, op, mode, micro, w, memory),
            Op::Store(op, mode) => self.store(context, op, mode, micro, w),
            Op::StoreStepBase => self.given_up = true,
            _ => self.generic(context, line),
        }
    }

    /// Everything written was computed from everything read.
    fn generic(&mut self, context: usize, line: &Line) {
        let mut origin = Origin::CONSTANT;
        for r in 0..15 {
            if line.reads >> r & 1 != 0 {
                origin = origin.mixed(self.origins[context][r]);
            }
        }
        for r in 0..15 {
            if line.writes >> r & 1 != 0 {
                self.write(context, r, origin);
            }
        }
    }

    /// Where an access goes: the address, and what it was computed from.
    fn address(
        &self,
        context: usize,
        (mode, atom): (Mode4, u32),
        micro: &Micro,
        w: &Context,
    ) -> (u32, Origin) {
        let [_, base, delta, offset] = micro.r;
        let of = |r: u8| self.origins[context][usize::from(r & 15)];
        let at = w.m(base).wrapping_add(w.m(delta));
        let origin = of(base).sum(of(delta));
        match mode {
            Mode4::Immediate => (at.wrapping_add(micro.imm as u32), origin),
            Mode4::Register if offset != 15 => {
                let at = at.wrapping_add(w.m(offset).wrapping_mul(atom));
                let (sources, frame) = (origin.sources | of(offset).all(), origin.frame);
                (at, Origin { sources, frame })
            }
            _ => (at, origin),
        }
    }

    fn step(&mut self, context: usize, mode: Mode4, micro: &Micro) {
        let [_, _, delta, offset] = micro.r;
        let of = |r: u8| self.origins[context][usize::from(r & 15)];
        match mode {
            Mode4::StepRegister => {
                let by = of(offset);
                let (sources, frame) = (of(delta).sources | by.all(), of(delta).frame);
                self.write(context, delta, Origin { sources, frame });
            }
            Mode4::StepImmediate => self.write(context, delta, of(delta)),
            _ => {}
        }
    }

    fn load(
        &mut self,
        context: usize,
        op: LoadOp,
        mode: Mode4,
        micro: &Micro,
        w: &Context,
        memory: &Memory,
    ) {
        use LoadOp::*;
        let (at, origin) = self.address(context, (mode, op.atom()), micro, w);
        self.step(context, mode, micro);
        if !matches!(op, M32 | MS16 | MS8 | MZ16 | MZ8) {
            return;
        }
        self.decisive |= origin.sources;
        let word = at & !3;
        let value = match self.stored.get(&word) {
            Some(_) if origin.frame => {
                self.given_up = true;
                Origin::CONSTANT
            }
            Some(&stored) if op == M32 => stored,
            Some(&stored) => stored.mixed(Origin::CONSTANT),
            None => self.read(word, origin.frame, memory),
        };
        self.write(context, micro.r[0], value);
    }

    /// A word as it was before the call.
    fn read(&mut self, word: u32, in_frame: bool, memory: &Memory) -> Origin {
        let Ok((value, _)) = memory.load(word, 4) else {
            self.given_up = true;
            return Origin::CONSTANT;
        };
        if SCRATCH.contains(&word) {
            return Origin {
                sources: STALE,
                frame: false,
            };
        }
        let source = if in_frame {
            Source::Frame(word.wrapping_sub(self.frame))
        } else {
            Source::Word(word)
        };
        let known = self.words.iter().position(|&(other, _)| other == source);
        let i = known.unwrap_or_else(|| {
            self.words.push((source, value));
            self.words.len() - 1
        });
        // Words beyond the last bit are decisive in any case.
        let sources = 1u64.checked_shl((FIRST_WORD + i) as u32).unwrap_or(0);
        Origin {
            sources,
            frame: false,
        }
    }

    fn store(&mut self, context: usize, op: StoreOp, mode: Mode4, micro: &Micro, w: &Context) {
        let value = self.origins[context][usize::from(micro.r[0] & 15)];
        let (at, origin) = self.address(context, (mode, op.atom()), micro, w);
        self.step(context, mode, micro);
        if op == StoreOp::M {
            self.decides(origin);
            self.given_up |= origin.frame || !SCRATCH.contains(&at);
            self.stored.insert(at, value);
        }
    }

    fn control(&mut self, context: usize, line: &Line) {
        let micro = &line.main;
        let [r, base, ..] = micro.r;
        let origins = self.origins[context];
        let of = |r: u8| origins[usize::from(r & 15)];
        match micro.op {
            Op::Branch(BranchOp::Immediate) | Op::Exit | Op::RepeatImmediate => {}
            Op::Branch(BranchOp::Call) => self.write(context, r, Origin::CONSTANT),
            Op::Branch(BranchOp::Register)
                if context == SUPERVISOR && r == self.link && self.written >> r & 1 == 0 =>
            {
                self.returned = true;
            }
            Op::Branch(_) | Op::RepeatRegister => {
                self.decides(of(r));
                self.generic(context, line);
            }
            Op::Get if context != SUPERVISOR => match micro.imm {
                worker::csr::WSR => self.write(context, r, Origin::CONSTANT),
                worker::csr::VERTEX_BASE => self.write(context, r, of(13)),
                worker::csr::WORKER_BASE => self.write(context, r, of(12)),
                _ => self.given_up = true,
            },
            Op::Put => match micro.imm {
                csr::CR | csr::FP_ICTL | csr::FP_INFMT | csr::FP_ISCL | csr::DEBUG_DATA => {}
                csr::CCCSLOAD => self.pointer_put = true,
                _ => self.given_up = true,
            },
            Op::PutCoefficients64 | Op::PutCoefficients128 => self.given_up |= !self.pointer_put,
            Op::RunAll => {
                self.decides(of(r));
                let vertex = of(base);
                for worker in &mut self.origins[..WORKER_COUNT] {
                    worker[12].sources = STALE;
                    worker[13] = vertex;
                }
                self.launched = true;
            }
            Op::Sync if micro.imm as u32 == zone::LOCAL => {}
            _ => self.given_up = true,
        }
    }
}
