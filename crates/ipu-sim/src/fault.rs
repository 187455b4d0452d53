//! Faults of the simulated device.
//!
//! Input: what an instruction met. Output: a typed fault with its place.
//! Invariants: a fault stops the run; nothing after it is executed on that tile.
//! Not here: what to tell the user about exit codes (the shell decides).

use std::fmt;

use ipu_isa::Mode;

/// Result of one instruction. The error is boxed so that the good case stays in a register.
pub type Exec<T> = Result<T, Box<FaultKind>>;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    #[error("access of {bytes} bytes at {address:#x} is not aligned")]
    Misaligned { address: u32, bytes: u32 },
    #[error("access of {bytes} bytes at {address:#x} is outside tile memory")]
    OutOfRange { address: u32, bytes: u32 },
    #[error("simultaneous accesses at {first:#x} and {second:#x} share a memory element")]
    Conflict { first: u32, second: u32 },
    #[error("128-bit access at {address:#x} is outside interleaved memory")]
    NotInterleaved { address: u32 },
    #[error("execution at {address:#x} in region 1, which is not executable")]
    NotExecutable { address: u32 },
    #[error("no code at {address:#x}")]
    NoCode { address: u32 },
    #[error("word {word:#010x} is no {} instruction", mode.name())]
    NoInstruction { word: u32, mode: Mode },
    #[error("bundle: {0}")]
    Bundle(&'static str),
    #[error("repeat: {0}")]
    Repeat(&'static str),
    #[error("register $m{0} cannot be written by a worker")]
    ReadOnlyRegister(u8),
    #[error("undefined data reaches {0}")]
    Undefined(Use),
    #[error("`{0}` has no semantics in this simulator")]
    Unimplemented(&'static str),
    #[error("control register {0} has no semantics in this simulator")]
    UnknownRegister(u16),
    #[error("launch while worker {0} is active")]
    WorkersBusy(u32),
    #[error("exchange or global sync while workers are active")]
    WorkersAtSync,
    #[error("sync {found} where {expected} was expected")]
    SyncMismatch { found: u32, expected: &'static str },
    #[error("trap {0}")]
    Trap(u32),
    #[error("more than {0} issues in one launch")]
    Runaway(u64),
    #[error("exchange: {0}")]
    Exchange(String),
    #[error("host exchange: {0}")]
    Host(HostFault),
}

/// What is wrong with a transfer between a tile and the host. Tiles are physical numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostFault {
    #[error("word sent outside a row while the mux selects {mux:#x}, not the host endpoint")]
    NotSelected { mux: u32 },
    #[error("{word:#010x} is no packet header")]
    Header { word: u32 },
    #[error("the words sent end inside a packet")]
    CutOff,
    #[error("a packet names tile {found}, not {expected}")]
    WrongTile { found: u32, expected: u32 },
    #[error("a packet of {bytes} bytes is empty or too long for its form")]
    Length { bytes: u32 },
    #[error("{bytes} bytes at host offset {offset:#x} leave the page")]
    OutOfPage { offset: u32, bytes: u32 },
    #[error("host offset {offset:#x} is in the slot of tile {owner}")]
    WrongSlot { offset: u32, owner: u32 },
    #[error("{bytes} bytes at {address:#x} leave the window of host packets")]
    OutOfWindow { address: u32, bytes: u32 },
    #[error("the last read of a stream is not marked as such, or another is")]
    Stream,
    #[error("no serving tile asked for the packets")]
    NotRequested,
    #[error("asks for the packets of tile {target}, which sends none")]
    NotSending { target: u32 },
    #[error("is no serving tile")]
    NotServing,
    #[error("waits for {expected} words; {found} arrive")]
    WordCount { expected: u32, found: u32 },
}

/// Where an undefined value may not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Address,
    Branch,
    Control,
    Send { address: u32 },
    Output { address: u32 },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Address => f.write_str("an address"),
            Use::Branch => f.write_str("a branch"),
            Use::Control => f.write_str("a control register or count"),
            Use::Send { address } => write!(f, "an exchange send at {address:#x}"),
            Use::Output { address } => write!(f, "an output at {address:#x}"),
        }
    }
}

/// Which of the seven contexts of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextId {
    Supervisor,
    Worker(u8),
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextId::Supervisor => f.write_str("supervisor"),
            ContextId::Worker(k) => write!(f, "worker {k}"),
        }
    }
}

/// A fault with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFault {
    pub tile: u32,
    pub context: ContextId,
    pub pc: u32,
    /// Mnemonics of the instruction or bundle.
    pub instruction: Option<String>,
    pub kind: FaultKind,
    /// Operation of the step that the tile was in.
    pub operation: Option<String>,
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile {}, {} at {:#x}", self.tile, self.context, self.pc)?;
        if let Some(text) = &self.instruction {
            write!(f, " ({text})")?;
        }
        if let Some(operation) = &self.operation {
            write!(f, " in {operation}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for DeviceFault {}
