//! Durations of kernel calls that were executed before, for runs without data.
//!
//! Input: a tile at the entry of a kernel. Output: the tile at the return, if a call that took the
//! same path is known.
//! Invariants: a call is recalled only when everything that decided the path of the recorded one
//! has the same value (see [`record`]), so the cycles are those of an execution. Registers that the
//! kernel wrote are undefined after a recalled call; a branch, a repeat or a launch that uses one
//! is a fault, never a wrong time.
//! Not here: which values decide the path (see [`record`]).

pub mod record;

use std::collections::HashMap;
use std::sync::RwLock;

use ipu_package::SegmentKind;
use ipu_target::issue;

use crate::exec::undefined_control;
use crate::fault::Exec;
use crate::tile::{Live, Tile, WORKER_COUNT};
use record::{Recorder, SCRATCH, Source};

/// What decides the timing of a call besides values: the code, the slot of its first cycle, and
/// what still runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which kernels the tile has (see [`Tile::kernels`]).
    kernels: u32,
    entry: u32,
    slot: u8,
    /// Cycles until each M register of the supervisor can be used.
    ready: [u8; 16],
    /// Cycles until a local sync of the workers before the call is over.
    join: u8,
    /// Whether a worker was ever launched.
    launched: bool,
}

/// What a call does to the clock of its tile, relative to its first cycle.
#[derive(Clone)]
struct Effect {
    cycles: u64,
    ready: [u8; 16],
    /// Of each worker that was launched.
    live: [Option<Live>; WORKER_COUNT],
    live_end: u64,
    last_exit: u64,
    issues: [u64; WORKER_COUNT],
    /// M registers of the supervisor that were written.
    written: u16,
}

/// Recorded calls whose paths were decided by the same sources, by their values.
struct Group {
    sources: Vec<Source>,
    effects: HashMap<Vec<u32>, Effect>,
}

/// Calls of all tiles. Looked up by key only, never walked in map order.
#[derive(Default)]
pub struct Memo {
    calls: RwLock<HashMap<Key, Vec<Group>>>,
}

/// Kernel calls of a tile that were recalled, and those that were executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub recalled: u64,
    pub executed: u64,
}

/// A call that is executed to be recorded.
#[derive(Clone)]
pub struct Pending {
    /// Nothing when the call begins in a state that is not kept.
    key: Option<Key>,
    start: u64,
    return_to: u32,
    issues: [u64; WORKER_COUNT],
    pub recorder: Recorder,
}

impl Memo {
    fn find(&self, key: &Key, tile: &Tile) -> Option<Effect> {
        let calls = self.calls.read().expect("no panic while locked");
        let mut values = Vec::new();
        calls.get(key)?.iter().find_map(|group| {
            values.clear();
            for &source in &group.sources {
                values.push(current(source, tile)?);
            }
            group.effects.get(&values).cloned()
        })
    }

    fn insert(&self, key: Key, decided: Vec<(Source, u32)>, effect: Effect) {
        let (sources, values): (Vec<Source>, Vec<u32>) = decided.into_iter().unzip();
        let mut calls = self.calls.write().expect("no panic while locked");
        let groups = calls.entry(key).or_default();
        let group = match groups.iter_mut().find(|group| group.sources == sources) {
            Some(group) => group,
            None => {
                let effects = HashMap::new();
                groups.push(Group { sources, effects });
                groups.last_mut().expect("just pushed")
            }
        };
        group.effects.insert(values, effect);
    }
}

/// The value of a source before a call.
fn current(source: Source, tile: &Tile) -> Option<u32> {
    let word = |address: u32| Some(tile.memory.load(address, 4).ok()?.0);
    match source {
        Source::Register(r) => Some(tile.supervisor.m(r)),
        Source::Word(address) => word(address),
        Source::Frame(offset) => {
            let address = tile.supervisor.m(0).wrapping_add(offset);
            // A kernel's own words are not those of a frame.
            if SCRATCH.contains(&address) {
                return None;
            }
            word(address)
        }
    }
}

/// Cycles from `now` to `then` in a byte.
fn ahead(then: u64, now: u64) -> Option<u8> {
    u8::try_from(then.saturating_sub(now)).ok()
}

impl Tile {
    /// What is known of a call whose kernel stands at the program counter.
    fn call_key(&self) -> Option<Key> {
        if self.live_end > self.time {
            return None;
        }
        let mut ready = [0; 16];
        for (slot, &then) in ready.iter_mut().zip(&self.ready) {
            *slot = ahead(then, self.time)?;
        }
        let join = match self.live_end {
            0 => 0,
            _ => ahead(self.last_exit + issue::SYNC_LOCAL_AFTER_EXIT, self.time)?,
        };
        Some(Key {
            kernels: self.kernels,
            entry: self.pc,
            slot: (self.time % issue::WORKER_PERIOD) as u8,
            ready,
            join,
            launched: self.live_end != 0,
        })
    }

    /// After a `call` of the tile program: stand at the return if the call is known, else begin
    /// to record it.
    pub fn recall(&mut self, link: u8, return_to: u32) {
        let Some(memo) = &self.memo else {
            return;
        };
        let kind = self.code.find(self.pc).map(|block| block.kind);
        if kind != Ok(SegmentKind::Kernel) {
            return;
        }
        let key = self.call_key();
        if let Some(effect) = key.and_then(|key| memo.find(&key, self)) {
            self.calls.recalled += 1;
            self.apply(&effect);
            self.pc = return_to;
            return;
        }
        self.calls.executed += 1;
        self.pending = Some(Box::new(Pending {
            key,
            start: self.time,
            return_to,
            issues: self.issues.total,
            recorder: Recorder::new(link, self.supervisor.m(0)),
        }));
    }

    /// When a call that is recorded has returned, keep it.
    pub fn returned(&mut self) -> Exec<()> {
        let return_to = self.pending.as_ref().map(|pending| pending.return_to);
        if return_to != Some(self.pc) {
            return Ok(());
        }
        let pending = self.pending.take().expect("just seen");
        if self.control.stale && pending.recorder.used_stale() {
            return Err(undefined_control());
        }
        if let Some(key) = pending.key
            && let Some(effect) = self.effect(&pending)
            && let Some(decided) = pending.recorder.decided()
            && let Some(memo) = &self.memo
        {
            memo.insert(key, decided, effect);
        }
        Ok(())
    }

    fn effect(&self, pending: &Pending) -> Option<Effect> {
        let since = |then: u64| then.saturating_sub(pending.start);
        let mut ready = [0; 16];
        for (slot, &then) in ready.iter_mut().zip(&self.ready) {
            *slot = ahead(then, self.time)?;
        }
        let launched = pending.recorder.launched;
        let mut issues = self.issues.total;
        for (count, before) in issues.iter_mut().zip(pending.issues) {
            *count -= before;
        }
        Some(Effect {
            cycles: self.time - pending.start,
            ready,
            live: std::array::from_fn(|k| {
                let Live { from, until } = self.live[k];
                let (from, until) = (since(from), since(until));
                launched.then_some(Live { from, until })
            }),
            live_end: since(self.live_end),
            last_exit: since(self.last_exit),
            issues,
            written: pending.recorder.written,
        })
    }

    fn apply(&mut self, effect: &Effect) {
        let start = self.time;
        self.time = start + effect.cycles;
        for (then, &cycles) in self.ready.iter_mut().zip(&effect.ready) {
            *then = self.time + u64::from(cycles);
        }
        let mut launched = false;
        for (slot, live) in self.live.iter_mut().zip(effect.live) {
            if let Some(Live { from, until }) = live {
                let (from, until) = (start + from, start + until);
                *slot = Live { from, until };
                launched = true;
            }
        }
        if launched {
            self.live_end = start + effect.live_end;
            self.last_exit = start + effect.last_exit;
            for worker in &mut self.workers {
                worker.m_taint = 0x7fff;
            }
        }
        for (total, issues) in self.issues.total.iter_mut().zip(effect.issues) {
            *total += issues;
        }
        self.supervisor.m_taint |= u32::from(effect.written) & 0x7fff;
        self.control.stale = true;
        // No address: coefficients that are put before the pointer is set fault.
        self.control.coefficient_load = u32::MAX;
    }
}
