//! The controls that one receive adds to a tile's row.
//!
//! Input: a message at an offset and the tile's receive before it. Output: controls to add, and
//! controls of the receive before it that become needless.
//! Invariants: at most five to add, three to drop. Not here: whether they fit (`lanes`).

use crate::compose::{Control, Stream};
use crate::route::{Hop, Route};
use crate::transfer::Width;
use ipu_target::exchange::{MUX_NEUTRAL, RECEIVE_DRAIN};
use std::ops::Range;

/// The latest receive of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub ordinary: bool,
    pub format: u32,
    pub mux: Option<u32>,
    pub source_end: i32,
    pub payload_end: i32,
    pub end_address: u32,
}

/// One message to be placed.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    pub route: &'a Route,
    pub items: u32,
    /// Item address as the row holds it.
    pub address: u32,
    /// Elements that the send may touch.
    pub elements: Range<u32>,
    /// Byte address at each hop, before `shift`.
    pub targets: &'a [u32],
    /// Bytes added to every target.
    pub shift: u32,
    /// Subtracted from targets in pointer controls (the receiver's incoming base).
    pub incoming_base: u32,
}

impl Message<'_> {
    pub fn bytes(&self) -> u32 {
        self.items * self.route.width.bytes()
    }

    pub fn start(&self, offset: i32) -> i32 {
        self.route.start + offset
    }

    pub fn end(&self, offset: i32) -> i32 {
        self.start(offset) + self.items as i32
    }

    /// When the sender is done with its elements and a borrowed lane.
    pub fn sender_horizon(&self, offset: i32) -> i32 {
        self.end(offset).max(6 + offset)
    }

    /// When everything has been read and has arrived.
    pub fn complete(&self, offset: i32) -> i32 {
        let arrivals = self.route.hops.iter().map(|h| h.select + h.depth);
        arrivals.fold(self.route.start, i32::max) + offset + self.items as i32
    }
}

/// The few controls one receive adds, and those of the previous receive that it makes needless.
pub(crate) struct Receive {
    add: [Control; 5],
    added: usize,
    drop: [(i32, Stream); 3],
    dropped: usize,
}

impl Receive {
    fn new() -> Self {
        let none = Control {
            event: 0,
            stream: Stream::Pointer,
            value: 0,
            ordinary: false,
        };
        Receive {
            add: [none; 5],
            added: 0,
            drop: [(0, Stream::Pointer); 3],
            dropped: 0,
        }
    }

    fn push(&mut self, event: i32, stream: Stream, value: u32, ordinary: bool) {
        self.add[self.added] = Control {
            event,
            stream,
            value,
            ordinary,
        };
        self.added += 1;
    }

    fn replace(&mut self, event: i32, stream: Stream) {
        self.drop[self.dropped] = (event, stream);
        self.dropped += 1;
    }

    pub fn added(&self) -> &[Control] {
        &self.add[..self.added]
    }

    pub fn dropped(&self) -> &[(i32, Stream)] {
        &self.drop[..self.dropped]
    }
}

pub(crate) fn receive(
    last: Option<&Last>,
    hop: &Hop,
    message: &Message,
    address: u32,
    offset: i32,
    dense: bool,
) -> Receive {
    let mut out = Receive::new();
    let select = hop.select + offset;
    let source_end = select + message.items as i32;
    let pointer = select + hop.depth;
    let value = (address - message.incoming_base) >> 2;
    match message.route.width {
        Width::Word32 => {
            let last = last.filter(|l| l.ordinary);
            let cutover = last.filter(|l| l.source_end == select);
            if cutover.is_some() {
                out.replace(select, Stream::Source);
            }
            if !(dense && cutover.is_some_and(|l| l.mux == hop.mux)) {
                out.push(select, Stream::Source, hop.mux.unwrap_or(MUX_NEUTRAL), true);
            }
            if last.is_none_or(|l| l.end_address != address) {
                out.push(pointer, Stream::Pointer, value, true);
            }
            out.push(source_end, Stream::Source, MUX_NEUTRAL, true);
        }
        Width::Paired64 => {
            let last = last.filter(|l| !l.ordinary);
            let format_on = pointer - 2;
            let same = |l: &Last| l.format == hop.format && l.payload_end == pointer;
            if last.is_some_and(same) {
                out.replace(format_on, Stream::Format);
            } else {
                out.push(format_on, Stream::Format, hop.format, false);
            }
            if let Some(mux) = hop.mux {
                let cutover = last.filter(|l| l.mux.is_some() && l.source_end == select);
                if cutover.is_some() {
                    out.replace(select, Stream::PairedSource);
                }
                if !(dense && cutover.is_some_and(|l| l.mux == hop.mux)) {
                    out.push(select, Stream::PairedSource, mux, false);
                }
                out.push(source_end, Stream::PairedSource, MUX_NEUTRAL, false);
            }
            out.push(pointer, Stream::Pointer, value, false);
            out.push(format_on + message.items as i32, Stream::Format, 0, false);
        }
    }
    out
}

/// Whether two controls of this paired message fall on one event, at any offset.
pub(crate) fn coincident(message: &Message) -> bool {
    message.route.width == Width::Paired64
        && message
            .route
            .hops
            .iter()
            .zip(message.targets)
            .any(|(hop, &address)| {
                let new = receive(None, hop, message, address, 0, false);
                let mut events: Vec<i32> = new.added().iter().map(|c| c.event).collect();
                events.sort_unstable();
                events.windows(2).any(|w| w[0] == w[1])
            })
}

pub(crate) fn receive_horizon(hop: &Hop, message: &Message, offset: i32) -> i32 {
    let payload_end = hop.select + hop.depth + (message.items as i32) + offset;
    let exact = message.route.width == Width::Word32 && message.items == 52;
    let single = message.route.width == Width::Paired64 && message.items == 1;
    payload_end + RECEIVE_DRAIN as i32 + i32::from(exact || single)
}
