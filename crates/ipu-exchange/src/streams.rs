//! Transfers gathered into streams: everything one tile sends to one set of tiles.
//!
//! Input: transfers of any length. Output: streams with fragments in address order, and what must
//! wait for what.
//! Invariants: streams and fragments are in a fixed order; fragments of one stream do not depend on
//! each other. Not here: times.

use crate::receive::Message;
use crate::route::Route;
use crate::transfer::{ExchangeError, Moving, Transfer, Width};
use ipu_target::TILES;
use ipu_target::exchange::receive_depth;
use ipu_target::memory::elements_of;
use ipu_target::topology::{pair_partner, physical};
use std::ops::Range;

/// Consecutive words of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub source_address: u32,
    /// Items of the stream's width.
    pub items: u32,
    /// Where its targets start in [`Streams::targets`]; one for each hop.
    pub first_target: usize,
    /// The transfer it belongs to, for dependencies.
    pub transfer: u32,
    /// Elements that the send may touch.
    pub elements: Range<u32>,
}

/// Everything one tile sends to one set of tiles at one depth of dependency.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub route: Route,
    pub moving: Option<Moving>,
    pub fragments: Vec<Fragment>,
    /// Items of all fragments.
    pub items: u32,
    /// Rows of the tiles that select, where two controls of a paired receive might meet.
    early_depths: Vec<u32>,
    own: bool,
}

/// All streams of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub list: Vec<Stream>,
    pub targets: Vec<u32>,
    /// Pairs (earlier, later) of transfers that share bytes, by later.
    pub waits: Vec<(u32, u32)>,
}

/// Whether pairs of tiles may receive 64-bit items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    Never,
    WherePossible,
}

/// Transfers in the order of streams, before it is known how wide these are.
pub(crate) struct Groups<'a> {
    transfers: &'a [Transfer],
    /// The destinations of each transfer, by tile.
    sorted: Vec<Vec<(u32, u32)>>,
    /// Transfers by stream, then by source address.
    order: Vec<u32>,
    /// Where in `order` each stream begins, and its end.
    bounds: Vec<usize>,
    waits: Vec<(u32, u32)>,
}

impl<'a> Groups<'a> {
    pub fn of(transfers: &'a [Transfer]) -> Result<Self, ExchangeError> {
        let waits = dependencies(transfers)?;
        let depth = depths(transfers.len(), &waits);
        let sorted: Vec<Vec<(u32, u32)>> = transfers
            .iter()
            .map(|t| {
                let mut list = t.destinations.clone();
                list.sort_unstable();
                list
            })
            .collect();
        let tiles = |i: u32| sorted[i as usize].iter().map(|d| d.0);
        let head = |i: u32| {
            let t = &transfers[i as usize];
            (depth[i as usize], t.moving.is_none(), t.source, t.width)
        };
        let mut order: Vec<u32> = (0..transfers.len() as u32).collect();
        order.sort_by(|&a, &b| {
            let address = |i: u32| transfers[i as usize].source_address;
            (head(a).cmp(&head(b)))
                .then_with(|| tiles(a).cmp(tiles(b)))
                .then_with(|| address(a).cmp(&address(b)))
                .then(a.cmp(&b))
        });
        let mut bounds: Vec<usize> = (0..order.len())
            .filter(|&at| {
                at.checked_sub(1).is_none_or(|before| {
                    let (a, b) = (order[before], order[at]);
                    head(a) != head(b) || !tiles(a).eq(tiles(b))
                })
            })
            .collect();
        bounds.push(order.len());
        Ok(Groups {
            transfers,
            sorted,
            order,
            bounds,
            waits,
        })
    }

    /// Their streams.
    pub fn streams(&self, pairing: Pairing) -> Streams {
        let mut out = Streams {
            list: Vec::with_capacity(self.bounds.len() - 1),
            targets: Vec::with_capacity(self.sorted.iter().map(Vec::len).sum()),
            waits: self.waits.clone(),
        };
        for bound in self.bounds.windows(2) {
            let group = &self.order[bound[0]..bound[1]];
            out.add(self.transfers, &self.sorted, group, pairing);
        }
        out
    }

    /// Whether pairing widens any stream.
    pub fn can_pair(&self) -> bool {
        self.bounds.windows(2).any(|bound| {
            let group = &self.order[bound[0]..bound[1]];
            let first = group[0] as usize;
            self.transfers[first].width == Width::Word32
                && pairs(&self.sorted[first], group, self.transfers)
        })
    }
}

/// Whether the transfers of a stream can go to pairs of tiles.
fn pairs(receivers: &[(u32, u32)], group: &[u32], transfers: &[Transfer]) -> bool {
    let fits = |&i: &u32| pairable(&transfers[i as usize]);
    whole_pairs(receivers) && group.iter().all(fits)
}

impl Streams {
    fn add(
        &mut self,
        transfers: &[Transfer],
        sorted: &[Vec<(u32, u32)>],
        group: &[u32],
        pairing: Pairing,
    ) {
        let first = &transfers[group[0] as usize];
        let receivers = &sorted[group[0] as usize];
        let own = receivers.iter().any(|d| d.0 == first.source);
        let wide = first.width == Width::Paired64
            || (pairing == Pairing::WherePossible && pairs(receivers, group, transfers));
        let width = if wide { Width::Paired64 } else { Width::Word32 };
        let route = Route::multicast(first.source, receivers.iter().map(|d| d.0), width);
        let early = route.hops.iter().filter(|h| wide && h.mux.is_some());
        let mut early_depths: Vec<u32> = early.map(|h| receive_depth(physical(h.tile))).collect();
        early_depths.sort_unstable();
        early_depths.dedup();
        let mut stream = Stream {
            route,
            moving: first.moving.clone(),
            fragments: Vec::new(),
            items: 0,
            early_depths,
            own,
        };
        let join = self.waits.is_empty();
        for &index in group {
            let t = &transfers[index as usize];
            let items = t.words / width.words();
            stream.items += items;
            if join
                && let Some(last) = stream.fragments.last_mut()
                && self.goes_on(last, &sorted[index as usize], t, width)
            {
                last.items += items;
                let elements = t.source_elements();
                last.elements.start = last.elements.start.min(elements.start);
                last.elements.end = last.elements.end.max(elements.end);
                continue;
            }
            stream.fragments.push(Fragment {
                source_address: t.source_address,
                items,
                first_target: self.targets.len(),
                transfer: index,
                elements: t.source_elements(),
            });
            self.targets
                .extend(sorted[index as usize].iter().map(|d| d.1));
        }
        self.list.push(stream);
    }

    /// The next items of a stream.
    pub fn message<'a>(&'a self, s: &'a Stream, at: u32, done: u32, items: u32) -> Message<'a> {
        let fragment = &s.fragments[at as usize];
        let bytes = s.route.width.bytes();
        let base = s.moving.as_ref().map_or(0, |m| m.base);
        let targets = fragment.first_target..fragment.first_target + s.route.hops.len();
        Message {
            route: &s.route,
            items,
            address: (fragment.source_address - base) / bytes + done,
            elements: s.elements(fragment, done, items),
            targets: &self.targets[targets],
            shift: done * bytes,
            incoming_base: 0,
        }
    }

    fn goes_on(&self, last: &Fragment, to: &[(u32, u32)], t: &Transfer, width: Width) -> bool {
        let bytes = last.items * width.bytes();
        let targets = &self.targets[last.first_target..last.first_target + to.len()];
        last.source_address + bytes == t.source_address
            && targets
                .iter()
                .zip(to)
                .all(|(&target, d)| target + bytes == d.1)
    }
}

fn whole_pairs(receivers: &[(u32, u32)]) -> bool {
    let mut tiles: Vec<u32> = receivers.iter().map(|d| physical(d.0)).collect();
    tiles.sort_unstable();
    tiles
        .iter()
        .all(|&p| tiles.binary_search(&pair_partner(p)).is_ok())
}

/// Whether a transfer's bytes suit 64-bit items; very short ones leave no room for controls.
fn pairable(t: &Transfer) -> bool {
    let addresses = t.destinations.iter().map(|d| d.1).chain([t.row_address()]);
    t.words >= 8 && t.words.is_multiple_of(2) && addresses.fold(0, |a, b| a | b) % 8 == 0
}

impl Stream {
    pub fn tiles(&self) -> impl Iterator<Item = u32> {
        self.route.hops.iter().map(|h| h.tile)
    }

    /// Whether a message of so many items would put two controls, or a control and a send start,
    /// on one event wherever it is placed.
    fn awkward(&self, items: u32) -> bool {
        let wide = self.route.width == Width::Paired64;
        let coincide = |&d: &u32| items + 1 == d || items == d + 1;
        (self.own && (27..=29).contains(&items))
            || (wide && (items < 3 || self.early_depths.iter().any(coincide)))
    }

    /// Items of the next message, of `left` items and no more than `limit`.
    pub fn cut(&self, left: u32, limit: u32) -> u32 {
        let fine = |n: u32| !self.awkward(n) && (n == left || left - n >= 4);
        let most = left.min(limit);
        (1..=most).rev().find(|&n| fine(n)).unwrap_or(most)
    }

    /// Elements that a send of `items` from `done` on may touch.
    pub fn elements(&self, fragment: &Fragment, done: u32, items: u32) -> Range<u32> {
        if self.moving.is_some() {
            return fragment.elements.clone();
        }
        let bytes = self.route.width.bytes();
        elements_of(fragment.source_address + done * bytes, items * bytes)
    }
}

/// Bytes of one tile that a transfer reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: u32,
    end: u32,
    transfer: u32,
    write: bool,
}

/// Pairs of transfers that share bytes which one of them writes.
fn dependencies(transfers: &[Transfer]) -> Result<Vec<(u32, u32)>, ExchangeError> {
    let mut tiles: Vec<Vec<Span>> = vec![Vec::new(); TILES as usize];
    for (index, t) in transfers.iter().enumerate() {
        let (transfer, bytes) = (index as u32, t.bytes());
        let read = match &t.moving {
            Some(m) => m.extent.clone(),
            None => t.source_address..t.source_address + bytes,
        };
        tiles[t.source as usize].push(Span {
            start: read.start,
            end: read.end,
            transfer,
            write: false,
        });
        for &(tile, start) in &t.destinations {
            tiles[tile as usize].push(Span {
                start,
                end: start + bytes,
                transfer,
                write: true,
            });
        }
    }
    // Spans come in runs that ascend, which a stable sort finds.
    tiles.iter_mut().for_each(|spans| spans.sort());
    let mut waits = Vec::new();
    for tile in tiles.iter().filter(|spans| written_overlap(spans)) {
        let mut open: Vec<Span> = Vec::new();
        for &span in tile {
            open.retain(|o| o.end > span.start);
            for other in open.iter().filter(|o| o.write || span.write) {
                if other.transfer == span.transfer {
                    return Err(ExchangeError::Cycle {
                        transfer: span.transfer as usize,
                    });
                }
                let (a, b) = (other.transfer, span.transfer);
                waits.push((a.min(b), a.max(b)));
            }
            open.push(span);
        }
    }
    waits.sort_unstable_by_key(|w| (w.1, w.0));
    waits.dedup();
    Ok(waits)
}

/// Whether sorted spans of a tile share a byte that one of them writes.
fn written_overlap(spans: &[Span]) -> bool {
    let (mut read, mut written) = (0, 0);
    spans.iter().any(|s| {
        let hit = s.start < written || (s.write && s.start < read);
        let reach = if s.write { &mut written } else { &mut read };
        *reach = s.end.max(*reach);
        hit
    })
}

/// Longest chain of dependencies before each transfer.
fn depths(count: usize, waits: &[(u32, u32)]) -> Vec<u32> {
    let mut depth = vec![0; count];
    for &(earlier, later) in waits {
        depth[later as usize] = depth[later as usize].max(depth[earlier as usize] + 1);
    }
    depth
}
