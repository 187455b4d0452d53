//! A memo only saves time: placements with an empty, a full and a half-evicted memo are the same bytes.

mod tree;

use std::collections::BTreeMap;
use std::sync::Mutex;

use ipu_ir::contract::Contract;
use ipu_ir::mid::Mid;
use ipu_ir::program::Reservations;
use ipu_model::lower;
use ipu_place::{SchedulePolicy, place_recalled};
use ipu_plan::{AttentionFormats, Format, PlannerPolicy, Precision, candidates};
use ipub_base::{Digest, Memo, NoMemo};
use ipub_stages::SimulatedCosts;
use tree::{kernels, spec};

/// Mids of a model, the best first.
fn mids(model: &str, batch: u32, tiles: u32, operand_limits: Vec<u32>) -> Vec<Mid> {
    let graph = lower(&spec(model), batch).unwrap();
    let (contracts, objects) = kernels();
    let costs = SimulatedCosts::new(&contracts, &objects, &NoMemo);
    let f16 = AttentionFormats {
        qk: Format::F16,
        pv: Format::F16,
    };
    let precision = Precision {
        embed: Format::F16,
        dense: Format::F143(-4),
        attention: f16,
        map: f16,
    };
    let planner = PlannerPolicy {
        tiles,
        operand_limits,
        search_steps: 0,
    };
    let found = candidates(&graph, &precision, &planner, &costs).unwrap();
    found.into_iter().map(|candidate| candidate.mid).collect()
}

type Key = (&'static str, Digest);

/// Entries, and how often one was found.
#[derive(Default)]
struct Remembered(Mutex<(BTreeMap<Key, Vec<u8>>, usize)>);

impl Memo for Remembered {
    fn get(&self, kind: &'static str, key: Digest) -> Option<Vec<u8>> {
        let mut state = self.0.lock().unwrap();
        let value = state.0.get(&(kind, key)).cloned();
        state.1 += usize::from(value.is_some());
        value
    }

    fn put(&self, kind: &'static str, key: Digest, value: Vec<u8>) {
        self.0.lock().unwrap().0.insert((kind, key), value);
    }
}

impl Remembered {
    fn entries(&self) -> BTreeMap<Key, Vec<u8>> {
        self.0.lock().unwrap().0.clone()
    }

    fn with(entries: BTreeMap<Key, Vec<u8>>) -> Self {
        Remembered(Mutex::new((entries, 0)))
    }

    fn found(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

fn bytes(mid: &Mid, contracts: &BTreeMap<String, Contract>, memo: &dyn Memo) -> Vec<u8> {
    let reservations = Reservations {
        support_bytes: 16_384,
        row_bytes: 49_152,
    };
    let policy = SchedulePolicy::default();
    let placed = place_recalled(mid, contracts, &reservations, &policy, memo)
        .unwrap_or_else(|error| panic!("{error}"));
    ipu_place::check::check(&placed, contracts).unwrap_or_else(|fault| panic!("{fault}"));
    postcard::to_stdvec(&placed).unwrap()
}

/// The first mid's entries serve it, and the others as far as they can.
fn prove(mids: &[Mid]) {
    let contracts = kernels().0;
    let wanted = bytes(&mids[0], &contracts, &NoMemo);
    let empty = Remembered::default();
    assert!(bytes(&mids[0], &contracts, &empty) == wanted);
    let all = empty.entries();
    let full = Remembered::with(all.clone());
    assert!(bytes(&mids[0], &contracts, &full) == wanted);
    assert_eq!(full.entries(), all, "nothing was made again");
    assert!(full.found() >= all.len());
    let half: BTreeMap<_, _> = all.clone().into_iter().step_by(2).collect();
    let half = Remembered::with(half);
    assert!(bytes(&mids[0], &contracts, &half) == wanted);
    assert_eq!(half.entries(), all, "what was evicted is the same again");
    for other in &mids[1..] {
        let memo = Remembered::with(all.clone());
        let recalled = bytes(other, &contracts, &memo);
        assert!(recalled == bytes(other, &contracts, &NoMemo));
        println!("another candidate: {} found", memo.found());
    }
}

#[test]
fn the_tiny_tower() {
    prove(&mids("siglip-tiny", 1, 64, vec![400_000]));
}

#[test]
fn two_images_recall_what_one_left() {
    let mut both = mids("siglip-tiny", 1, 64, vec![400_000]);
    both.extend(mids("siglip-tiny", 2, 64, vec![400_000]));
    prove(&both);
}

#[test]
fn an_mlp_at_full_width() {
    prove(&mids("mlp-so400m", 1, 1_472, vec![400_000]));
}
