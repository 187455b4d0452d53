//! One tile on its own: calls of a kernel with chosen memory, timed as on the device.
//!
//! Input: linked code, frames, memory contents. Output: memory contents, cycles, issues.
//! Invariants: a call reads the cycle counter the way the published figures did: worker 0 of a
//! sampler launch before the call and of one after it, so a figure is a multiple of 6 and holds
//! call, return and most of one sampler. An empty kernel (`br $m10` alone) reads 96.
//! Not here: assembling and linking (`ipu-emit`), programs of many tiles (see `machine`).

use std::sync::Arc;

use ipu_package::SegmentKind;
use ipu_target::memory::{RUNTIME_STATE, SRAM_BASE};

use crate::code::{Block, CodeMap};
use crate::fault::{ContextId, DeviceFault, Exec, FaultKind, Use};
use crate::supervisor::{RETURN_ADDRESS, Stop, zone};
use crate::tile::{Tile, WORKER_COUNT};
use crate::trace::{Sink, Tracer};

/// Where the harness's own code is fetched from. It stands in no memory.
const SAMPLER: u32 = SRAM_BASE - 0x200;

/// The sampler: its supervisor part, its worker, and the program around the call.
///
/// Words: `setzi $m1, worker; runall $m1, $m15, 0; sync 2; br $m10`, then the worker
/// `get $m0, $WSR; and $m0, $m0, 7; brnz $m0, end; get $m1, $COUNT_L; nop; end: exitz $m15`.
const SAMPLER_WORDS: [u32; 10] = {
    const WORKER: u32 = SAMPLER + 16;
    const END: u32 = WORKER + 20;
    [
        0x1910_0000 | WORKER,
        0x1510_f000,
        0x4180_0002,
        0x43a0_0000,
        0x4100_0001,
        0x4200_8000 | 7,
        0x1100_0000 | END >> 2,
        0x4101_0060,
        0x19e0_0000,
        0x43f0_4000,
    ]
};

/// A tile under test.
pub struct TileRun {
    tile: Tile,
    /// Address of the frame of the next call.
    frame: u32,
    data: bool,
    /// Is told the issues of calls.
    trace: Option<Sink>,
}

/// What a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// Sampler to sampler, simulated cycles.
    pub cycles: u64,
    /// Issues of each worker, summed over the launches of the call.
    pub issues: [u64; WORKER_COUNT],
    /// Issues of each launch of the call.
    pub launches: Vec<[u64; WORKER_COUNT]>,
}

impl TileRun {
    /// A tile with code at addresses. The words are readable as data, too.
    pub fn new(code: &[(u32, Vec<u32>)]) -> Exec<TileRun> {
        let mut blocks = vec![Arc::new(Block::new(
            SAMPLER,
            SegmentKind::Kernel,
            SAMPLER_WORDS.to_vec(),
        ))];
        for (address, words) in code {
            blocks.push(Arc::new(Block::new(
                *address,
                SegmentKind::Kernel,
                words.clone(),
            )));
        }
        let mut tile = Tile::new(0, CodeMap::new(blocks));
        for (address, words) in code {
            tile.memory.write_words(*address, words)?;
        }
        tile.supervisor.m[11] = RUNTIME_STATE.start;
        Ok(TileRun {
            tile,
            frame: 0,
            data: true,
            trace: None,
        })
    }

    /// Time calls only: no value of the A file is computed or stored.
    pub fn without_data(&mut self) -> &mut TileRun {
        self.data = false;
        self
    }

    /// Tell a sink every issue of the calls that follow, those of the sampler excepted.
    pub fn trace(&mut self, sink: Sink) -> &mut TileRun {
        self.trace = Some(sink);
        self
    }

    /// Write a frame and pass it to the calls that follow.
    pub fn frame(&mut self, address: u32, words: &[u32]) -> Exec<&mut TileRun> {
        self.tile.memory.write_words(address, words)?;
        self.frame = address;
        Ok(self)
    }

    /// Set a supervisor register.
    pub fn set_m(&mut self, register: u8, value: u32) -> &mut TileRun {
        self.tile.supervisor.set_m(register, value, false);
        self
    }

    /// A supervisor register.
    pub fn m(&self, register: u8) -> u32 {
        self.tile.supervisor.m(register)
    }

    /// Write bytes from a word boundary.
    pub fn write(&mut self, address: u32, bytes: &[u8]) -> Exec<&mut TileRun> {
        self.tile.memory.write_bytes(address, bytes)?;
        Ok(self)
    }

    pub fn write_words(&mut self, address: u32, words: &[u32]) -> Exec<&mut TileRun> {
        self.tile.memory.write_words(address, words)?;
        Ok(self)
    }

    /// Make words undefined.
    pub fn poison(&mut self, address: u32, words: u32) -> Exec<&mut TileRun> {
        self.tile.memory.poison(address, words)?;
        Ok(self)
    }

    /// Words that must be defined.
    pub fn read_words(&self, address: u32, count: u32) -> Exec<Vec<u32>> {
        if let Some(address) = self.tile.memory.first_undefined(address, count)? {
            return Err(Box::new(FaultKind::Undefined(Use::Output { address })));
        }
        self.peek_words(address, count)
    }

    /// Words as they are.
    pub fn peek_words(&self, address: u32, count: u32) -> Exec<Vec<u32>> {
        Ok(self.tile.memory.words(address, count)?.to_vec())
    }

    /// Bytes from a word boundary, which must be defined.
    pub fn read(&self, address: u32, bytes: u32) -> Exec<Vec<u8>> {
        let words = self.read_words(address, bytes.div_ceil(4))?;
        let mut all: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        all.truncate(bytes as usize);
        Ok(all)
    }

    /// Whether a range of whole words is defined.
    pub fn is_defined(&self, address: u32, words: u32) -> bool {
        matches!(self.tile.memory.first_undefined(address, words), Ok(None))
    }

    /// Call a supervisor entry with the frame in `$m0` and the link in `$m10`.
    pub fn call(&mut self, entry: u32) -> Result<CallResult, Box<DeviceFault>> {
        self.tile.issues = crate::tile::Issues::default();
        self.go(SAMPLER)?;
        self.tile.issues.total = [0; WORKER_COUNT];
        self.tile.issues.launches = Some(Vec::new());
        // `setzi $m0, FRAME` takes a cycle before the call.
        let ready = self.tile.time + ipu_target::issue::DEPENDENT_USE;
        if self.frame != 0 {
            self.tile.supervisor.set_m(0, self.frame, false);
            self.tile.ready[0] = ready;
            self.tile.time += ipu_target::issue::SUPERVISOR_ISSUE;
        }
        self.traced(entry)?;
        let issues = self.tile.issues.total;
        let launches = self.tile.issues.launches.take().unwrap_or_default();
        self.go(SAMPLER)?;
        let samples = &self.tile.issues.samples;
        let (first, last) = (samples[0], samples[samples.len() - 1]);
        Ok(CallResult {
            cycles: u64::from(last.wrapping_sub(first)),
            issues,
            launches,
        })
    }

    /// Launch all workers at an entry and wait for them: `runall` and `sync 2` without a kernel's
    /// supervisor part. The cycles are those of a call whose kernel is the usual four
    /// instructions.
    pub fn call_worker(&mut self, entry: u32) -> Result<CallResult, Box<DeviceFault>> {
        const STUB: u32 = SAMPLER + 4 * SAMPLER_WORDS.len() as u32;
        let words = vec![
            0x1910_0000 | entry,
            SAMPLER_WORDS[1] & 0xffff_0fff,
            0x4180_0002,
            0x43a0_0000,
        ];
        let stub = Arc::new(Block::new(STUB, SegmentKind::Kernel, words));
        let code = self.tile.code.clone();
        self.tile.code = code.with(stub);
        let result = self.call(STUB);
        self.tile.code = code;
        result
    }

    /// One call, told to the sink if there is one.
    fn traced(&mut self, entry: u32) -> Result<(), Box<DeviceFault>> {
        let Some(sink) = &self.trace else {
            return self.go(entry);
        };
        let tracer = Tracer::new(Arc::clone(sink));
        let fuse_copies = self.tile.fuse_copies;
        (self.tile.tracer, self.tile.fuse_copies) = (Some(tracer), false);
        let result = self.go(entry);
        self.tile.fuse_copies = fuse_copies;
        if let Some(mut tracer) = self.tile.tracer.take() {
            tracer.settle(ContextId::Supervisor, &self.tile.supervisor);
        }
        result
    }

    /// One call, timed as a `call` instruction.
    fn go(&mut self, entry: u32) -> Result<(), Box<DeviceFault>> {
        let tile = &mut self.tile;
        let now = tile.time;
        tile.supervisor.set_m(10, RETURN_ADDRESS, false);
        tile.ready[10] = now + ipu_target::issue::DEPENDENT_USE;
        tile.time = now + ipu_target::issue::CALL;
        tile.pc = entry;
        let stop = if self.data {
            tile.run::<true>()?
        } else {
            tile.run::<false>()?
        };
        match stop {
            Stop::Return => Ok(()),
            Stop::Sync { zone, .. } => Err(self.unexpected(zone)),
            Stop::Answered { .. } => Err(self.unexpected(zone::ANSWERED)),
            Stop::Row { .. } => Err(self.unexpected(u32::MAX)),
        }
    }

    fn unexpected(&self, found: u32) -> Box<DeviceFault> {
        let expected = "the return of the kernel";
        let kind = FaultKind::SyncMismatch { found, expected };
        self.tile.fault(ContextId::Supervisor, self.tile.pc, kind)
    }
}
