//! Random small worlds: what is scheduled is what the fabric delivers.

use ipu_exchange::check::inputs;
use ipu_exchange::{
    ExchangeError, Moving, Schedule, SchedulePolicy, Transfer, Width, check, place_in_order,
    schedule, schedule_recalled,
};
use ipub_base::{Digest, Memo};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A small generator with a fixed sequence.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 33) * u64::from(below)) >> 31) as u32
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.next(list.len() as u32) as usize]
    }
}

/// What a world may hold.
#[derive(Clone, Copy)]
struct World {
    tiles: u32,
    transfers: u32,
    words_max: u32,
    receivers_max: u32,
    pairs: bool,
    moving: bool,
    /// Destinations and sources share elements, but no bytes.
    crowded: bool,
    /// Destinations and sources share bytes.
    hazards: bool,
}

const PLAIN: World = World {
    tiles: 12,
    transfers: 60,
    words_max: 200,
    receivers_max: 6,
    pairs: false,
    moving: false,
    crowded: false,
    hazards: false,
};

/// A source, a number of words and receivers.
fn shape(w: World, r: &mut Random, tile: &dyn Fn(&mut Random) -> u32) -> (u32, u32, Vec<u32>) {
    let words = match r.next(4) {
        0 => 1 + r.next(8),
        1 => r.one_of(&[26, 27, 28, 29, 30, 51, 52, 53, 54, 56, 64]),
        _ => 1 + r.next(w.words_max),
    };
    let words = if w.pairs {
        words.next_multiple_of(2)
    } else {
        words
    };
    let source = tile(r);
    let mut to: Vec<u32> = Vec::new();
    for _ in 0..1 + r.next(w.receivers_max) {
        let t = tile(r);
        let last = if w.pairs { t | 1 } else { t };
        for member in (if w.pairs { t & !1 } else { t })..=last {
            if !to.contains(&member) {
                to.push(member);
            }
        }
    }
    (source, words, to)
}

fn world(w: World, seed: u64) -> Vec<Transfer> {
    let mut r = Random(seed);
    let spread = r.one_of(&[2, 7, 92, 120]);
    let tile = |r: &mut Random| {
        let t = r.next(w.tiles);
        (t / 2 * spread + t % 2) % 1472
    };
    // Bytes are handed out once: from one end for sources, from the other for destinations.
    let mut used = vec![0u32; 1472];
    let mut out = Vec::new();
    for _ in 0..w.transfers {
        let (source, words, to) = shape(w, &mut r, &tile);
        if to == [source] {
            continue;
        }
        let bytes = (4 * words).next_multiple_of(8);
        let mut claim = |tile: u32, base: u32| {
            let at = used[tile as usize];
            used[tile as usize] += bytes;
            base + at
        };
        let own = to.contains(&source);
        let low = if w.crowded && !own { 0x80000 } else { 0x60000 };
        let source_address = if w.hazards && !own && r.next(3) == 0 {
            0x90000 + 8 * r.next(64)
        } else {
            claim(source, low)
        };
        let address = |r: &mut Random, claim: &mut dyn FnMut(u32, u32) -> u32, t: u32| {
            if w.hazards && r.next(2) == 0 {
                0x90000 + 8 * r.next(64)
            } else {
                claim(t, 0x80000)
            }
        };
        let destinations = to
            .iter()
            .map(|&t| (t, address(&mut r, &mut claim, t)))
            .collect();
        let moving = (w.moving && r.next(2) == 0).then(|| Moving {
            base: 0x60000,
            extent: source_address..source_address + 4 * words,
        });
        let moving = moving.filter(|_| source_address >= 0x60000);
        let width = Width::Word32;
        out.push(Transfer {
            source,
            source_address,
            words,
            destinations,
            width,
            moving,
        });
    }
    out
}

fn prove(transfers: &[Transfer], pairing: bool) -> Schedule {
    let policy = SchedulePolicy {
        chunk_words: 128,
        pairing,
    };
    let made = schedule(transfers, &policy).expect("the world has rows");
    let events = check(transfers, &inputs(&made.rows)).expect("rows do what was asked");
    assert_eq!(events.horizon as u32, made.horizon);
    assert!(made.horizon >= made.bound);
    assert_eq!(made, schedule(transfers, &policy).unwrap());
    made
}

#[test]
fn plain_worlds() {
    for seed in 0..300 {
        prove(&world(PLAIN, seed), true);
    }
}

#[test]
fn pairs_of_tiles() {
    let mut wide = 0;
    for seed in 0..300 {
        let list = world(
            World {
                pairs: true,
                ..PLAIN
            },
            seed,
        );
        let bound = prove(&list, true).bound;
        wide += u32::from(bound < prove(&list, false).bound);
    }
    assert!(wide > 20, "only {wide} worlds were better off in pairs");
}

#[test]
fn crowded_memory() {
    for seed in 0..300 {
        prove(
            &world(
                World {
                    crowded: true,
                    ..PLAIN
                },
                seed,
            ),
            true,
        );
    }
}

#[test]
fn moving_sources() {
    let mut moved = 0;
    for seed in 0..300 {
        let made = prove(
            &world(
                World {
                    moving: true,
                    ..PLAIN
                },
                seed,
            ),
            true,
        );
        moved += made.rows.iter().filter(|r| r.moving_base.is_some()).count();
        let switches = |words: &[u32]| words.iter().filter(|&&w| w == 0x43f0_80a7).count();
        assert!(made.rows.iter().all(|r| switches(&r.words) <= 1));
    }
    assert!(moved > 1000);
}

#[test]
fn shared_bytes() {
    let mut refused = 0;
    for seed in 0..300 {
        let list = world(
            World {
                hazards: true,
                words_max: 60,
                ..PLAIN
            },
            seed,
        );
        match schedule(&list, &SchedulePolicy::default()) {
            Ok(_) => drop(prove(&list, true)),
            Err(ExchangeError::Cycle { .. } | ExchangeError::Loopback { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused < 150, "{refused} worlds refused");
}

#[test]
fn long_transfers_are_cut() {
    let one = |words, destinations| Transfer {
        source: 3,
        source_address: 0x60000,
        words,
        destinations,
        width: Width::Word32,
        moving: None,
    };
    let made = prove(&[one(20_000, vec![(9, 0x90000), (700, 0x80000)])], true);
    assert!(made.horizon < made.bound + 200);
    let own = prove(&[one(28, vec![(3, 0x90000), (700, 0x80000)])], true);
    assert_eq!(own.messages, 2);
}

#[test]
fn list_order_worlds() {
    for seed in 0..100 {
        let list = world(
            World {
                transfers: 20,
                ..PLAIN
            },
            seed,
        );
        match place_in_order(&list, &[]) {
            Ok(made) => drop(check(&list, &inputs(&made.rows)).expect("rows do what was asked")),
            Err(ExchangeError::SendStart { .. } | ExchangeError::Alignment { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn threads_do_not_matter() {
    let list = world(
        World {
            pairs: true,
            ..PLAIN
        },
        7,
    );
    let made = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let made = schedule(&list, &SchedulePolicy::default()).unwrap();
            let events = check(&list, &inputs(&made.rows)).unwrap();
            (made, events)
        })
    };
    assert_eq!(made(1), made(4));
}

/// A memo in memory that counts what it found.
#[derive(Default)]
struct Remembered {
    entries: Mutex<BTreeMap<Digest, Vec<u8>>>,
    found: AtomicU32,
}

impl Memo for Remembered {
    fn get(&self, _: &'static str, key: Digest) -> Option<Vec<u8>> {
        let value = self.entries.lock().unwrap().get(&key).cloned();
        self.found
            .fetch_add(u32::from(value.is_some()), Ordering::Relaxed);
        value
    }

    fn put(&self, _: &'static str, key: Digest, value: Vec<u8>) {
        self.entries.lock().unwrap().insert(key, value);
    }
}

/// The same traffic elsewhere: both ends of each tile's memory move, and `scatter` of ten transfers
/// on their own.
fn shifted(list: &[Transfer], seed: u64, scatter: u32) -> Vec<Transfer> {
    let mut r = Random(seed);
    let steps: Vec<[u32; 3]> = (0..1472)
        .map(|_| [8 * r.next(4_000), 8 * r.next(4_000), 8 * r.next(4_000)])
        .collect();
    let at = |tile: u32, address: u32| {
        let end = [0x80000, 0x90000]
            .iter()
            .filter(|&&end| address >= end)
            .count();
        address + steps[tile as usize][end]
    };
    let mut list = list.to_vec();
    for transfer in &mut list {
        let own = if r.next(10) < scatter {
            8 * r.next(300)
        } else {
            0
        };
        let to = at(transfer.source, transfer.source_address) + own;
        if let Some(moving) = &mut transfer.moving {
            let bytes = 4 * transfer.words;
            moving.base += steps[transfer.source as usize][0];
            moving.extent = to..to + bytes;
        }
        transfer.source_address = to;
        for destination in &mut transfer.destinations {
            destination.1 = at(destination.0, destination.1) + own;
        }
    }
    list
}

#[test]
fn recalled_schedules_are_those_that_are_made() {
    let kinds = [
        PLAIN,
        World {
            pairs: true,
            ..PLAIN
        },
        World {
            moving: true,
            pairs: true,
            ..PLAIN
        },
        World {
            crowded: true,
            ..PLAIN
        },
        World {
            hazards: true,
            ..PLAIN
        },
        World {
            crowded: true,
            moving: true,
            ..PLAIN
        },
    ];
    let policy = SchedulePolicy {
        chunk_words: 128,
        pairing: true,
    };
    let (mut found, mut missed) = (0, 0);
    for kind in kinds {
        for seed in 0..60 {
            let list = world(kind, seed);
            let memo = Remembered::default();
            let first = schedule_recalled(&list, &policy, &memo);
            assert_eq!(first, schedule(&list, &policy));
            assert_eq!(first, schedule_recalled(&list, &policy, &memo));
            for scatter in [0, 1, 5] {
                let list = shifted(&list, seed + 1_000, scatter);
                let before = memo.found.load(Ordering::Relaxed);
                let recalled = schedule_recalled(&list, &policy, &memo);
                assert_eq!(recalled, schedule(&list, &policy), "seed {seed}");
                match memo.found.load(Ordering::Relaxed) > before {
                    true => found += 1,
                    false => missed += 1,
                }
            }
        }
    }
    println!("{found} recalled, {missed} made");
    assert!(found > 100 && missed > 100);
}
