//! The exchange as a machine: rows in, copies with their times out.
//!
//! Input: the row words of all tiles that take part in a phase, with their base registers.
//! Output: every word that moves, as affine runs, and how long each row runs.
//! Invariants: shares no code with the encoder; works run by run, never word by word; the result
//! does not depend on the order of the rows given.
//! Not here: what was meant to move (`check`), the prologue around rows, host packets.

mod resolve;
mod row;
mod tile;

pub use resolve::resolve;
pub use row::{RowEvents, SendRun, decode};

/// A row as the machine sees it.
#[derive(Clone, Copy, Debug)]
pub struct RowInput<'a> {
    /// Logical tile.
    pub tile: u32,
    /// Words from the row's first; words after its return are ignored.
    pub words: &'a [u32],
    /// INCOMING_BASE at event 0.
    pub incoming_base: u32,
    /// OUTGOING_BASE at event 0.
    pub outgoing_base: u32,
    /// Contents of `$m6`, for base writes inside the row.
    pub moving_base: u32,
    /// Where the row lies, when it is known; its elements are then closed to data.
    pub row_address: Option<u32>,
}

/// A run of words that moves from one tile to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRun {
    /// Logical source tile.
    pub src_tile: u32,
    pub src_addr: u32,
    /// Logical destination tile.
    pub dst_tile: u32,
    pub dst_addr: u32,
    /// 32-bit words; in a wide run two of them move at each event.
    pub words: u32,
    pub first_send_event: i32,
    pub first_write_event: i32,
    pub wide: bool,
}

impl CopyRun {
    /// Events that the run takes on either side.
    pub fn events(&self) -> i32 {
        (self.words / if self.wide { 2 } else { 1 }) as i32
    }
}

/// How long a tile's row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpan {
    /// Logical tile.
    pub tile: u32,
    /// Events from the row's first word to its return.
    pub duration: i32,
    /// Words of the row, the return included.
    pub words: u32,
}

/// What a phase does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseEvents {
    /// By destination tile, then first write event.
    pub copies: Vec<CopyRun>,
    /// By tile.
    pub rows: Vec<RowSpan>,
    /// The longest duration.
    pub horizon: i32,
    /// Whether some byte is both read and written, or written twice. When it is not, the copies
    /// may be done in any order; when it is, reads and writes must follow their events.
    pub overlapping: bool,
}

/// What the machine would report as a fault, or silently lose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    #[error("tile {tile}: word {index} of the row, {word:#010x}, is no timed instruction")]
    Word { tile: u32, index: usize, word: u32 },
    #[error("tile {tile}: the row has no return")]
    NoReturn { tile: u32 },
    #[error("tile {tile}: two-word instruction at odd word {index}")]
    Misaligned { tile: u32, index: usize },
    #[error("tile {tile}: word {index} writes paired controls together")]
    PairedTogether { tile: u32, index: usize },
    #[error("tile {tile}: word {index} continues a message that is not there")]
    NoMessage { tile: u32, index: usize },
    #[error("tile {tile} takes part twice")]
    Twice { tile: u32 },
    #[error("tile {tile}: address {address:#x} at event {event} is outside memory")]
    Address { tile: u32, address: u32, event: i32 },
    #[error("tile {tile}: selects {value:#x} at event {event}, which is no tile")]
    Source { tile: u32, value: u32, event: i32 },
    #[error("tile {tile}: selects tile {source_tile} at event {event}, but no word is there")]
    EmptySlot {
        tile: u32,
        source_tile: u32,
        event: i32,
    },
    #[error("tile {tile}: the word of tile {source_tile} at event {event} goes another direction")]
    Direction {
        tile: u32,
        source_tile: u32,
        event: i32,
    },
    #[error("tile {tile}: the word of tile {source_tile} at event {event} has another width")]
    Width {
        tile: u32,
        source_tile: u32,
        event: i32,
    },
    #[error("tile {tile}: is not the member that selects for its pair, event {event}")]
    NotEarly { tile: u32, event: i32 },
    #[error("tile {tile}: its pair receives at event {event}, but it has no row")]
    NoPartner { tile: u32, event: i32 },
    #[error("tile {tile}: two receives meet at event {event}")]
    Clash { tile: u32, event: i32 },
    #[error("tile {tile}: a word arrives at event {event} before any pointer")]
    NoPointer { tile: u32, event: i32 },
    #[error("tile {tile}: a word arrives at event {event} under the wrong format")]
    Format { tile: u32, event: i32 },
    #[error("tile {tile}: the row returns with a source still selected")]
    MuxOpen { tile: u32 },
    #[error("tile {tile}: the row returns with a format still on")]
    FormatOpen { tile: u32 },
    #[error("tile {tile}: the row returns before the word of event {event} has arrived")]
    Unfinished { tile: u32, event: i32 },
    #[error("tile {tile}: the word sent at event {event} is taken by nobody")]
    Missed { tile: u32, event: i32 },
    #[error("tile {tile}: sends at event {event} while its partner uses its lane")]
    Lane { tile: u32, event: i32 },
    #[error("tile {tile}: element {element} is read and written at event {event}")]
    Element { tile: u32, element: u32, event: i32 },
    #[error("tile {tile}: element {element} holds the row and is used by the phase")]
    RowElement { tile: u32, element: u32 },
}
