//! Numbers of the exchange: field limits, pipeline depths, special mux values.
//!
//! One event is one exchange clock slot: one 32-bit word (one 64-bit item in paired mode) for each
//! direction of a tile. Event 0 is the first word of a row. Source: rows, except as noted.
//! Not here: instruction words (`ipu-isa`) and schedules (`ipu-exchange`).

/// Most items of one `send`, `sendpic` or `sendpicp`.
pub const SEND_ITEMS_MAX: u32 = 64;
/// Most items of one `sendoff` continuation.
pub const CONTINUATION_ITEMS_MAX: u32 = 4_096;
/// Most events of one `delaypic`.
pub const PIC_DELAY_MAX: u32 = 128;
/// Most events of one `delayxpic`.
pub const XPIC_DELAY_MAX: u32 = 4_096;
/// Most events of one plain `delay`.
pub const DELAY_MAX: u32 = 524_288;
/// Most items of a transfer with a row of its own.
pub const TRANSFER_ITEMS_MAX: u32 = 52 + XPIC_DELAY_MAX;
/// Events that a base register write inside a row takes.
pub const BASE_WRITE_EVENTS: u32 = 13;
/// Events from the mux selection to memory for a receiver in row 0.
pub const RECEIVE_DEPTH: u32 = 52;
/// Further events for each physical row of the receiver.
pub const RECEIVE_DEPTH_PER_ROW: u32 = 2;
/// Start of a lone point-to-point send is this less its route time.
pub const POINT_TO_POINT_LEAD: i32 = 112;
/// Events a receiver's row runs on after its last word.
pub const RECEIVE_DRAIN: u32 = 5;
/// Mux value that selects nothing.
pub const MUX_NEUTRAL: u32 = 0x640;
/// A row starts at a multiple of this many bytes.
pub const ROW_ALIGN_BYTES: u32 = 8;

/// Events from a word's mux event to its memory event on a physical tile.
pub fn receive_depth(physical: u32) -> u32 {
    RECEIVE_DEPTH + RECEIVE_DEPTH_PER_ROW * crate::topology::row(physical)
}
