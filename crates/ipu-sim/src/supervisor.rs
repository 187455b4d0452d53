//! The supervisor of a tile, with the clock of the tile.
//!
//! Input: a tile. Output: the tile at its next stop: a global sync, the entry of a timed row, or
//! the end of a call.
//! Invariants: in order, one instruction a cycle, only in cycles whose slot no worker holds;
//! a result can be used `DEPENDENT_USE` cycles after its issue. Workers run to their exit at
//! launch and are timed by their issues.
//! Not here: what a stop means for other tiles (see `machine`).

use std::sync::Arc;

use ipu_isa::{Mode, decode};
use ipu_package::SegmentKind;
use ipu_target::issue;

use crate::code::{Block, Line, LineKind, broken};
use crate::context::scale_from_bits;
use crate::exec::{self, BranchOp, Shared, undefined_control};
use crate::fault::{ContextId, DeviceFault, Exec, FaultKind, HostFault, Use};
use crate::op::{Micro, Op};
use crate::tile::{Live, Sent, Tile, WORKER_COUNT, exchange_register};
use crate::worker::{Launch, branch};

/// Supervisor instructions between stops after which the program counts as one that never stops.
const INSTRUCTIONS_MAX: u64 = 1 << 34;
/// Return address of a call made from outside: no code is there.
pub const RETURN_ADDRESS: u32 = 0x4c000;
/// `$CR`: zero the coefficients.
const CLEAR_COEFFICIENTS: u32 = 1 << 2;

/// Supervisor control registers.
pub(crate) mod csr {
    pub const CR: i32 = 2;
    pub const TILE_ID: i32 = 3;
    pub const FP_ICTL: i32 = 32;
    pub const WORKER0_BASE: i32 = 33;
    pub const WORKER5_BASE: i32 = 38;
    pub const FP_INFMT: i32 = 49;
    pub const FP_ISCL: i32 = 51;
    pub const CCCSLOAD: i32 = 80;
    pub const SCOUNT_LOW: i32 = 96;
    pub const SCOUNT_HIGH: i32 = 97;
    pub const DEBUG_DATA: i32 = 112;
    pub const EXCHANGE_FIRST: i32 = 160;
    pub const EXCHANGE_LAST: i32 = 171;
}

/// Sync zones.
pub mod zone {
    pub const RECEIVE: u32 = 0;
    pub const ANSWERED: u32 = 1;
    pub const LOCAL: u32 = 2;
    pub const INTERNAL: u32 = 3;
    pub const HOST: u32 = 7;
    pub const HOST_MASTER: u32 = 15;
}

/// Why the supervisor stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At a sync that other tiles or the host take part in, since `arrival`.
    Sync { zone: u32, arrival: u64 },
    /// At the answered sync, until as many syncs of others are over.
    Answered { arrival: u64, left: u32 },
    /// At the first word of a timed row.
    Row { address: u32 },
    /// Returned to [`RETURN_ADDRESS`].
    Return,
}

enum Next {
    Following,
    Jump(u32),
    Stop(Stop),
}

impl Tile {
    /// Run to the next stop.
    pub fn run<const DATA: bool>(&mut self) -> Result<Stop, Box<DeviceFault>> {
        let mut budget = INSTRUCTIONS_MAX;
        loop {
            if self.pc == RETURN_ADDRESS {
                return Ok(Stop::Return);
            }
            if !DATA && let Err(kind) = self.returned() {
                return Err(self.fault(ContextId::Supervisor, self.pc, *kind));
            }
            let block = match self.code.find(self.pc) {
                Ok(block) => Arc::clone(block),
                Err(kind) => return Err(self.fault(ContextId::Supervisor, self.pc, *kind)),
            };
            if block.kind == SegmentKind::Row {
                self.pending = None;
                return Ok(Stop::Row { address: self.pc });
            }
            let stop = match self.tracer {
                None => self.run_block::<DATA, false>(&block, &mut budget)?,
                Some(_) => self.run_block::<DATA, true>(&block, &mut budget)?,
            };
            if let Some(stop) = stop {
                self.pending = None;
                return Ok(stop);
            }
        }
    }

    fn run_block<const DATA: bool, const TRACED: bool>(
        &mut self,
        block: &Block,
        budget: &mut u64,
    ) -> Result<Option<Stop>, Box<DeviceFault>> {
        let lines = block.lines(Mode::Supervisor);
        let program = block.kind == SegmentKind::TileProgram;
        if !DATA && let Some(pending) = &mut self.pending {
            pending.recorder.enter(block.kind);
        }
        while let Some(line) = self
            .pc
            .checked_sub(block.address)
            .and_then(|offset| lines.get(offset as usize / 4))
        {
            if !self.pc.is_multiple_of(4) {
                return Ok(None);
            }
            if program {
                self.steps.visit(self.pc, self.time);
            }
            if DATA && !TRACED && !program && self.puts(line, lines, block, budget) {
                continue;
            }
            self.follow::<DATA, TRACED>(line, block);
            *budget -= 1;
            let next = match line.kind {
                LineKind::Control(false) if line.main.op == Op::Row => {
                    let word = block.words[((self.pc - block.address) / 4) as usize];
                    self.send(word, line)
                }
                LineKind::Main => self.plain::<DATA>(line),
                LineKind::Control(false) => self.control::<DATA>(line)?,
                _ => {
                    let word = block.words[((self.pc - block.address) / 4) as usize];
                    Err(broken(line, word, Mode::Supervisor))
                }
            };
            let next = match next {
                Ok(_) if *budget == 0 => Err(Box::new(FaultKind::Runaway(INSTRUCTIONS_MAX))),
                other => other,
            };
            match next {
                Ok(Next::Following) => self.pc += 4,
                Ok(Next::Jump(target)) => {
                    let branch = std::mem::replace(&mut self.pc, target);
                    match line.main.op {
                        Op::Branch(BranchOp::Call) if !DATA && program => {
                            self.recall(line.main.r[0], branch + 4);
                        }
                        Op::Branch(BranchOp::NotZeroDecrement)
                            if (block.address..branch).contains(&target) =>
                        {
                            let index = |pc: u32| (pc - block.address) as usize / 4;
                            self.copy_loop::<DATA>(&lines[index(target)..=index(branch)]);
                        }
                        _ => {}
                    }
                }
                Ok(Next::Stop(stop)) => {
                    self.pc += 4;
                    return Ok(Some(stop));
                }
                Err(kind) => return Err(self.fault(ContextId::Supervisor, self.pc, *kind)),
            }
        }
        Ok(None)
    }

    /// The cycle at which an instruction issues.
    #[inline(always)]
    pub(crate) fn issue(&self, line: &Line) -> u64 {
        let mut earliest = self.time;
        let mut reads = line.reads;
        while reads != 0 {
            let r = reads.trailing_zeros() as usize;
            earliest = earliest.max(self.ready[r]);
            reads &= reads - 1;
        }
        self.free_cycle(earliest)
    }

    /// The first cycle from `earliest` on whose slot no worker holds.
    pub(crate) fn free_cycle(&self, earliest: u64) -> u64 {
        if earliest >= self.live_end {
            return earliest;
        }
        let period = issue::WORKER_PERIOD;
        let slot = |from: u64, k: u64| from + (k + period - from % period) % period;
        (0..WORKER_COUNT)
            .map(|k| {
                let turn = slot(earliest, k as u64);
                let Live { from, until } = self.live[k];
                if turn >= from && turn < until {
                    slot(until, k as u64)
                } else {
                    turn
                }
            })
            .min()
            .unwrap_or(earliest)
    }

    #[inline(always)]
    fn results(&mut self, writes: u16, at: u64) {
        let mut writes = writes;
        while writes != 0 {
            self.ready[writes.trailing_zeros() as usize] = at;
            writes &= writes - 1;
        }
    }

    #[inline(always)]
    fn plain<const DATA: bool>(&mut self, line: &Line) -> Exec<Next> {
        let at = self.issue(line);
        exec::main::<DATA>(&line.main, &mut self.supervisor, &mut self.memory)?;
        self.results(line.writes, at + issue::DEPENDENT_USE);
        self.time = at + issue::SUPERVISOR_ISSUE;
        Ok(Next::Following)
    }

    fn control<const DATA: bool>(&mut self, line: &Line) -> Result<Exec<Next>, Box<DeviceFault>> {
        let mut at = self.issue(line);
        let micro = &line.main;
        Ok(match micro.op {
            Op::Branch(op) => self.branch(op, line, at),
            Op::Get => self.get(line, at),
            Op::Put => self.put(micro, at),
            Op::PutCoefficients64 | Op::PutCoefficients128 => {
                at = self.free_cycle(at.max(self.control.coefficient_load_ready));
                self.time = at + issue::COEFFICIENT_PUT;
                self.put_coefficients(micro)
            }
            Op::RunAll => return self.launch_all::<DATA>(micro, at),
            Op::Run => return self.launch_one::<DATA>(micro, at),
            Op::Sync => self.sync(micro.imm as u32, at),
            Op::Sans => {
                self.control.answered = Some((at, micro.imm as u32 + 1));
                self.time = at + issue::SUPERVISOR_ISSUE;
                Ok(Next::Following)
            }
            Op::Trap => Err(Box::new(FaultKind::Trap(micro.imm as u32))),
            _ => Err(Box::new(FaultKind::Unimplemented("row word outside a row"))),
        })
    }

    fn branch(&mut self, op: BranchOp, line: &Line, at: u64) -> Exec<Next> {
        let after = self.pc + 4;
        let (taken, target) = branch(op, &line.main, after, &mut self.supervisor)?;
        self.results(line.writes, at + issue::DEPENDENT_USE);
        self.time = at
            + match op {
                BranchOp::Register => issue::BRANCH_REGISTER,
                BranchOp::Immediate => issue::BRANCH_IMMEDIATE,
                BranchOp::Call => issue::CALL,
                _ if taken => issue::BRANCH_TAKEN,
                _ => issue::BRANCH_UNTAKEN,
            };
        Ok(if taken {
            Next::Jump(target)
        } else {
            Next::Following
        })
    }

    fn get(&mut self, line: &Line, at: u64) -> Exec<Next> {
        let control = &self.control;
        let number = line.main.imm;
        let kept_by_kernels = [csr::FP_ICTL, csr::FP_INFMT, csr::FP_ISCL, csr::CCCSLOAD];
        if control.stale && kept_by_kernels.contains(&number) {
            return Err(undefined_control());
        }
        let value = match number {
            csr::TILE_ID => ipu_target::topology::physical(self.id),
            csr::FP_ICTL => control.fp_ictl,
            csr::FP_INFMT => control.fp_infmt,
            csr::FP_ISCL => control.fp_iscl,
            csr::WORKER0_BASE..=csr::WORKER5_BASE => {
                control.worker_base[(number - csr::WORKER0_BASE) as usize]
            }
            csr::CCCSLOAD => control.coefficient_load,
            csr::SCOUNT_LOW => at as u32,
            csr::SCOUNT_HIGH => (at >> 32) as u32,
            csr::EXCHANGE_FIRST..=csr::EXCHANGE_LAST => {
                control.exchange[(number - csr::EXCHANGE_FIRST) as usize]
            }
            other => return Err(Box::new(FaultKind::UnknownRegister(other as u16))),
        };
        self.supervisor.set_m(line.main.r[0], value, false);
        self.results(line.writes, at + issue::DEPENDENT_USE);
        self.time = at + issue::SUPERVISOR_ISSUE;
        Ok(Next::Following)
    }

    fn put(&mut self, micro: &Micro, at: u64) -> Exec<Next> {
        let r = micro.r[0];
        if self.supervisor.m_tainted(r) {
            return Err(undefined_control());
        }
        let value = self.supervisor.m(r);
        let control = &mut self.control;
        match micro.imm {
            csr::CR => {
                if value & CLEAR_COEFFICIENTS != 0 {
                    self.coefficients.clear();
                }
            }
            csr::FP_ICTL => control.fp_ictl = value,
            csr::FP_INFMT => control.fp_infmt = value,
            csr::FP_ISCL => control.fp_iscl = value,
            csr::WORKER0_BASE..=csr::WORKER5_BASE => {
                control.worker_base[(micro.imm - csr::WORKER0_BASE) as usize] = value;
            }
            csr::CCCSLOAD => {
                control.coefficient_load = value;
                control.coefficient_load_ready = at + issue::COEFFICIENT_POINTER_USE;
            }
            csr::DEBUG_DATA => {}
            number @ csr::EXCHANGE_FIRST..=csr::EXCHANGE_LAST => {
                control.exchange[(number - csr::EXCHANGE_FIRST) as usize] = value;
            }
            other => return Err(Box::new(FaultKind::UnknownRegister(other as u16))),
        }
        self.time = at + issue::PUT;
        Ok(Next::Following)
    }

    fn put_coefficients(&mut self, micro: &Micro) -> Exec<Next> {
        let from = self.control.coefficient_load;
        let entry = micro.imm as u8;
        let (low, undefined) = self.memory.load64(from)?;
        self.coefficients.set(entry, low, undefined != 0);
        if micro.op == Op::PutCoefficients128 {
            self.memory.check128(from)?;
            let (high, undefined) = self.memory.load64(from + 8)?;
            self.coefficients
                .set(entry.wrapping_add(1), high, undefined != 0);
            self.control.coefficient_load = from.wrapping_add(16);
        } else {
            self.control.coefficient_load = from.wrapping_add(8);
        }
        Ok(Next::Following)
    }

    fn launch_all<const DATA: bool>(
        &mut self,
        micro: &Micro,
        at: u64,
    ) -> Result<Exec<Next>, Box<DeviceFault>> {
        if let Some(k) = (0..WORKER_COUNT).find(|&k| self.live[k].until > at) {
            return Ok(Err(Box::new(FaultKind::WorkersBusy(k as u32))));
        }
        let mut issues = [0; WORKER_COUNT];
        for (k, slot) in issues.iter_mut().enumerate() {
            match self.launch::<DATA>(k, micro, 4 * k as u32, at)? {
                Ok(count) => *slot = count,
                Err(kind) => return Ok(Err(kind)),
            }
        }
        if let Some(launches) = &mut self.issues.launches {
            launches.push(issues);
        }
        Ok(Ok(Next::Following))
    }

    fn launch_one<const DATA: bool>(
        &mut self,
        micro: &Micro,
        at: u64,
    ) -> Result<Exec<Next>, Box<DeviceFault>> {
        let Some(k) = (0..WORKER_COUNT).find(|&k| self.live[k].until <= at) else {
            return Ok(Err(Box::new(FaultKind::WorkersBusy(0))));
        };
        let launched = self.launch::<DATA>(k, micro, 4, at)?;
        Ok(launched.map(|_| Next::Following))
    }

    /// Run worker `k` to its exit. `unit` times the immediate is added to the base.
    fn launch<const DATA: bool>(
        &mut self,
        k: usize,
        micro: &Micro,
        unit: u32,
        at: u64,
    ) -> Result<Exec<u64>, Box<DeviceFault>> {
        let [entry, base, ..] = micro.r;
        if self.supervisor.m_tainted(entry) | self.supervisor.m_tainted(base) {
            return Ok(Err(Box::new(FaultKind::Undefined(Use::Address))));
        }
        let period = issue::WORKER_PERIOD;
        let from = at + issue::LAUNCH;
        let start = from + (k as u64 + period - from % period) % period;
        let vertex = self
            .supervisor
            .m(base)
            .wrapping_add(unit.wrapping_mul(micro.imm as u32));
        if let Some(tracer) = &mut self.tracer {
            // A launch changes no register of the supervisor.
            tracer.settle(ContextId::Supervisor, &self.supervisor);
        }
        let worker = &mut self.workers[k];
        worker.m[12] = self.control.worker_base[k];
        worker.m[13] = vertex;
        worker.m_taint &= !0x3000;
        worker.fp_ctl = self.control.fp_ictl;
        worker.fp_nfmt = self.control.fp_infmt & 3;
        worker.fp_scl = scale_from_bits(self.control.fp_iscl);
        worker.fp_sts = 0;
        let launch = Launch {
            code: &self.code,
            index: k as u8,
            entry: self.supervisor.m(entry),
            start,
        };
        let mut shared = Shared {
            memory: &mut self.memory,
            coefficients: &mut self.coefficients,
            recorder: self.pending.as_mut().map(|pending| &mut pending.recorder),
            tracer: self.tracer.as_mut(),
        };
        let done = match launch.run::<DATA>(worker, &mut shared) {
            Ok(done) => done,
            Err(fault) => {
                return Err(self.fault(ContextId::Worker(k as u8), fault.pc, *fault.kind));
            }
        };
        let exit = start + period * (done.issues - 1);
        self.live[k] = Live {
            from: start,
            until: exit + period,
        };
        self.live_end = self.live_end.max(exit + period);
        self.last_exit = self.last_exit.max(exit);
        self.issues.total[k] += done.issues;
        self.issues.samples.extend(done.sample);
        self.time = at + issue::SUPERVISOR_ISSUE;
        Ok(Ok(done.issues))
    }

    fn sync(&mut self, zone: u32, at: u64) -> Exec<Next> {
        if zone == zone::LOCAL {
            let join = self.last_exit + issue::SYNC_LOCAL_AFTER_EXIT;
            let joined = if self.live_end == 0 { 0 } else { join };
            self.time = joined.max(at + issue::SYNC_LOCAL);
            return Ok(Next::Following);
        }
        if self.live_end > at {
            return Err(Box::new(FaultKind::WorkersAtSync));
        }
        self.time = at + issue::SUPERVISOR_ISSUE;
        if zone != zone::ANSWERED {
            return Ok(Next::Stop(Stop::Sync { zone, arrival: at }));
        }
        match self.control.answered.take() {
            Some((arrival, left)) => Ok(Next::Stop(Stop::Answered { arrival, left })),
            None => Err(Box::new(FaultKind::SyncMismatch {
                found: zone,
                expected: "a `sans` before the answered sync",
            })),
        }
    }

    /// An instruction of rows outside a row: words for the host.
    fn send(&mut self, word: u32, line: &Line) -> Exec<Next> {
        let at = self.issue(line);
        let decoded = decode(word, Mode::Supervisor).expect("the line is an instruction");
        let operand = |index: usize| decoded.ops[index] as u32;
        let events = operand(0) + 1;
        self.time = at + u64::from(events);
        let control = &mut self.control;
        let mux = control.exchange[exchange_register::INCOMING_MUX];
        let address = match decoded.form().mnemonic {
            "delay" => return Ok(Next::Following),
            "send" => control.exchange[exchange_register::OUTGOING_BASE] + 4 * operand(1),
            "sendoff" => control.outgoing + 4 * operand(1),
            _ => return Err(Box::new(FaultKind::Unimplemented("row word outside a row"))),
        };
        if mux != ipu_target::topology::host_endpoint_mux(ipu_target::topology::physical(self.id)) {
            return Err(Box::new(FaultKind::Host(HostFault::NotSelected { mux })));
        }
        control.outgoing = address + 4 * events;
        self.outbox.push(Sent {
            address,
            words: events,
        });
        Ok(Next::Following)
    }

    /// Continue after the row that the tile stopped at, whose last event is over at `end`.
    pub fn leave_row(&mut self, end: u64) {
        self.time = end.max(self.ready[10]) + issue::BRANCH_REGISTER;
        self.pc = self.supervisor.m(10);
    }
}
