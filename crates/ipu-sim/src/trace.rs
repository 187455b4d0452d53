//! A trace of what a tile issues.
//!
//! Input: contexts as their instructions issue. Output: one [`Issued`] for each issue to a sink.
//! Invariants: what is traced computes the same values in the same cycles as what is not; a tile
//! without a tracer does nothing for it. Issues come in the order in which contexts run: each
//! worker from its launch to its exit, then the supervisor on from the launch.
//! Not here: text of instructions, where the trace goes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::code::{Block, Line};
use ipu_isa::float::F8;

use crate::context::Context;
use crate::exec::Shared;
use crate::fault::ContextId;
use crate::matrix::LANES;
use crate::memo::record::SUPERVISOR;
use crate::numeric::{Lanes, NanOnOverflow, Portable};
use crate::op::Op;
use crate::product::Plan;
use crate::tile::{Tile, WORKER_COUNT};

/// One issue of one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub cycle: u64,
    pub context: ContextId,
    pub pc: u32,
    /// The word, and the one after it: of a bundle, its auxiliary slot.
    pub words: [u32; 2],
    /// M registers whose value it changed.
    pub changed_m: Vec<(u8, u32)>,
    /// A registers whose value it changed.
    pub changed_a: Vec<(u8, u32)>,
}

/// Who is told.
pub type Sink = Arc<Mutex<dyn FnMut(&Issued) + Send>>;

/// Follows the contexts of one tile.
#[derive(Clone)]
pub struct Tracer {
    sink: Sink,
    /// The last issue of each context, until its results are known; the supervisor stands last.
    pending: [Option<Box<Pending>>; WORKER_COUNT + 1],
}

#[derive(Clone)]
struct Pending {
    issued: Issued,
    m: [u32; 16],
    a: [u32; 16],
}

impl Tracer {
    pub fn new(sink: Sink) -> Tracer {
        let pending = Default::default();
        Tracer { sink, pending }
    }

    /// An instruction of a context issues; `state` is before it.
    #[cold]
    pub(crate) fn issue(
        &mut self,
        cycle: u64,
        context: ContextId,
        pc: u32,
        words: [u32; 2],
        state: &Context,
    ) {
        self.settle(context, state);
        let (changed_m, changed_a) = (Vec::new(), Vec::new());
        let issued = Issued {
            cycle,
            context,
            pc,
            words,
            changed_m,
            changed_a,
        };
        let (m, a) = (state.m, std::array::from_fn(|index| state.a[index]));
        self.pending[slot(context)] = Some(Box::new(Pending { issued, m, a }));
    }

    /// The last issue of a context is over; `state` is after it.
    #[cold]
    pub(crate) fn settle(&mut self, context: ContextId, state: &Context) {
        let Some(mut pending) = self.pending[slot(context)].take() else {
            return;
        };
        pending.issued.changed_m = changed(&pending.m, &state.m);
        pending.issued.changed_a = changed(&pending.a, &state.a);
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink(&pending.issued);
    }
}

impl Tile {
    /// Tell what follows the tile that its supervisor issues a line.
    #[inline(always)]
    pub(crate) fn follow<const DATA: bool, const TRACED: bool>(
        &mut self,
        line: &Line,
        block: &Block,
    ) {
        if !DATA && let Some(pending) = &mut self.pending {
            let (recorder, context) = (&mut pending.recorder, &self.supervisor);
            recorder.line(SUPERVISOR, line, context, &self.memory);
        }
        if TRACED {
            self.trace(line, block);
        }
    }

    /// Tell the tracer that the supervisor issues a line.
    #[cold]
    fn trace(&mut self, line: &Line, block: &Block) {
        let (mut cycle, pc) = (self.issue(line), self.pc);
        if let Op::PutCoefficients64 | Op::PutCoefficients128 = line.main.op {
            cycle = self.free_cycle(cycle.max(self.control.coefficient_load_ready));
        }
        let first = ((pc - block.address) / 4) as usize;
        let words = [first, first + 1].map(|at| block.words.get(at).copied().unwrap_or(0));
        if let Some(tracer) = &mut self.tracer {
            tracer.issue(cycle, ContextId::Supervisor, pc, words, &self.supervisor);
        }
    }
}

fn slot(context: ContextId) -> usize {
    match context {
        ContextId::Worker(index) => usize::from(index),
        ContextId::Supervisor => WORKER_COUNT,
    }
}

fn changed(before: &[u32; 16], after: &[u32]) -> Vec<(u8, u32)> {
    let pairs = (0..).zip(before.iter().zip(after));
    let differ = pairs.filter(|(_, (before, after))| before != after);
    differ
        .map(|(register, (_, after))| (register, *after))
        .collect()
}

/// Arithmetic of a traced interpreter: the portable one.
pub(crate) struct Traced;

impl Lanes for Traced {
    const TRACED: bool = true;

    fn widen4(bits: u64) -> [f32; 4] {
        Portable::widen4(bits)
    }

    fn narrow4(values: [f32; 4], overflow: NanOnOverflow) -> u64 {
        Portable::narrow4(values, overflow)
    }

    fn widen16(bits: [u64; 4]) -> [f32; LANES] {
        Portable::widen16(bits)
    }

    fn narrow16(values: &[f32; LANES], overflow: NanOnOverflow) -> [u64; 4] {
        Portable::narrow16(values, overflow)
    }

    fn widen8(bits: u64, format: F8) -> [f32; 8] {
        Portable::widen8(bits, format)
    }

    /// Every issue is told, so nothing is computed as a whole.
    fn product(_: &Plan, _: &mut Context, _: &mut Shared) -> Option<u64> {
        None
    }

    fn accumulate<const K: usize, const G: usize>(
        acc: &mut [[f32; LANES]; G],
        x: &[[f32; K]; G],
        rows: &[[f32; LANES]; K],
    ) {
        Portable::accumulate(acc, x, rows);
    }
}
