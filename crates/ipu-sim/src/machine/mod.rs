//! All tiles of a package, from one boundary with the host to the next.
//!
//! Input: a package. Output: the machine at a host sync, with the cycle of the last arrival and
//! the cycles since the count began, by step.
//! Invariants: tiles run on their own between syncs and in parallel; what they do together (a
//! barrier, a phase) is done for all at once, in tile order; results do not depend on threads.
//! A sync with the host consumes a mark; without one all tiles wait.
//! Not here: what the bytes mean (see `host`), the order of calls (see `session`).

mod count;
mod host;
mod load;
mod phase;

use std::sync::Arc;

use ipu_package::{Package, StepInfo};
use ipu_target::issue;
use rayon::prelude::*;

use crate::fault::{ContextId, DeviceFault, FaultKind};
use crate::memo::{Calls, Memo};
use crate::supervisor::{Stop, zone};
use crate::tile::Tile;

pub use count::{CycleCount, KindCycles, OperationCycles};
pub use host::HostPages;
pub use load::LoadError;
use phase::PhaseCache;

/// The tiles of a package that have an image, and their common clock.
pub struct Machine {
    tiles: Vec<Tile>,
    /// Index into `tiles` of a logical tile.
    index: Vec<Option<u32>>,
    steps: Vec<StepInfo>,
    phases: PhaseCache,
    count: CycleCount,
    /// Whether values are computed, or cycles only.
    data: bool,
    /// The tiles wait at a host sync since this cycle.
    waiting: Option<u64>,
    /// Host syncs that the host has released in advance.
    marks: u32,
    /// Tiles that answered further syncs before.
    held: Vec<Option<Stop>>,
    pages: HostPages,
    /// The count begins at the next sync.
    count_next: bool,
    barriers: u64,
    phases_run: u64,
    words_moved: u64,
}

impl Machine {
    /// Load a package: memory, code and entries. With `data` false only cycles are computed.
    pub fn new(package: &Package, data: bool) -> Result<Machine, LoadError> {
        let (tiles, index) = load::tiles(package)?;
        Ok(Machine {
            held: vec![None; tiles.len()],
            pages: HostPages::new(&package.host.slots),
            marks: 0,
            count_next: false,
            tiles,
            index,
            steps: package.steps.clone(),
            phases: PhaseCache::default(),
            count: CycleCount::new(package.steps.len()),
            data,
            waiting: None,
            barriers: 0,
            phases_run: 0,
            words_moved: 0,
        })
    }

    /// The tile with this logical number, if it has an image.
    pub fn tile(&self, logical: u32) -> Option<&Tile> {
        let at = (*self.index.get(logical as usize)?)?;
        Some(&self.tiles[at as usize])
    }

    pub fn tile_mut(&mut self, logical: u32) -> Option<&mut Tile> {
        let at = (*self.index.get(logical as usize)?)?;
        Some(&mut self.tiles[at as usize])
    }

    /// Recall kernel calls that take the path of one that was executed. Without data only.
    pub fn recall_calls(&mut self) {
        let memo = (!self.data).then(Arc::<Memo>::default);
        for tile in &mut self.tiles {
            tile.memo = memo.clone();
        }
    }

    /// Kernel calls that were recalled and executed since [`Machine::recall_calls`].
    pub fn calls(&self) -> Calls {
        self.tiles.iter().fold(Calls::default(), |sum, tile| Calls {
            recalled: sum.recalled + tile.calls.recalled,
            executed: sum.executed + tile.calls.executed,
        })
    }

    pub fn steps(&self) -> &[StepInfo] {
        &self.steps
    }

    /// Cycles since [`Machine::begin_count`], by step.
    pub fn count(&self) -> &CycleCount {
        &self.count
    }

    /// Internal barriers, exchange phases and exchanged words so far.
    pub fn counters(&self) -> (u64, u64, u64) {
        (self.barriers, self.phases_run, self.words_moved)
    }

    /// The pages that tiles exchange with.
    pub fn pages(&self) -> &HostPages {
        &self.pages
    }

    pub fn pages_mut(&mut self) -> &mut HostPages {
        &mut self.pages
    }

    /// Start counting cycles at the last arrival at the next sync.
    pub fn count_from_next_sync(&mut self) {
        self.count_next = true;
    }

    /// Release one sync with the host.
    pub fn mark(&mut self) {
        self.marks += 1;
    }

    /// Run to the next host sync for which there is no mark; the cycle of the last arrival.
    ///
    /// The host answers at a multiple of the workers' period, so that every invocation takes the
    /// same cycles.
    pub fn run_to_host(&mut self) -> Result<u64, Box<DeviceFault>> {
        loop {
            if let Some(arrival) = self.waiting {
                if self.marks == 0 {
                    return Ok(arrival);
                }
                self.marks -= 1;
                self.waiting = None;
                let time = arrival + issue::HOST_SYNC;
                self.release(time.next_multiple_of(issue::WORKER_PERIOD));
            }
            self.waiting = Some(self.run_to_next_host_sync()?);
        }
    }

    fn run_to_next_host_sync(&mut self) -> Result<u64, Box<DeviceFault>> {
        loop {
            let stops = self.run_tiles()?;
            let at_row = |stop: &Stop| matches!(stop, Stop::Row { .. });
            if stops.iter().any(at_row) {
                self.run_phase(&stops)?;
                self.hold(&stops, at_row);
                continue;
            }
            if self.has_mail(&stops) {
                self.serve(&stops)?;
                self.hold(&stops, host::waits);
                continue;
            }
            let (kind, arrival) = self.meet(&stops)?;
            for (held, stop) in self.held.iter_mut().zip(&stops) {
                *held = match *stop {
                    Stop::Answered { left, .. } if left > 1 => Some(Stop::Answered {
                        arrival: 0,
                        left: left - 1,
                    }),
                    _ => None,
                };
            }
            if kind == zone::HOST {
                return Ok(arrival);
            }
            self.barriers += 1;
            self.release(arrival + issue::INTERNAL_SYNC);
        }
    }

    /// Keep all tiles at their stops but those at one that is over.
    fn hold(&mut self, stops: &[Stop], over: impl Fn(&Stop) -> bool) {
        let held = stops.iter().map(|stop| (!over(stop)).then_some(*stop));
        self.held = held.collect();
    }

    /// Run every tile that is not held at a stop to its next one.
    fn run_tiles(&mut self) -> Result<Vec<Stop>, Box<DeviceFault>> {
        let data = self.data;
        let results: Vec<_> = self
            .tiles
            .par_iter_mut()
            .zip(&self.held)
            .map(|(tile, held)| {
                if let Some(stop) = held {
                    Ok(*stop)
                } else if data {
                    tile.run::<true>()
                } else {
                    tile.run::<false>()
                }
            })
            .collect();
        results
            .into_iter()
            .enumerate()
            .map(|(at, result)| result.map_err(|fault| self.locate(at, fault)))
            .collect()
    }

    /// Name the operation that a tile was in.
    fn locate(&self, at: usize, mut fault: Box<DeviceFault>) -> Box<DeviceFault> {
        let step = self.tiles[at].steps.current;
        fault.operation = step
            .and_then(|step| self.steps.get(step as usize))
            .map(|step| step.operation.clone());
        fault
    }

    /// A fault of the supervisor of the tile at an index.
    fn supervisor_fault(&self, at: usize, kind: FaultKind) -> Box<DeviceFault> {
        let tile = &self.tiles[at];
        self.locate(at, tile.fault(ContextId::Supervisor, tile.pc, kind))
    }

    /// All tiles are at one sync: which, and when the last arrived. Its steps are charged.
    fn meet(&mut self, stops: &[Stop]) -> Result<(u32, u64), Box<DeviceFault>> {
        let zone_of = |stop: &Stop| match *stop {
            Stop::Sync {
                zone: zone::HOST_MASTER,
                ..
            } => Some(zone::HOST),
            Stop::Sync { zone, .. } => Some(zone),
            _ => None,
        };
        let Some(kind) = stops.iter().find_map(zone_of) else {
            let expected = "a sync that some tile takes part in";
            return Err(self.supervisor_fault(0, FaultKind::SyncMismatch { found: 1, expected }));
        };
        let (mut last, mut arrival) = (0, 0);
        for (at, stop) in stops.iter().enumerate() {
            let (found, time) = match *stop {
                Stop::Answered { arrival, .. } => (kind, arrival),
                Stop::Sync { arrival, .. } => (zone_of(stop).unwrap_or(kind), arrival),
                _ => (u32::MAX, 0),
            };
            if found != kind || kind != zone::INTERNAL && kind != zone::HOST {
                let expected = match kind {
                    zone::INTERNAL => "the internal sync of other tiles",
                    _ => "the host sync of other tiles",
                };
                return Err(self.supervisor_fault(at, FaultKind::SyncMismatch { found, expected }));
            }
            if time > arrival {
                (last, arrival) = (at, time);
            }
        }
        self.count.interval(&self.tiles[last].steps, arrival);
        if std::mem::take(&mut self.count_next) {
            self.count.begin(arrival);
        }
        Ok((kind, arrival))
    }

    /// Let all tiles go on after a sync.
    fn release(&mut self, time: u64) {
        for tile in &mut self.tiles {
            tile.time = time;
            tile.steps.begin();
        }
        self.count.released(time);
    }
}
