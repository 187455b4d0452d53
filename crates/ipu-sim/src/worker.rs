//! A worker from its launch to its exit.
//!
//! Input: code, entry, registers, what the tile shares, the cycle of the first issue. Output: the
//! number of issues. Invariants: a bundle reads the state before it in both slots; a repeat costs
//! its own issue and those of its bodies.
//! Not here: when a worker is launched and what its time does to the supervisor.

use ipu_isa::Mode;
use ipu_target::issue::WORKER_PERIOD;

use crate::code::{Block, CodeMap, Line, LineKind, broken};
use crate::context::Context;
use crate::exec::{BranchOp, Shared, aux, commit, main, undefined_control};
use crate::fault::{ContextId, Exec, FaultKind, Use};
use crate::numeric::{Lanes, Portable};
use crate::op::{Micro, Op};
use crate::trace::Traced;

/// Issues after which a launch counts as one that never ends.
pub const ISSUES_MAX: u64 = 1 << 34;
/// Largest count of a repeat.
const REPEAT_MAX: u32 = 0xffff;

/// Worker status: `$WSR`, `$VERTEX_BASE`, and the like.
pub(crate) mod csr {
    pub const WSR: i32 = 1;
    pub const VERTEX_BASE: i32 = 2;
    pub const WORKER_BASE: i32 = 3;
    pub const COUNT_LOW: i32 = 96;
    pub const COUNT_HIGH: i32 = 97;
}

/// A fault of a worker and where.
pub struct WorkerFault {
    pub pc: u32,
    pub kind: Box<FaultKind>,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    pub issues: u64,
    /// Low word of the cycle counter where the worker last read it.
    pub sample: Option<u32>,
}

/// One launch.
pub struct Launch<'a> {
    pub code: &'a CodeMap,
    pub index: u8,
    pub entry: u32,
    /// Cycle of the first issue.
    pub start: u64,
}

enum Flow {
    Next,
    Jump(u32),
    Repeat { count: u32, bundles: usize },
    Exit,
}

/// A fault of the instruction at an address.
fn fault_at(pc: u32) -> impl Fn(Box<FaultKind>) -> WorkerFault {
    move |kind| WorkerFault { pc, kind }
}

/// Index of the line at a jump's target, if it is in this block.
fn line_at(target: u32, base: u32, lines: &[Line]) -> Option<usize> {
    let offset = target.wrapping_sub(base);
    let index = offset as usize / 4;
    (offset & 3 == 0 && index < lines.len()).then_some(index)
}

/// Where the next issue stands: its words, its address, the issues before it.
#[derive(Clone, Copy)]
struct Place<'a> {
    words: &'a [u32],
    pc: u32,
    issues: u64,
}

impl<'a> Place<'a> {
    #[inline(always)]
    fn new(block: &'a Block, line: usize, issues: u64) -> Place<'a> {
        Place {
            words: &block.words[line..],
            pc: block.address + 4 * line as u32,
            issues,
        }
    }

    /// The bundle with this number from here.
    #[inline(always)]
    fn bundle(self, k: usize) -> Place<'a> {
        Place {
            words: &self.words[2 * k..],
            pc: self.pc + 8 * k as u32,
            ..self
        }
    }

    fn pair(self) -> [u32; 2] {
        [0, 1].map(|index| self.words.get(index).copied().unwrap_or(0))
    }
}

/// The last issues in a block, and where it is left to.
#[inline(always)]
fn leave(done: &mut Launched, issues: u64, to: Option<u32>) -> Result<Option<u32>, WorkerFault> {
    done.issues += issues;
    Ok(to)
}

/// A matrix product that begins here, computed as a whole: issues to the exit.
#[inline(always)]
fn product<const DATA: bool, V: Lanes>(
    line: &Line,
    block: &Block,
    w: &mut Context,
    shared: &mut Shared,
) -> Option<u64> {
    match line.kind {
        LineKind::Product(number) if DATA => V::product(block.product(number)?, w, shared),
        _ => None,
    }
}

impl Launch<'_> {
    /// Tell what follows the launch that a line issues.
    #[inline(always)]
    fn follow<const DATA: bool, V: Lanes>(
        &self,
        line: &Line,
        at: Place<'_>,
        w: &Context,
        shared: &mut Shared,
    ) {
        if !DATA && let Some(recorder) = &mut shared.recorder {
            recorder.line(self.index.into(), line, w, shared.memory);
        }
        if V::TRACED
            && let Some(tracer) = &mut shared.tracer
        {
            let cycle = self.start + WORKER_PERIOD * at.issues;
            tracer.issue(cycle, ContextId::Worker(self.index), at.pc, at.pair(), w);
        }
    }

    /// Run to the exit. With `DATA` false no value of the A file is computed.
    pub fn run<const DATA: bool>(
        &self,
        w: &mut Context,
        shared: &mut Shared,
    ) -> Result<Launched, WorkerFault> {
        if shared.tracer.is_some() {
            return self.run_traced::<DATA>(w, shared);
        }
        #[cfg(target_arch = "x86_64")]
        if DATA && crate::vector::has_wide_vectors() {
            return crate::vector::run_wide(self, w, shared);
        }
        self.interpret::<DATA, Portable>(w, shared)
    }

    /// Run to the exit, telling each issue.
    #[cold]
    #[inline(never)]
    fn run_traced<const DATA: bool>(
        &self,
        w: &mut Context,
        shared: &mut Shared,
    ) -> Result<Launched, WorkerFault> {
        let done = self.interpret::<DATA, Traced>(w, shared);
        if let Some(tracer) = &mut shared.tracer {
            tracer.settle(ContextId::Worker(self.index), w);
        }
        done
    }

    /// The interpreter, compiled for the vector width of its caller.
    #[inline(always)]
    pub(crate) fn interpret<const DATA: bool, V: Lanes>(
        &self,
        w: &mut Context,
        shared: &mut Shared,
    ) -> Result<Launched, WorkerFault> {
        let mut done = Launched::default();
        let mut pc = self.entry;
        loop {
            let block = match self.code.find(pc) {
                Ok(block) => block,
                Err(kind) => return Err(WorkerFault { pc, kind }),
            };
            match self.block::<DATA, V>(block, pc, w, shared, &mut done)? {
                Some(target) => pc = target,
                None => return Ok(done),
            }
        }
    }

    /// Run in one block: the address at which it is left, nothing at the exit.
    #[inline(always)]
    fn block<const DATA: bool, V: Lanes>(
        &self,
        block: &Block,
        pc: u32,
        w: &mut Context,
        shared: &mut Shared,
        done: &mut Launched,
    ) -> Result<Option<u32>, WorkerFault> {
        let lines = block.lines(Mode::Worker);
        let base = block.address;
        let at = |i: usize| fault_at(base + 4 * i as u32);
        let mut i = ((pc - base) / 4) as usize;
        if !DATA && let Some(recorder) = &mut shared.recorder {
            recorder.enter(block.kind);
        }
        while let Some(line) = lines.get(i) {
            self.follow::<DATA, V>(line, Place::new(block, i, done.issues), w, shared);
            let issues = u64::from(line.issues);
            match line.kind {
                LineKind::Main => {
                    main::<DATA>(&line.main, w, shared.memory).map_err(at(i))?;
                    i += 1;
                }
                LineKind::Aux => {
                    auxiliary::<DATA, V>(line, w, shared).map_err(at(i))?;
                    i += 1;
                }
                LineKind::Bundle | LineKind::Product(_) => {
                    if let Some(spent) = product::<DATA, V>(line, block, w, shared) {
                        return leave(done, spent, None);
                    }
                    both::<DATA, V>(line, w, shared).map_err(at(i))?;
                    i += 2;
                }
                LineKind::Control(paired) => {
                    let here = base + 4 * i as u32;
                    let flow = self
                        .control::<DATA, V>(line, paired, here, w, shared, done)
                        .map_err(at(i))?;
                    i += 1 + usize::from(paired);
                    match flow {
                        Flow::Next => {}
                        Flow::Exit => return leave(done, issues, None),
                        Flow::Jump(target) => match line_at(target, base, lines) {
                            Some(to) => i = to,
                            None => return leave(done, issues, Some(target)),
                        },
                        Flow::Repeat { count, bundles } => {
                            let body = (block, i, bundles);
                            let from = done.issues + issues;
                            done.issues +=
                                self.repeat_here::<DATA, V>(body, count, from, w, shared)?;
                            i += 2 * bundles;
                        }
                    }
                    if done.issues > ISSUES_MAX {
                        return Err(at(i)(Box::new(FaultKind::Runaway(ISSUES_MAX))));
                    }
                }
                LineKind::NotAnInstruction | LineKind::BrokenBundle => {
                    return Err(at(i)(broken(line, block.words[i], Mode::Worker)));
                }
            }
            done.issues += issues;
        }
        Ok(Some(base + 4 * i as u32))
    }

    /// The bundles from a place on, `count` times: issues.
    #[inline(always)]
    fn repeat_here<const DATA: bool, V: Lanes>(
        &self,
        (block, i, bundles): (&Block, usize, usize),
        count: u32,
        issues: u64,
        w: &mut Context,
        shared: &mut Shared,
    ) -> Result<u64, WorkerFault> {
        let from = Place::new(block, i, issues);
        let at = |i: usize| fault_at(block.address + 4 * i as u32);
        let lines = block.lines(Mode::Worker);
        let body = body(lines, block.address, i, bundles).map_err(at(i))?;
        let spent = self.repeat::<DATA, V>((body, from), count, w, shared);
        spent.map_err(|(k, kind)| at(i + 2 * k)(kind))
    }

    /// A control or system instruction; what stands beside it runs too.
    fn control<const DATA: bool, V: Lanes>(
        &self,
        line: &Line,
        paired: bool,
        here: u32,
        w: &mut Context,
        shared: &mut Shared,
        done: &mut Launched,
    ) -> Exec<Flow> {
        let micro = &line.main;
        let after = here + if paired { 8 } else { 4 };
        let flow = match micro.op {
            Op::Branch(op) => {
                let (taken, target) = branch(op, micro, after, w)?;
                if taken {
                    Flow::Jump(target)
                } else {
                    Flow::Next
                }
            }
            Op::Exit => Flow::Exit,
            Op::RepeatImmediate => Flow::Repeat {
                count: micro.imm as u32,
                bundles: usize::from(micro.r[3]) + 1,
            },
            Op::RepeatRegister => {
                let count = w.m(micro.r[0]);
                if w.m_tainted(micro.r[0]) {
                    return Err(undefined_control());
                }
                if count > REPEAT_MAX {
                    return Err(Box::new(FaultKind::Repeat("count above 65,535")));
                }
                Flow::Repeat {
                    count,
                    bundles: micro.imm as usize + 1,
                }
            }
            Op::Get => {
                self.get(micro, w, done)?;
                Flow::Next
            }
            Op::Put => return Err(Box::new(FaultKind::UnknownRegister(micro.imm as u16))),
            Op::Trap => return Err(Box::new(FaultKind::Trap(micro.imm as u32))),
            _ => return Err(Box::new(FaultKind::Bundle("supervisor operation"))),
        };
        if paired {
            auxiliary::<DATA, V>(line, w, shared)?;
        }
        Ok(flow)
    }

    fn get(&self, micro: &Micro, w: &mut Context, done: &mut Launched) -> Exec<()> {
        let now = self.start + WORKER_PERIOD * done.issues;
        let value = match micro.imm {
            csr::WSR => u32::from(self.index),
            csr::VERTEX_BASE => w.m(13),
            csr::WORKER_BASE => w.m(12),
            csr::COUNT_LOW => {
                done.sample = Some(now as u32);
                now as u32
            }
            csr::COUNT_HIGH => (now >> 32) as u32,
            other => return Err(Box::new(FaultKind::UnknownRegister(other as u16))),
        };
        w.set_m(micro.r[0], value, false);
        Ok(())
    }
}

/// Carry out a branch: whether it is taken, and where to.
#[inline(always)]
pub fn branch(op: BranchOp, micro: &Micro, after: u32, w: &mut Context) -> Exec<(bool, u32)> {
    let r = micro.r[0];
    let target = micro.imm as u32;
    match op {
        BranchOp::Immediate => return Ok((true, target)),
        BranchOp::Call => {
            w.set_m(r, after, false);
            return Ok((true, target));
        }
        _ => {}
    }
    if w.m_tainted(r) {
        return Err(Box::new(FaultKind::Undefined(Use::Branch)));
    }
    let value = w.m(r);
    if op == BranchOp::Register {
        return Ok((true, value));
    }
    let taken = op.taken(value);
    if op == BranchOp::NotZeroDecrement && taken {
        w.set_m(r, value - 1, false);
    }
    Ok((taken, target))
}

#[inline(always)]
fn auxiliary<const DATA: bool, V: Lanes>(
    line: &Line,
    w: &mut Context,
    shared: &mut Shared,
) -> Exec<()> {
    if DATA {
        let out = aux::<V>(&line.aux, w, shared.coefficients)?;
        commit(&line.aux, w, out);
    }
    Ok(())
}

/// A bundle: both slots read the state before it.
#[inline(always)]
pub fn both<const DATA: bool, V: Lanes>(
    line: &Line,
    w: &mut Context,
    shared: &mut Shared,
) -> Exec<()> {
    if DATA {
        let out = aux::<V>(&line.aux, w, shared.coefficients)?;
        main::<DATA>(&line.main, w, shared.memory)?;
        commit(&line.aux, w, out);
    } else {
        main::<DATA>(&line.main, w, shared.memory)?;
    }
    Ok(())
}

/// The lines of a repeat body, checked.
pub(crate) fn body(lines: &[Line], base: u32, from: usize, bundles: usize) -> Exec<&[Line]> {
    let fault = |reason| Err(Box::new(FaultKind::Repeat(reason)));
    if !(base as usize + 4 * from).is_multiple_of(8) {
        return fault("body is not on an 8-byte boundary");
    }
    let Some(body) = lines.get(from..from + 2 * bundles) else {
        return fault("body leaves the code");
    };
    if !body.iter().step_by(2).all(|line| line.repeatable) {
        return fault("body holds a solo, control or system instruction");
    }
    Ok(body)
}

impl Launch<'_> {
    /// Run a repeat body. An error carries the bundle's number.
    #[inline(always)]
    fn repeat<const DATA: bool, V: Lanes>(
        &self,
        (body, mut from): (&[Line], Place<'_>),
        count: u32,
        w: &mut Context,
        shared: &mut Shared,
    ) -> Result<u64, (usize, Box<FaultKind>)> {
        let issues: u64 = body.iter().step_by(2).map(|l| u64::from(l.issues)).sum();
        if !DATA && !V::TRACED && crate::skip::can_advance(body) {
            if let Some(recorder) = &mut shared.recorder {
                recorder.body(self.index.into(), body, count, w, shared.memory);
            }
            crate::skip::advance(body, count, w);
            return Ok(issues * u64::from(count));
        }
        let fused = if DATA && !V::TRACED {
            crate::fused::run::<V>(body, count, w, shared)
        } else {
            0
        };
        for _ in fused..count {
            for (k, line) in body.iter().step_by(2).enumerate() {
                self.follow::<DATA, V>(line, from.bundle(k), w, shared);
                both::<DATA, V>(line, w, shared).map_err(|kind| (k, kind))?;
                if V::TRACED {
                    from.issues += u64::from(line.issues);
                }
            }
        }
        Ok(issues * u64::from(count))
    }
}
