//! The timing of one message in isolation: where it starts and when each receiver acts.
//!
//! Input: source, receivers, width. Output: event numbers at offset 0.
//! Invariants: an offset shifts every event alike. Not here: what else the tiles do.

use crate::transfer::Width;
use ipu_target::exchange::{POINT_TO_POINT_LEAD, receive_depth};
use ipu_target::topology::{direction, pair_partner, paired_route_time, physical, route_time};

/// What one receiver does for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Logical receiver.
    pub tile: u32,
    /// Event of the source selection at offset 0.
    pub select: i32,
    /// Events from selection to memory.
    pub depth: i32,
    /// Format value of a paired receive; 0 for an ordinary one.
    pub format: u32,
    /// Mux value, present on the tile that holds the selection.
    pub mux: Option<u32>,
}

/// A source with its receiver set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Logical source.
    pub source: u32,
    pub width: Width,
    /// Send start at offset 0.
    pub start: i32,
    /// Control bits of the send.
    pub control: u32,
    pub hops: Vec<Hop>,
}

impl Route {
    /// The form that is always available; several receivers or one.
    pub fn multicast(source: u32, tiles: impl Iterator<Item = u32> + Clone, width: Width) -> Self {
        let s = physical(source);
        let least = tiles
            .clone()
            .map(|d| route_time(s, physical(d)))
            .min()
            .unwrap_or(0);
        let start = (-least).max(0);
        let hops: Vec<Hop> = tiles.map(|d| hop(s, d, width, start)).collect();
        let groups = match width {
            Width::Word32 => hops.len(),
            Width::Paired64 if hops.iter().any(|h| h.tile == source) => 2,
            Width::Paired64 => hops.len() / 2,
        };
        let wide = if width == Width::Paired64 { 4 } else { 0 };
        let bits = if groups == 1 {
            direction(s, physical(hops[0].tile))
        } else {
            3
        };
        Route {
            source,
            width,
            start,
            control: wide | bits,
            hops,
        }
    }

    /// The form for a tile that receives this one message only: its selection is at a fixed event.
    pub fn point_to_point(source: u32, tile: u32) -> Self {
        let (s, d) = (physical(source), physical(tile));
        let start = POINT_TO_POINT_LEAD - route_time(s, d);
        let hops = vec![hop(s, tile, Width::Word32, start)];
        Route {
            source,
            width: Width::Word32,
            start,
            control: direction(s, d),
            hops,
        }
    }
}

fn hop(s: u32, tile: u32, width: Width, start: i32) -> Hop {
    let d = physical(tile);
    let depth = receive_depth(d) as i32;
    match width {
        Width::Word32 => {
            let select = start + route_time(s, d) + 1;
            Hop {
                tile,
                select,
                depth,
                format: 0,
                mux: Some(s),
            }
        }
        Width::Paired64 => {
            let early = route_time(s, d) < route_time(s, pair_partner(d));
            let mux = early.then_some(s ^ (d & 2));
            let select = start + paired_route_time(s, d);
            Hop {
                tile,
                select,
                depth: depth + 1,
                format: direction(s, d),
                mux,
            }
        }
    }
}
