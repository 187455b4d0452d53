//! One tile's placement problem.
//!
//! Input: the items of one tile and the memory left for data. Output: an address for each item,
//! the proof that there is none, or where each order stopped.
//! Invariants: items whose lives meet do not overlap; persistent items come first, sequences
//! before the rest; an item never crosses the region boundary; what must be distinct shares no
//! memory element. Equal problems have equal answers.
//! Not here: tiles, names.

use std::cmp::Reverse;
use std::ops::Range;

use ipu_ir::contract::MemoryClass;
use ipu_target::memory::{
    APERTURE, LOADER_LIMIT, REGION_BOUNDARY, SRAM_END, element_range, elements_of,
};

/// Storage to place. Bytes are those of the whole sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub bytes: u32,
    pub align: u32,
    pub class: MemoryClass,
    pub over_read: u32,
    /// Inclusive events, or none when persistent.
    pub life: Option<(u32, u32)>,
    pub sequence: bool,
    /// Indices of items of the same problem.
    pub distinct: Vec<u32>,
}

/// Memory that placement may use, the same on every tile.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// First byte after the reservations, in region 0.
    pub data: u32,
    /// Events in which the host uses the aperture.
    pub host_events: Vec<u32>,
    /// Last event of the program.
    pub end: u32,
}

pub(crate) enum Misfit {
    Infeasible {
        class: MemoryClass,
        event: u32,
        needed: u64,
        available: u64,
        item: u32,
    },
    GaveUp(Vec<Stop>),
}

/// Where an order stopped.
pub(crate) struct Stop {
    pub order: &'static str,
    pub item: u32,
    pub free: Vec<(u32, u32)>,
}

impl Room {
    fn region0(&self) -> Range<u32> {
        self.data..REGION_BOUNDARY
    }

    fn region1(&self) -> Range<u32> {
        REGION_BOUNDARY..LOADER_LIMIT
    }

    fn may_use_aperture(&self, item: &Item) -> bool {
        let Some((first, last)) = item.life else {
            return false;
        };
        item.class == MemoryClass::Standard
            && !self
                .host_events
                .iter()
                .any(|event| (first..=last).contains(event))
    }

    /// Where an item may go, in order of preference.
    fn ranges(&self, item: &Item) -> Vec<Range<u32>> {
        match item.class {
            MemoryClass::Interleaved => vec![self.region1()],
            MemoryClass::Standard if self.may_use_aperture(item) => {
                vec![APERTURE, self.region0(), self.region1()]
            }
            MemoryClass::Standard => vec![self.region0(), self.region1()],
        }
    }
}

fn meets(a: &Item, b: &Item) -> bool {
    match (a.life, b.life) {
        (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
        _ => true,
    }
}

/// Most bytes that are live at one event among the items that `wanted` selects.
fn peak(items: &[Item], end: u32, wanted: impl Fn(&Item) -> bool) -> (u64, u32) {
    let mut changes: Vec<(u32, i64)> = Vec::with_capacity(2 * items.len());
    for item in items.iter().filter(|item| wanted(item)) {
        let (first, last) = item.life.unwrap_or((0, end));
        changes.push((first, i64::from(item.bytes)));
        changes.push((last + 1, -i64::from(item.bytes)));
    }
    changes.sort_unstable();
    let (mut live, mut most, mut at) = (0i64, 0i64, 0);
    for (event, change) in changes {
        live += change;
        if live > most {
            (most, at) = (live, event);
        }
    }
    (most as u64, at)
}

/// The proof that no placement exists, if live bytes alone give one.
fn bound(items: &[Item], room: &Room) -> Option<Misfit> {
    let size = |range: &Range<u32>| u64::from(range.end - range.start);
    let both = size(&room.region0()) + size(&room.region1());
    let interleaved = |item: &Item| item.class == MemoryClass::Interleaved;
    let no_aperture = |item: &Item| !room.may_use_aperture(item);
    let tests: [(MemoryClass, u64, &dyn Fn(&Item) -> bool); 3] = [
        (
            MemoryClass::Interleaved,
            size(&room.region1()),
            &interleaved,
        ),
        (MemoryClass::Standard, both, &no_aperture),
        (MemoryClass::Standard, both + size(&APERTURE), &|_| true),
    ];
    for (class, available, wanted) in tests {
        let (needed, event) = peak(items, room.end, wanted);
        if needed > available {
            let live = items.iter().enumerate().filter(|(_, item)| {
                let (first, last) = item.life.unwrap_or((0, room.end));
                wanted(item) && first <= event && event <= last
            });
            let largest = live.max_by_key(|(index, item)| (item.bytes, Reverse(*index)));
            return Some(Misfit::Infeasible {
                class,
                event,
                needed,
                available,
                item: largest.map_or(0, |(index, _)| index as u32),
            });
        }
    }
    None
}

/// Addresses under construction.
struct Packing<'a> {
    items: &'a [Item],
    room: &'a Room,
    addresses: Vec<Option<u32>>,
}

impl Packing<'_> {
    /// Byte ranges that an item must not touch, ascending.
    fn taken(&self, index: usize, with_distinct: bool) -> Vec<Range<u32>> {
        let item = &self.items[index];
        let mut taken: Vec<Range<u32>> = Vec::new();
        for (other, address) in self.items.iter().zip(&self.addresses) {
            if let Some(address) = *address
                && meets(item, other)
            {
                taken.push(address..address + other.bytes);
            }
        }
        let distinct = item.distinct.iter().filter(|_| with_distinct);
        for &other in distinct {
            if let Some(address) = self.addresses[other as usize] {
                let elements = elements_of(address, self.items[other as usize].bytes);
                if !elements.is_empty() {
                    let last = element_range(elements.end - 1);
                    taken.push(element_range(elements.start).start..last.end);
                }
            }
        }
        taken.sort_unstable_by_key(|range| range.start);
        taken
    }

    fn find(&self, index: usize) -> Option<u32> {
        let item = &self.items[index];
        let taken = self.taken(index, true);
        self.room.ranges(item).into_iter().find_map(|range| {
            let readable = SRAM_END.saturating_sub(item.over_read);
            let limit = range.end.min(readable);
            let mut at = range.start.next_multiple_of(item.align);
            for other in &taken {
                if other.end <= at {
                    continue;
                }
                if other.start >= at.saturating_add(item.bytes) {
                    break;
                }
                at = other.end.next_multiple_of(item.align);
            }
            (at.saturating_add(item.bytes) <= limit).then_some(at)
        })
    }

    /// What is free over an item's life in the ranges of its class.
    fn free(&self, index: usize) -> Vec<(u32, u32)> {
        let taken = self.taken(index, false);
        let mut free = Vec::new();
        for range in self.room.ranges(&self.items[index]) {
            let mut at = range.start;
            for other in &taken {
                let start = other.start.min(range.end);
                if start > at {
                    free.push((at, start));
                }
                at = at.max(other.end);
            }
            if at < range.end {
                free.push((at, range.end));
            }
        }
        free
    }

    fn place(&mut self, order: &[usize], name: &'static str) -> Result<(), Stop> {
        for &index in order {
            match self.find(index) {
                Some(address) => self.addresses[index] = Some(address),
                None => {
                    return Err(Stop {
                        order: name,
                        item: index as u32,
                        free: self.free(index),
                    });
                }
            }
        }
        Ok(())
    }
}

fn sorted<K: Ord>(items: &[Item], persistent: bool, key: impl Fn(&Item) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len())
        .filter(|&index| items[index].life.is_none() == persistent)
        .collect();
    order.sort_by_key(|&index| key(&items[index]));
    order
}

fn standard(item: &Item) -> bool {
    item.class == MemoryClass::Standard
}

/// Solve one problem.
pub(crate) fn fit(items: &[Item], room: &Room) -> Result<Vec<u32>, Misfit> {
    if let Some(proof) = bound(items, room) {
        return Err(proof);
    }
    let mut packing = Packing {
        items,
        room,
        addresses: vec![None; items.len()],
    };
    let persistent = sorted(items, true, |item| {
        (!item.sequence, standard(item), Reverse(item.bytes))
    });
    if let Err(stop) = packing.place(&persistent, "persistent") {
        return Err(Misfit::GaveUp(vec![stop]));
    }
    let resident = packing.addresses.clone();
    let life = |item: &Item| item.life.unwrap_or_default();
    let largest = |item: &Item| Reverse((item.align, item.bytes));
    let orders = [
        (
            "lifetime",
            sorted(items, false, |item| {
                (life(item).0, standard(item), largest(item))
            }),
        ),
        (
            "end first",
            sorted(items, false, |item| {
                (life(item).1 != room.end, Reverse(item.bytes))
            }),
        ),
        (
            "size",
            sorted(items, false, |item| {
                let (first, last) = life(item);
                (largest(item), Reverse(last - first))
            }),
        ),
    ];
    let mut stops = Vec::new();
    for (name, order) in orders {
        packing.addresses.clone_from(&resident);
        match packing.place(&order, name) {
            Ok(()) => {
                let addresses = packing.addresses.into_iter();
                return Ok(addresses.map(|address| address.unwrap_or(0)).collect());
            }
            Err(stop) => stops.push(stop),
        }
    }
    Err(Misfit::GaveUp(stops))
}
