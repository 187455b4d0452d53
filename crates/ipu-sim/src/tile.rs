//! One tile: memory, contexts, control registers and its own clock.
//!
//! Input: code blocks and memory contents. Output: a tile that runs to the next stop of its
//! supervisor (see `supervisor`).
//! Invariants: the clock counts device cycles from the same zero on all tiles.
//! Not here: what happens between tiles (see `machine`).

use std::sync::Arc;

use ipu_isa::Mode;
use ipu_package::Mark;
use ipu_target::WORKERS;

use crate::code::CodeMap;
use crate::context::Context;
use crate::fault::{ContextId, DeviceFault, FaultKind};
use crate::matrix::Coefficients;
use crate::memo::{Calls, Memo, Pending};
use crate::memory::Memory;
use crate::trace::Tracer;

/// Number of worker contexts.
pub const WORKER_COUNT: usize = WORKERS as usize;

/// Supervisor control registers.
#[derive(Clone, Default)]
pub struct Control {
    pub fp_ictl: u32,
    pub fp_infmt: u32,
    pub fp_iscl: u32,
    pub worker_base: [u32; WORKER_COUNT],
    /// Where the next coefficients are loaded from.
    pub coefficient_load: u32,
    /// Cycle from which the pointer can be used.
    pub coefficient_load_ready: u64,
    /// Registers 160 to 171 of the exchange.
    pub exchange: [u32; 12],
    /// A recalled call skipped writes to what has no clock: formats and the coefficient pointer.
    pub stale: bool,
    /// Cycle of the `sans` that answered the next syncs, and how many.
    pub answered: Option<(u64, u32)>,
    /// Where a continued send outside rows goes on.
    pub outgoing: u32,
}

/// Words sent to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub address: u32,
    pub words: u32,
}

/// Numbers of exchange registers in [`Control::exchange`].
pub mod exchange_register {
    pub const INCOMING_MUX: usize = 0;
    pub const INCOMING_FORMAT: usize = 3;
    pub const INCOMING_BASE: usize = 4;
    pub const INCOMING_DCOUNT: usize = 6;
    pub const OUTGOING_BASE: usize = 7;
}

/// When a worker holds its issue slot.
#[derive(Clone, Copy, Default)]
pub struct Live {
    pub from: u64,
    /// First cycle at which the supervisor has the slot again.
    pub until: u64,
}

/// Issues of the workers.
#[derive(Clone, Debug, Default)]
pub struct Issues {
    /// Sum over all launches.
    pub total: [u64; WORKER_COUNT],
    /// Of each launch, when asked for.
    pub launches: Option<Vec<[u64; WORKER_COUNT]>>,
    /// Cycle counts that workers read.
    pub samples: Vec<u32>,
}

/// Which step of the package the supervisor is in, and since when.
#[derive(Clone, Default)]
pub struct StepTrack {
    /// By address.
    pub marks: Vec<Mark>,
    low: u32,
    high: u32,
    pub current: Option<u32>,
    /// Step at the last release.
    pub at_release: Option<u32>,
    /// Steps entered since the last release, and when.
    pub log: Vec<(u64, u32)>,
}

impl StepTrack {
    pub fn new(mut marks: Vec<Mark>) -> StepTrack {
        marks.sort_by_key(|mark| mark.address);
        StepTrack {
            marks,
            ..StepTrack::default()
        }
    }

    /// The tile was released from a sync.
    pub fn begin(&mut self) {
        self.at_release = self.current;
        self.log.clear();
    }

    /// The supervisor executes tile program code at `pc`.
    #[inline(always)]
    pub fn visit(&mut self, pc: u32, now: u64) {
        if pc < self.low || pc >= self.high {
            self.enter(pc, now);
        }
    }

    #[cold]
    fn enter(&mut self, pc: u32, now: u64) {
        let after = self.marks.partition_point(|mark| mark.address <= pc);
        self.low = after.checked_sub(1).map_or(0, |i| self.marks[i].address);
        self.high = self.marks.get(after).map_or(u32::MAX, |m| m.address);
        let step = after.checked_sub(1).map(|i| self.marks[i].step);
        if let Some(step) = step
            && self.current != Some(step)
        {
            self.current = Some(step);
            self.log.push((now, step));
        }
    }
}

/// One tile.
#[derive(Clone)]
pub struct Tile {
    /// Logical number.
    pub id: u32,
    pub code: CodeMap,
    pub memory: Memory,
    pub coefficients: Coefficients,
    pub workers: Vec<Context>,
    pub supervisor: Context,
    pub control: Control,
    /// Cycle of the next supervisor issue, if nothing else holds it back.
    pub time: u64,
    pub pc: u32,
    /// Cycle from which each M register of the supervisor can be used.
    pub ready: [u64; 16],
    pub live: [Live; WORKER_COUNT],
    /// Latest `until` of all workers.
    pub live_end: u64,
    /// Latest exit issue of all workers.
    pub last_exit: u64,
    pub issues: Issues,
    pub steps: StepTrack,
    /// Words sent to the host that it has not taken.
    pub outbox: Vec<Sent>,
    /// Whether copy loops of the supervisor run as one.
    pub fuse_copies: bool,
    /// Which set of kernels the tile has: tiles with equal numbers have equal kernels.
    pub kernels: u32,
    /// Durations of calls, in runs without data.
    pub memo: Option<Arc<Memo>>,
    /// The call that is recorded.
    pub pending: Option<Box<Pending>>,
    pub calls: Calls,
    /// Is told each issue outside rows.
    pub tracer: Option<Tracer>,
}

impl Tile {
    pub fn new(id: u32, code: CodeMap) -> Tile {
        Tile {
            id,
            code,
            memory: Memory::default(),
            coefficients: Coefficients::default(),
            workers: vec![Context::default(); WORKER_COUNT],
            supervisor: Context::default(),
            control: Control::default(),
            time: 0,
            pc: 0,
            ready: [0; 16],
            live: [Live::default(); WORKER_COUNT],
            live_end: 0,
            last_exit: 0,
            issues: Issues::default(),
            steps: StepTrack::default(),
            outbox: Vec::new(),
            fuse_copies: true,
            kernels: 0,
            memo: None,
            pending: None,
            calls: Calls::default(),
            tracer: None,
        }
    }

    /// A fault on this tile.
    #[cold]
    pub fn fault(&self, context: ContextId, pc: u32, kind: FaultKind) -> Box<DeviceFault> {
        let mode = match context {
            ContextId::Supervisor => Mode::Supervisor,
            ContextId::Worker(_) => Mode::Worker,
        };
        Box::new(DeviceFault {
            tile: self.id,
            context,
            pc,
            instruction: self.code.describe(pc, mode),
            kind,
            operation: None,
        })
    }
}
