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
    /// Items, by index, that must not share a memory element with this one.
    pub distinct: Vec<u32>,
    /// Items that had better not.
    pub contenders: Vec<u32>,
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

/// Selects what counts towards a bound.
type Wanted<'a> = &'a dyn Fn(&Item) -> bool;

/// The proof that no placement exists, if live bytes alone give one.
fn bound(items: &[Item], room: &Room) -> Option<Misfit> {
    let size = |range: &Range<u32>| u64::from(range.end - range.start);
    let both = size(&room.region0()) + size(&room.region1());
    let interleaved = |item: &Item| item.class == MemoryClass::Interleaved;
    let no_aperture = |item: &Item| !room.may_use_aperture(item);
    let tests: [(MemoryClass, u64, Wanted); 3] = [
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
    /// Whether contenders are kept apart where there is room.
    spread: bool,
}

/// Which items keep how far from one another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    /// No common byte.
    Bytes,
    /// No common element where the contract says so.
    Distinct,
    /// No common element with contenders either.
    Contenders,
}

impl Packing<'_> {
    /// Byte ranges that an item must not touch, ascending.
    fn taken(&self, index: usize, distance: Distance) -> Vec<Range<u32>> {
        let item = &self.items[index];
        let mut taken: Vec<Range<u32>> = Vec::new();
        for (other, address) in self.items.iter().zip(&self.addresses) {
            if let Some(address) = *address
                && meets(item, other)
            {
                taken.push(address..address + other.bytes);
            }
        }
        let distinct = item.distinct.iter();
        let distinct = distinct.filter(|_| distance != Distance::Bytes);
        let contenders = item.contenders.iter();
        let contenders = contenders.filter(|_| distance == Distance::Contenders);
        for &other in distinct.chain(contenders) {
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
        let contends = self.spread && !self.items[index].contenders.is_empty();
        let apart = contends.then(|| self.first_fit(index, Distance::Contenders));
        apart
            .flatten()
            .or_else(|| self.first_fit(index, Distance::Distinct))
    }

    fn first_fit(&self, index: usize, distance: Distance) -> Option<u32> {
        let item = &self.items[index];
        let taken = self.taken(index, distance);
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
        let taken = self.taken(index, Distance::Bytes);
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

/// The orders in which transient items are tried.
fn orders(items: &[Item], end: u32) -> [(&'static str, Vec<usize>); 3] {
    let life = |item: &Item| item.life.unwrap_or_default();
    let largest = |item: &Item| Reverse((item.align, item.bytes));
    [
        (
            "lifetime",
            sorted(items, false, |item| {
                (life(item).0, standard(item), largest(item))
            }),
        ),
        (
            "end first",
            sorted(items, false, |item| {
                (life(item).1 != end, Reverse(item.bytes))
            }),
        ),
        (
            "size",
            sorted(items, false, |item| {
                let (first, last) = life(item);
                (largest(item), Reverse(last - first))
            }),
        ),
    ]
}

/// Solve one problem: with contenders apart where there is room, else without.
pub(crate) fn fit(items: &[Item], room: &Room) -> Result<Vec<u32>, Misfit> {
    if let Some(proof) = bound(items, room) {
        return Err(proof);
    }
    let mut packing = Packing {
        items,
        room,
        addresses: vec![None; items.len()],
        spread: false,
    };
    let persistent = sorted(items, true, |item| {
        (!item.sequence, standard(item), Reverse(item.bytes))
    });
    if let Err(stop) = packing.place(&persistent, "persistent") {
        return Err(Misfit::GaveUp(vec![stop]));
    }
    let resident = packing.addresses.clone();
    let orders = orders(items, room.end);
    let mut stops = Vec::new();
    for spread in [true, false] {
        packing.spread = spread;
        for (name, order) in &orders {
            packing.addresses.clone_from(&resident);
            match packing.place(order, name) {
                Ok(()) => {
                    let addresses = packing.addresses.into_iter();
                    return Ok(addresses.map(|address| address.unwrap_or(0)).collect());
                }
                Err(stop) if !spread => stops.push(stop),
                Err(_) => {}
            }
        }
    }
    Err(Misfit::GaveUp(stops))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        data: REGION_BOUNDARY,
        host_events: Vec::new(),
        end: 9,
    };

    fn item(bytes: u32, life: Option<(u32, u32)>) -> Item {
        Item {
            bytes,
            align: 8,
            class: MemoryClass::Interleaved,
            over_read: 0,
            life,
            sequence: false,
            distinct: Vec::new(),
            contenders: Vec::new(),
        }
    }

    #[test]
    fn another_order_helps() {
        let items = [
            item(100_000, Some((0, 1))),
            item(150_000, Some((1, 5))),
            item(260_000, Some((2, 5))),
        ];
        let addresses = fit(&items, &ROOM).ok().unwrap();
        assert_eq!(addresses[2], REGION_BOUNDARY);
        assert_eq!(addresses[1], REGION_BOUNDARY + 260_000);
        assert_eq!(addresses[0], REGION_BOUNDARY);
    }

    #[test]
    fn every_order_reports_where_it_stopped() {
        // Distinct elements leave no room, which live bytes alone do not show.
        let mut items: Vec<Item> = (0..14).map(|_| item(8, Some((0, 9)))).collect();
        for at in 0..14u32 {
            items[at as usize].distinct = (0..14).filter(|&other| other != at).collect();
        }
        let Err(Misfit::GaveUp(stops)) = fit(&items, &ROOM) else {
            panic!("13 elements cannot hold 14 distinct items");
        };
        let names: Vec<&str> = stops.iter().map(|stop| stop.order).collect();
        assert_eq!(names, ["lifetime", "end first", "size"]);
        assert_eq!(stops[0].free.len(), 13);
        items.pop();
        items
            .iter_mut()
            .for_each(|item| item.distinct.retain(|&other| other < 13));
        assert!(fit(&items, &ROOM).is_ok());
    }

    #[test]
    fn live_bytes_prove_that_nothing_fits() {
        let items = [
            item(300_000, None),
            item(100_000, Some((0, 3))),
            item(30_000, Some((3, 4))),
        ];
        let Err(Misfit::Infeasible {
            event,
            needed,
            item,
            ..
        }) = fit(&items, &ROOM)
        else {
            panic!("430000 bytes are live at event 3");
        };
        assert_eq!((event, needed, item), (3, 430_000, 0));
    }

    #[test]
    fn contenders_part_while_there_is_room() {
        let mut items = [item(8, Some((0, 1))), item(8, Some((0, 1)))];
        items[0].contenders = vec![1];
        items[1].contenders = vec![0];
        assert_eq!(fit(&items, &ROOM).ok().unwrap(), [0x80000, 0x88000]);
        items[1].bytes = 420_000;
        assert!(fit(&items, &ROOM).is_ok());
    }

    #[test]
    fn over_read_stays_in_memory() {
        let mut items = [item(424_880, Some((0, 1)))];
        items[0].over_read = 1_104;
        assert!(fit(&items, &ROOM).is_ok());
        items[0].over_read = 1_105;
        assert!(fit(&items, &ROOM).is_err());
    }
}
