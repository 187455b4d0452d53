//! What one tile receives, and whether its memory can serve it.
//!
//! Input: the decoded rows of all tiles. Output: the tile's copies, and which words it took.
//! Invariants: copies are in order of their write events and do not meet.
//! Not here: words nobody took, borrowed lanes (`resolve`).

use super::row::RowEvents;
use super::{CopyRun, FabricError, RowInput};
use ipu_target::memory::{
    FETCH_LOOKAHEAD_BYTES, REGION_BOUNDARY, SRAM_BASE, SRAM_END, element_of, element_range,
    elements_of,
};
use ipu_target::topology::{logical, pair_partner, physical, route_time};

/// Mux value that selects nothing.
const NEUTRAL: u32 = 0x640;
/// A write keeps its element for this many events after its last word.
const WRITE_GUARD: i32 = 5;

/// All rows of a phase, by logical tile.
pub(super) struct Phase<'a> {
    pub inputs: &'a [RowInput<'a>],
    pub events: &'a [RowEvents],
    /// Index of a tile's row, or `u32::MAX`.
    pub index: &'a [u32],
}

/// Send events of one source that a tile took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub row: u32,
    pub start: i32,
    pub end: i32,
}

/// A stretch of words on their way into memory.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    source: u32,
    address: u32,
    send: i32,
    write: i32,
    items: i32,
    wide: bool,
    direction: u32,
}

/// The tile's copies and what they took.
pub(super) struct Received {
    pub copies: Vec<CopyRun>,
    pub taken: Vec<Taken>,
}

impl<'a> Phase<'a> {
    fn row_of(&self, tile: u32) -> Option<usize> {
        let index = self.index[tile as usize];
        (index != u32::MAX).then_some(index as usize)
    }

    /// Receives of the tile of row `row`.
    pub fn receive(&self, row: usize) -> Result<Received, FabricError> {
        let (tile, events) = (self.inputs[row].tile, &self.events[row]);
        let own = physical(tile);
        let partner = logical(pair_partner(own)).unwrap_or(tile);
        let (mut arrivals, mut taken) = (Vec::new(), Vec::new());
        for (from, to, value) in selections(tile, &events.sources)? {
            self.ordinary(tile, from, to, value, &mut arrivals, &mut taken)?;
        }
        for (from, to, value) in selections(tile, &events.paired_sources)? {
            if self.row_of(partner).is_none() {
                return Err(FabricError::NoPartner {
                    tile: partner,
                    event: from,
                });
            }
            self.paired(tile, own, (from, to, value), &mut arrivals, &mut taken)?;
        }
        if let Some(other) = self.row_of(partner) {
            let list = &self.events[other].paired_sources;
            for selection in selections(partner, list)? {
                self.paired(partner, own, selection, &mut arrivals, &mut taken)?;
            }
        }
        arrivals.sort_by_key(|a| a.write);
        if let Some(w) = arrivals
            .windows(2)
            .find(|w| w[0].write + w[0].items > w[1].write)
        {
            return Err(FabricError::Clash {
                tile,
                event: w[1].write,
            });
        }
        check_formats(tile, events, &arrivals)?;
        let copies = place(tile, events, &arrivals)?;
        if let Some(last) = copies.last() {
            let event = last.first_write_event + last.events();
            if event > events.duration {
                return Err(FabricError::Unfinished {
                    tile,
                    event: event - 1,
                });
            }
        }
        Ok(Received { copies, taken })
    }

    fn ordinary(
        &self,
        tile: u32,
        from: i32,
        to: i32,
        value: u32,
        arrivals: &mut Vec<Arrival>,
        taken: &mut Vec<Taken>,
    ) -> Result<(), FabricError> {
        let d = physical(tile);
        let source = logical(value).ok_or(FabricError::Source {
            tile,
            value,
            event: from,
        })?;
        let lag = 1 + route_time(value, d);
        let direction = ipu_target::topology::direction(value, d);
        let depth = 52 + 2 * (d >> 6) as i32;
        let way = Way {
            tile,
            source,
            lag,
            depth,
            direction,
            wide: false,
        };
        self.take(&way, from, to, arrivals, taken)
    }

    /// The pair's selection on tile `selector`, as seen by the member with physical number `own`.
    fn paired(
        &self,
        selector: u32,
        own: u32,
        (from, to, value): (i32, i32, u32),
        arrivals: &mut Vec<Arrival>,
        taken: &mut Vec<Taken>,
    ) -> Result<(), FabricError> {
        let d = physical(selector);
        let s = value ^ (d & 2);
        let tile = logical(own).unwrap_or(selector);
        let source = logical(s).ok_or(FabricError::Source {
            tile,
            value,
            event: from,
        })?;
        let (first, second) = (route_time(s, d), route_time(s, pair_partner(d)));
        if first >= second {
            return Err(FabricError::NotEarly {
                tile: selector,
                event: from,
            });
        }
        let direction = ipu_target::topology::direction(s, d);
        let depth = 53 + 2 * (d >> 6) as i32;
        let way = Way {
            tile,
            source,
            lag: second,
            depth,
            direction,
            wide: true,
        };
        self.take(&way, from, to, arrivals, taken)
    }

    /// Takes the words that stand at the mux over `[from, to)`.
    fn take(
        &self,
        way: &Way,
        from: i32,
        to: i32,
        arrivals: &mut Vec<Arrival>,
        taken: &mut Vec<Taken>,
    ) -> Result<(), FabricError> {
        let (tile, source_tile) = (way.tile, way.source);
        let empty = |event| FabricError::EmptySlot {
            tile,
            source_tile,
            event,
        };
        let row = self.row_of(way.source).ok_or(empty(from))?;
        let sends = &self.events[row].sends;
        let (mut at, until) = (from - way.lag, to - way.lag);
        let mut next = sends.partition_point(|r| r.end <= at);
        while at < until {
            let Some(run) = sends.get(next).filter(|r| r.start <= at) else {
                return Err(empty(at + way.lag));
            };
            if run.wide != way.wide {
                return Err(FabricError::Width {
                    tile,
                    source_tile,
                    event: at + way.lag,
                });
            }
            if run.directions & way.direction == 0 {
                return Err(FabricError::Direction {
                    tile,
                    source_tile,
                    event: at + way.lag,
                });
            }
            let end = run.end.min(until);
            arrivals.push(Arrival {
                source: way.source,
                address: run.address + (at - run.start) as u32 * run.item_bytes(),
                send: at,
                write: at + way.lag + way.depth,
                items: end - at,
                wide: way.wide,
                direction: way.direction,
            });
            taken.push(Taken {
                row: row as u32,
                start: at,
                end,
            });
            at = end;
            next += 1;
        }
        Ok(())
    }
}

/// How words of one source reach one tile.
struct Way {
    tile: u32,
    source: u32,
    lag: i32,
    depth: i32,
    direction: u32,
    wide: bool,
}

/// Stretches of time with a source selected.
fn selections(tile: u32, list: &[(i32, u32)]) -> Result<Vec<(i32, i32, u32)>, FabricError> {
    if list.last().is_some_and(|&(_, value)| value != NEUTRAL) {
        return Err(FabricError::MuxOpen { tile });
    }
    let pairs = list.windows(2).filter(|w| w[0].1 != NEUTRAL);
    Ok(pairs.map(|w| (w[0].0, w[1].0, w[0].1)).collect())
}

/// Words must pass the two stages before memory under one format, and ordinary ones with none.
fn check_formats(tile: u32, events: &RowEvents, arrivals: &[Arrival]) -> Result<(), FabricError> {
    let formats = &events.formats;
    if formats.last().is_some_and(|&(_, value)| value != 0) {
        return Err(FabricError::FormatOpen { tile });
    }
    for a in arrivals {
        let (from, expected) = (a.write - 2, if a.wide { a.direction } else { 0 });
        let until = from + a.items + if a.wide { 0 } else { 2 };
        let next = formats.partition_point(|f| f.0 <= from);
        let now = if next == 0 { 0 } else { formats[next - 1].1 };
        let changed = formats[next..]
            .iter()
            .find(|f| f.0 < until && f.1 != expected);
        if now != expected || changed.is_some() {
            let event = if now != expected {
                a.write
            } else {
                changed.map_or(0, |f| f.0 + 2)
            };
            return Err(FabricError::Format { tile, event });
        }
    }
    Ok(())
}

/// Follows the pointer stream.
fn place(tile: u32, events: &RowEvents, arrivals: &[Arrival]) -> Result<Vec<CopyRun>, FabricError> {
    let mut copies: Vec<CopyRun> = Vec::with_capacity(arrivals.len());
    let mut pointers = events.pointers.iter().peekable();
    let mut cursor: Option<u32> = None;
    for a in arrivals {
        let bytes = if a.wide { 8 } else { 4 };
        let mut done = 0;
        while done < a.items {
            let write = a.write + done;
            while let Some(&(_, address)) = pointers.next_if(|p| p.0 <= write) {
                cursor = Some(address);
            }
            let Some(dst_addr) = cursor else {
                return Err(FabricError::NoPointer { tile, event: write });
            };
            let change = pointers.peek().map_or(i32::MAX, |p| p.0);
            let items = (a.items - done).min(change - write);
            let length = items as u32 * bytes;
            cursor = Some(dst_addr + length);
            push(
                &mut copies,
                CopyRun {
                    src_tile: a.source,
                    src_addr: a.address + done as u32 * bytes,
                    dst_tile: tile,
                    dst_addr,
                    words: length / 4,
                    first_send_event: a.send + done,
                    first_write_event: write,
                    wide: a.wide,
                },
            );
            done += items;
        }
    }
    Ok(copies)
}

fn push(copies: &mut Vec<CopyRun>, run: CopyRun) {
    if let Some(last) = copies.last_mut() {
        let events = last.events();
        if last.src_tile == run.src_tile
            && last.wide == run.wide
            && last.src_addr + 4 * last.words == run.src_addr
            && last.dst_addr + 4 * last.words == run.dst_addr
            && last.first_send_event + events == run.first_send_event
            && last.first_write_event + events == run.first_write_event
        {
            last.words += run.words;
            return;
        }
    }
    copies.push(run);
}

/// A use of one element of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    element: u32,
    start: i32,
    end: i32,
    write: bool,
}

fn inside(address: u32, bytes: u32) -> bool {
    address >= SRAM_BASE && u64::from(address) + u64::from(bytes) <= u64::from(SRAM_END)
}

/// Cuts a run at element boundaries; `item` is the bytes of one event.
fn uses(run: (u32, u32), start: i32, item: u32, write: bool, out: &mut Vec<Use>) {
    let (mut address, end) = (run.0, run.0 + run.1);
    while address < end {
        let element = element_of(address);
        let stop = element_range(element).end.min(end);
        let event = |a: u32| start + ((a - run.0) / item) as i32;
        let guard = if write { WRITE_GUARD } else { 0 };
        out.push(Use {
            element,
            start: event(address),
            end: event(stop) + guard,
            write,
        });
        address = stop;
    }
}

/// Memory of one tile: addresses, elements shared in time, the row's own elements. Tells whether
/// bytes are read and written or written twice.
pub(super) fn check_memory(
    input: &RowInput,
    events: &RowEvents,
    copies: &[CopyRun],
) -> Result<bool, FabricError> {
    let tile = input.tile;
    let mut list = Vec::with_capacity(events.sends.len() + copies.len());
    let mut spans = Vec::with_capacity(events.sends.len() + copies.len());
    for run in &events.sends {
        let (address, bytes) = (run.address, run.bytes());
        if !inside(address, bytes) {
            return Err(FabricError::Address {
                tile,
                address,
                event: run.start,
            });
        }
        uses(
            (address, bytes),
            run.start,
            run.item_bytes(),
            false,
            &mut list,
        );
        spans.push((address, address + bytes, false));
    }
    for run in copies {
        let (address, bytes, event) = (run.dst_addr, 4 * run.words, run.first_write_event);
        if !inside(address, bytes) {
            return Err(FabricError::Address {
                tile,
                address,
                event,
            });
        }
        uses(
            (address, bytes),
            event,
            if run.wide { 8 } else { 4 },
            true,
            &mut list,
        );
        spans.push((address, address + bytes, true));
    }
    check_elements(tile, &mut list)?;
    if let Some(address) = input.row_address {
        let bytes = 4 * events.words + FETCH_LOOKAHEAD_BYTES;
        if !(SRAM_BASE..REGION_BOUNDARY).contains(&address) {
            return Err(FabricError::Address {
                tile,
                address,
                event: 0,
            });
        }
        let own = elements_of(address, bytes);
        if let Some(u) = list.iter().find(|u| own.contains(&u.element)) {
            return Err(FabricError::RowElement {
                tile,
                element: u.element,
            });
        }
    }
    Ok(overlapping(&mut spans))
}

fn check_elements(tile: u32, list: &mut [Use]) -> Result<(), FabricError> {
    list.sort_unstable();
    for group in list.chunk_by(|a, b| a.element == b.element) {
        let mut ends = [i32::MIN; 2];
        for u in group {
            if u.start < ends[usize::from(!u.write)] {
                return Err(FabricError::Element {
                    tile,
                    element: u.element,
                    event: u.start,
                });
            }
            let own = &mut ends[usize::from(u.write)];
            *own = (*own).max(u.end);
        }
    }
    Ok(())
}

fn overlapping(spans: &mut [(u32, u32, bool)]) -> bool {
    spans.sort_unstable();
    let (mut read, mut written) = (0, 0);
    spans.iter().any(|&(start, end, write)| {
        let hit = start < written || (write && start < read);
        let reach = if write { &mut written } else { &mut read };
        *reach = end.max(*reach);
        hit
    })
}
