//! Do rows move exactly what was asked?
//!
//! Input: transfers and rows. Output: the events of the rows, or the first difference.
//! Invariants: judges rows by `fabric` alone, never by the times a scheduler wrote down.
//! Not here: making rows.

use crate::fabric::{CopyRun, FabricError, PhaseEvents, RowInput, resolve};
use crate::order::Row;
use crate::transfer::Transfer;

/// Why rows do not do what transfers ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Words asked for that do not arrive there.
    #[error("{0} should arrive and does not")]
    Missing(Line),
    /// Words that arrive and were not asked for.
    #[error("{0} arrives and should not")]
    Extra(Line),
    /// Overlapping transfers in another order than asked.
    #[error("transfer {later} must wait for transfer {earlier} and does not")]
    Order { earlier: usize, later: usize },
}

/// Words that go from consecutive addresses of one tile to consecutive addresses of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub dst_tile: u32,
    pub src_tile: u32,
    /// Destination address less source address.
    pub shift: i64,
    pub dst_addr: u32,
    pub words: u32,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source = i64::from(self.dst_addr) - self.shift;
        write!(
            f,
            "{} words from tile {} at {source:#x} to tile {} at {:#x}",
            self.words, self.src_tile, self.dst_tile, self.dst_addr
        )
    }
}

fn line(src_tile: u32, src_addr: u32, dst_tile: u32, dst_addr: u32, words: u32) -> Line {
    let shift = i64::from(dst_addr) - i64::from(src_addr);
    Line {
        dst_tile,
        src_tile,
        shift,
        dst_addr,
        words,
    }
}

fn joined(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_unstable();
    let mut out: Vec<Line> = Vec::with_capacity(lines.len());
    for next in lines {
        match out.last_mut() {
            Some(last)
                if (last.dst_tile, last.src_tile, last.shift)
                    == (next.dst_tile, next.src_tile, next.shift)
                    && last.dst_addr + 4 * last.words == next.dst_addr =>
            {
                last.words += next.words;
            }
            _ => out.push(next),
        }
    }
    out
}

/// The machine's view of rows, with no address for the rows themselves.
pub fn inputs(rows: &[Row]) -> Vec<RowInput<'_>> {
    rows.iter().map(Row::input).collect()
}

/// Runs the rows and compares what moves with what the transfers ask for.
pub fn check(transfers: &[Transfer], rows: &[RowInput]) -> Result<PhaseEvents, CheckError> {
    let events = resolve(rows)?;
    let wanted = transfers.iter().flat_map(|t| {
        let to = t.destinations.iter();
        to.map(|&(tile, address)| line(t.source, t.source_address, tile, address, t.words))
    });
    let wanted = joined(wanted.collect());
    let moved = |c: &CopyRun| line(c.src_tile, c.src_addr, c.dst_tile, c.dst_addr, c.words);
    let moved = joined(events.copies.iter().map(moved).collect());
    for (w, m) in wanted.iter().zip(&moved) {
        match w.cmp(m) {
            std::cmp::Ordering::Less => return Err(CheckError::Missing(*w)),
            std::cmp::Ordering::Greater => return Err(CheckError::Extra(*m)),
            std::cmp::Ordering::Equal => {}
        }
    }
    if let Some(extra) = moved.get(wanted.len()) {
        return Err(CheckError::Extra(*extra));
    }
    if let Some(missing) = wanted.get(moved.len()) {
        return Err(CheckError::Missing(*missing));
    }
    if events.overlapping {
        check_order(transfers, &events)?;
    }
    Ok(events)
}

/// First and last events at which the copies of one transfer touch a byte range of a tile.
fn touched(
    events: &PhaseEvents,
    t: &Transfer,
    tile: u32,
    range: (u32, u32),
    write: bool,
) -> Vec<(i32, i32)> {
    let mut out = Vec::new();
    for c in events.copies.iter().filter(|c| c.src_tile == t.source) {
        let shift = i64::from(c.dst_addr) - i64::from(c.src_addr);
        let own = |d: &&(u32, u32)| {
            d.0 == c.dst_tile && i64::from(d.1) - i64::from(t.source_address) == shift
        };
        if (if write { c.dst_tile } else { c.src_tile }) != tile
            || !t.destinations.iter().any(|d| own(&d))
        {
            continue;
        }
        // In source addresses: the copy, the transfer, the range.
        let moved = if write { shift } else { 0 };
        let start = i64::from(c.src_addr);
        let low = start
            .max(i64::from(t.source_address))
            .max(i64::from(range.0) - moved);
        let high = (start + 4 * i64::from(c.words))
            .min(i64::from(t.source_address + t.bytes()))
            .min(i64::from(range.1) - moved);
        if low < high {
            let item = if c.wide { 8 } else { 4 };
            let first = if write {
                c.first_write_event
            } else {
                c.first_send_event
            };
            let event = |address: i64| first + ((address - start) / item) as i32;
            out.push((event(low), event(high - 1) + 1));
        }
    }
    out
}

/// Transfers that share bytes must act in list order. Only phases with shared bytes come here.
fn check_order(transfers: &[Transfer], events: &PhaseEvents) -> Result<(), CheckError> {
    let mut spans: Vec<(u32, u32, u32, usize, bool)> = Vec::new();
    for (index, t) in transfers.iter().enumerate() {
        let bytes = 4 * t.words;
        spans.push((
            t.source,
            t.source_address,
            t.source_address + bytes,
            index,
            false,
        ));
        spans.extend(
            t.destinations
                .iter()
                .map(|d| (d.0, d.1, d.1 + bytes, index, true)),
        );
    }
    spans.sort_unstable();
    for (at, a) in spans.iter().enumerate() {
        let close = spans[at + 1..]
            .iter()
            .take_while(|b| b.0 == a.0 && b.1 < a.2);
        for b in close.filter(|b| b.3 != a.3 && (a.4 || b.4)) {
            let (first, second) = if a.3 < b.3 { (a, b) } else { (b, a) };
            let shared = (a.1.max(b.1), a.2.min(b.2));
            let (earlier, later) = (first.3, second.3);
            let early = touched(events, &transfers[earlier], a.0, shared, first.4);
            let late = touched(events, &transfers[later], a.0, shared, second.4);
            // Another transfer may move the same words; then one of them must be in order.
            let most = (shared.1 - shared.0) as i32 / 4;
            let twice = |list: &[(i32, i32)]| list.iter().map(|e| e.1 - e.0).sum::<i32>() > most;
            let fine = if twice(&early) || twice(&late) {
                early.iter().map(|e| e.1).min() <= late.iter().map(|l| l.0).max()
            } else {
                early.iter().map(|e| e.1).max() <= late.iter().map(|l| l.0).min()
            };
            if !fine {
                return Err(CheckError::Order { earlier, later });
            }
        }
    }
    Ok(())
}
