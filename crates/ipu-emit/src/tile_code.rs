//! The supervisor program and the frames of one tile.
//!
//! Input: the tile's part of the placed program. Output: program words, frames, rows, marks.
//! Invariants: the program loops for ever between host syncs; frames that hold a `Repeat` member's
//! address are advanced at the end of each iteration and restored when the loop is left.
//! Not here: what other tiles do.

use std::collections::BTreeMap;

use ipu_ir::program::{Call, Placed, PlacedPhase, Row, Step, Word};
use ipu_package::Mark;
use ipu_target::memory::RUNTIME_STATE;

use crate::host_calls::{CALLS, HostCalls, INPUTS, OUTPUTS, PARAMETERS, Table};
use crate::kernels::{KernelImage, TABLES};
use crate::program::EmitError;
use crate::words::{
    ANSWERS_MAX, BARRIER_LINK, FRAME, INCOMING_BASE, INCOMING_DCOUNT, LINK, MOVING_BASE,
    OUTGOING_BASE, SCRATCH, SCRATCH2, STATE, Words, ZERO, ZONE_ANSWERED, ZONE_INTERNAL,
};

/// Word of the runtime state that counts iterations.
const ITERATION: u32 = 1;

/// What one tile does, in program order.
#[derive(Default)]
pub struct TileWork<'a> {
    steps: Vec<Work<'a>>,
}

enum Work<'a> {
    Call {
        info: u32,
        call: &'a Call,
    },
    /// A phase; `None` when the tile takes no part.
    Phase {
        info: u32,
        row: Option<&'a Row>,
    },
    Upload {
        info: u32,
    },
    Download {
        info: u32,
    },
    Begin,
    End {
        count: u32,
    },
}

/// Split the program's steps by tile.
pub fn per_tile(placed: &Placed) -> Vec<TileWork<'_>> {
    let tiles = placed.program.tiles as usize;
    let mut work: Vec<TileWork<'_>> = (0..tiles).map(|_| TileWork::default()).collect();
    let mut phases = placed.phases.iter();
    split(&placed.program.steps, &mut phases, &mut work);
    work
}

fn split<'a>(
    steps: &'a [Step],
    phases: &mut std::slice::Iter<'a, PlacedPhase>,
    work: &mut [TileWork<'a>],
) {
    let each = |work: &mut [TileWork<'a>], make: &dyn Fn() -> Work<'a>| {
        for tile in work {
            tile.steps.push(make());
        }
    };
    for step in steps {
        match step {
            Step::HostUpload { info } => each(work, &|| Work::Upload { info: *info }),
            Step::HostDownload { info } => each(work, &|| Work::Download { info: *info }),
            Step::Calls { info, calls } => {
                for call in calls {
                    work[call.tile as usize]
                        .steps
                        .push(Work::Call { info: *info, call });
                }
            }
            Step::Phase { info, .. } => {
                let phase = phases.next().expect("each phase has a schedule");
                // Nothing moves between tiles: no barrier.
                if phase.rows.is_empty() {
                    continue;
                }
                let mut rows = phase.rows.iter().peekable();
                for (tile, work) in work.iter_mut().enumerate() {
                    let row = rows.next_if(|row| row.tile as usize == tile);
                    work.steps.push(Work::Phase { info: *info, row });
                }
            }
            Step::Repeat { count, body } => {
                each(work, &|| Work::Begin);
                split(body, phases, work);
                each(work, &|| Work::End { count: *count });
            }
        }
    }
}

/// Code and data of one tile.
pub struct TileCode {
    /// Host programs, then the tile's own.
    pub program: Words,
    pub entry: u32,
    pub frames: Words,
    pub rows: Vec<(u32, Vec<u32>)>,
    pub marks: Vec<Mark>,
}

/// A frame word that moves with the iteration.
struct Moving {
    address: u32,
    first: u32,
    step: u32,
}

struct Emitter<'a> {
    placed: &'a Placed,
    kernels: &'a KernelImage,
    code: TileCode,
    /// Constant frames by content.
    shared: BTreeMap<Vec<u32>, u32>,
    moving: Vec<Moving>,
    loop_start: u32,
    host: [Table; CALLS],
}

impl TileCode {
    pub fn new(
        placed: &Placed,
        kernels: &KernelImage,
        tile: u32,
        work: &TileWork<'_>,
        host: &HostCalls,
    ) -> Result<Self, EmitError> {
        let mut code = TileCode {
            program: Words::new(kernels.end),
            entry: 0,
            frames: Words::new(TABLES.start),
            rows: Vec::new(),
            marks: Vec::new(),
        };
        let host = host.emit(tile, &mut code.program, &mut code.frames);
        code.entry = code.program.here();
        let mut emitter = Emitter {
            placed,
            kernels,
            code,
            shared: BTreeMap::new(),
            moving: Vec::new(),
            loop_start: 0,
            host,
        };
        emitter.emit(work);
        emitter.code.checked(tile)
    }

    /// The code of a tile that serves the host and takes no other part.
    pub fn serving(
        placed: &Placed,
        kernels: &KernelImage,
        tile: u32,
        host: &HostCalls,
    ) -> Result<Self, EmitError> {
        let mut program = Words::new(kernels.end);
        let mut frames = Words::new(TABLES.start);
        let tables = host.emit(tile, &mut program, &mut frames);
        let entry = program.here();
        let host_run = kernels.entries["host_run"];
        program.begin();
        program.host_call(tables[PARAMETERS], host_run);
        let top = program.here();
        let mut phases = placed.phases.iter();
        let mut syncs = 0;
        for step in &placed.program.steps {
            match step {
                Step::HostUpload { .. } => {
                    answer(&mut program, &mut syncs);
                    program.host_call(tables[INPUTS], host_run);
                    syncs = 1;
                }
                Step::HostDownload { .. } => {
                    answer(&mut program, &mut syncs);
                    program.host_call(tables[OUTPUTS], host_run);
                }
                _ => {}
            }
            syncs += phase_count(step, &mut phases);
        }
        answer(&mut program, &mut syncs);
        program.bri(top);
        let code = TileCode {
            program,
            entry,
            frames,
            rows: Vec::new(),
            marks: Vec::new(),
        };
        code.checked(tile)
    }

    fn checked(self, tile: u32) -> Result<Self, EmitError> {
        let end = self.frames.here();
        if end > TABLES.end {
            return Err(EmitError::TablesFull {
                tile,
                needed: end - TABLES.start,
                available: TABLES.end - TABLES.start,
            });
        }
        Ok(self)
    }
}

/// Answer internal syncs that only other tiles need.
fn answer(program: &mut Words, syncs: &mut u32) {
    while *syncs > 0 {
        let count = (*syncs).min(ANSWERS_MAX);
        program.sans(count as i32 - 1);
        program.sync(ZONE_ANSWERED);
        *syncs -= count;
    }
}

/// Internal syncs of the phases of a step.
fn phase_count(step: &Step, phases: &mut std::slice::Iter<'_, PlacedPhase>) -> u32 {
    match step {
        Step::Phase { .. } => {
            let phase = phases.next().expect("each phase has a schedule");
            u32::from(!phase.rows.is_empty())
        }
        Step::Repeat { count, body } => {
            let once: u32 = body.iter().map(|step| phase_count(step, phases)).sum();
            count * once
        }
        _ => 0,
    }
}

impl Emitter<'_> {
    fn emit(&mut self, work: &TileWork<'_>) {
        self.code.program.setzi(STATE, RUNTIME_STATE.start);
        self.code.program.begin();
        self.host_call(PARAMETERS);
        let top = self.code.program.here();
        for step in &work.steps {
            match step {
                Work::Call { info, call } => self.call(*info, call),
                Work::Phase {
                    info,
                    row: Some(row),
                } => self.active(*info, row),
                Work::Phase { info, row: None } => self.inactive(*info),
                Work::Upload { info } => {
                    self.mark(*info);
                    self.host_call(INPUTS);
                    // Cycles count from the last arrival here.
                    self.code.program.sync(ZONE_INTERNAL);
                }
                Work::Download { info } => {
                    self.mark(*info);
                    self.host_call(OUTPUTS);
                }
                Work::Begin => self.begin(),
                Work::End { count } => self.end(*count),
            }
        }
        self.code.program.bri(top);
    }

    fn host_call(&mut self, call: usize) {
        let host_run = self.kernels.entries["host_run"];
        self.code.program.host_call(self.host[call], host_run);
    }

    fn mark(&mut self, step: u32) {
        let address = self.code.program.here();
        if self.code.marks.last().is_none_or(|mark| mark.step != step) {
            self.code.marks.push(Mark { address, step });
        }
    }

    fn call(&mut self, info: u32, call: &Call) {
        self.mark(info);
        let frame = self.frame(call);
        let name = &self.placed.program.kernels[call.kernel as usize];
        let entry = self.kernels.entries[name];
        self.code.program.setzi(FRAME as _, frame);
        self.code.program.call(LINK, entry);
    }

    /// Address of the call's frame.
    fn frame(&mut self, call: &Call) -> u32 {
        let mut words = Vec::with_capacity(call.frame.len());
        let mut moving = Vec::new();
        for (index, word) in call.frame.iter().enumerate() {
            words.push(match word {
                Word::Scalar(value) => *value,
                Word::Address(place) => {
                    let id = place.allocation.0 as usize;
                    let allocation = &self.placed.program.allocations[id];
                    let address = self.placed.addresses[id] + place.offset;
                    if allocation.members > 1 {
                        moving.push((index as u32, address, allocation.stride));
                    }
                    address
                }
            });
        }
        if moving.is_empty()
            && let Some(address) = self.shared.get(&words)
        {
            return *address;
        }
        let frames = &mut self.code.frames;
        if frames.words.len() % 2 == 1 {
            frames.words.push(0);
        }
        let address = frames.here();
        frames.words.extend_from_slice(&words);
        if moving.is_empty() {
            self.shared.insert(words, address);
        }
        self.moving
            .extend(moving.into_iter().map(|(index, first, step)| Moving {
                address: address + 4 * index,
                first,
                step,
            }));
        address
    }

    fn active(&mut self, info: u32, row: &Row) {
        self.mark(info);
        self.code.rows.push((row.address, row.words.clone()));
        let program = &mut self.code.program;
        program.setzi(SCRATCH, row.incoming_base);
        program.put(INCOMING_BASE, SCRATCH);
        match row.outgoing_base {
            None => program.put(OUTGOING_BASE, ZERO),
            Some((first, step)) => {
                program.load_state(SCRATCH, ITERATION);
                program.setzi(SCRATCH2, step);
                program.mul(SCRATCH, SCRATCH, SCRATCH2);
                program.setzi(SCRATCH2, first);
                program.add(MOVING_BASE, SCRATCH, SCRATCH2);
                program.put(OUTGOING_BASE, MOVING_BASE);
            }
        }
        program.call(BARRIER_LINK, self.kernels.entries["runtime_barrier"]);
        program.setzi(SCRATCH, 1);
        program.put(INCOMING_DCOUNT, SCRATCH);
        program.sync(ZONE_INTERNAL);
        program.call(LINK, row.address);
    }

    fn inactive(&mut self, info: u32) {
        self.mark(info);
        let program = &mut self.code.program;
        program.setzi(SCRATCH, 0);
        program.put(INCOMING_BASE, SCRATCH);
        program.put(OUTGOING_BASE, ZERO);
        program.sans(0);
        program.sync(ZONE_ANSWERED);
        program.call(LINK, self.kernels.entries["runtime_empty_row"]);
    }

    /// Iteration count to zero.
    fn begin(&mut self) {
        let program = &mut self.code.program;
        program.setzi(SCRATCH, RUNTIME_STATE.start + 4 * ITERATION);
        program.store(ZERO, SCRATCH);
        self.loop_start = program.here();
        self.moving.clear();
    }

    /// Advance what moves, loop, and restore it after the last iteration.
    fn end(&mut self, count: u32) {
        let moving = std::mem::take(&mut self.moving);
        let program = &mut self.code.program;
        program.load_state(SCRATCH, ITERATION);
        for word in &moving {
            let index = (word.address - RUNTIME_STATE.start) / 4;
            program.load_state(FRAME, index);
            program.setzi(FRAME + 1, word.step);
            program.setzi(FRAME + 2, word.address);
            program.add(FRAME, FRAME, FRAME + 1);
            program.store(FRAME, FRAME + 2);
        }
        program.setzi(SCRATCH2, RUNTIME_STATE.start + 4 * ITERATION);
        program.add_immediate(SCRATCH, SCRATCH, 1);
        program.store(SCRATCH, SCRATCH2);
        program.below(SCRATCH, SCRATCH, count);
        program.brnz(SCRATCH, self.loop_start);
        for word in &moving {
            program.setzi(FRAME, word.first);
            program.setzi(FRAME + 1, word.address);
            program.store(FRAME, FRAME + 1);
        }
    }
}
