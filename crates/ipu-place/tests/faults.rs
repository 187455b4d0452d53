//! What the checkers must find: one thing is spoilt, one fault is reported.

mod support;

use ipu_ir::contract::MemoryClass;
use ipu_ir::layout::Extent;
use ipu_ir::mid::{Mid, Storage, View};
use ipu_ir::program::{Call, Life, Placed, Step, Transfer, Word};
use ipu_package::Order;
use ipu_place::check::{Fault, check, replay};
use support::*;

/// Two rows of 16 words on each of two tiles, exchanged, mapped and read by the host.
fn small() -> (Mid, Placed) {
    let shape = (1, Extent::plain(4), Extent::plain(32));
    let straight = tiling(1, (2, 1), (1, 1), owner(0, 1, 0, (1, 0)));
    let mut turned = straight;
    turned.owner.base = 1;
    let make =
        |name: &str, tiling, storage| tensor(name, shape, layout(Order::RowMajor, tiling), storage);
    let mid = Mid {
        tiles: 2,
        tensors: vec![
            make("a", straight, Storage::Input("a".into())),
            make("b", turned, Storage::Transient),
            make("p", turned, Storage::Parameter(vec!["p".into()])),
            make("c", turned, Storage::Output("c".into())),
        ],
        steps: vec![
            exchange("move", &[(0, 1, View::SAME)]),
            compute(
                "add",
                "update",
                &[("data", 1), ("source", 2)],
                &[("bytes", measure("data", ipu_ir::mid::Measure::Bytes, 1))],
            ),
            map("end", 1, 3),
        ],
    };
    let placed = judged(&mid).unwrap();
    (mid, placed)
}

fn transfers(placed: &mut Placed) -> &mut Vec<Transfer> {
    let mut steps = placed.program.steps.iter_mut();
    let found = steps.find_map(|step| match step {
        Step::Phase { transfers, .. } => Some(transfers),
        _ => None,
    });
    found.unwrap()
}

fn calls(placed: &mut Placed) -> &mut Vec<Call> {
    let mut steps = placed.program.steps.iter_mut();
    let found = steps.find_map(|step| match step {
        Step::Calls { calls, .. } => Some(calls),
        _ => None,
    });
    found.unwrap()
}

fn spoilt(change: impl FnOnce(&mut Placed)) -> Fault {
    let (_, mut placed) = small();
    change(&mut placed);
    check(&placed, &contracts()).unwrap_err()
}

fn misled(change: impl FnOnce(&mut Placed)) -> Fault {
    let (mid, mut placed) = small();
    change(&mut placed);
    replay(&mid, &contracts(), &placed).unwrap_err()
}

#[test]
fn storage_is_checked() {
    // Allocations: a 0, 1; b 2, 3; p 4, 5; c 6, 7.
    let outside = spoilt(|placed| placed.addresses[6] = 0x5c000);
    assert!(matches!(outside, Fault::Memory { allocation: 6, .. }));
    let aperture = spoilt(|placed| placed.addresses[6] = 0x54000);
    assert!(matches!(aperture, Fault::Memory { allocation: 6, .. }));
    let class = spoilt(|placed| placed.program.allocations[4].class = MemoryClass::Interleaved);
    assert!(matches!(class, Fault::Memory { allocation: 4, .. }));
    let end = spoilt(|placed| {
        placed.addresses[4] = 0xe7bb0 - 128;
        placed.program.allocations[4].over_read = 1200;
    });
    assert!(matches!(end, Fault::Memory { allocation: 4, .. }));
    let odd = spoilt(|placed| placed.addresses[6] += 4);
    assert!(matches!(odd, Fault::Alignment { allocation: 6, .. }));
    let over = spoilt(|placed| placed.addresses[4] = placed.addresses[6]);
    assert!(matches!(over, Fault::Overlap { .. }), "{over}");
    let shared = spoilt(|placed| placed.addresses[2] = placed.addresses[4] + 1024);
    assert!(matches!(shared, Fault::Shared { .. }), "{shared}");
    let row = spoilt(|placed| placed.phases[0].rows[0].address = 0x5c000);
    assert!(matches!(row, Fault::Row { .. }));
}

#[test]
fn uses_are_checked() {
    let life = spoilt(|placed| {
        placed.program.allocations[2].life = Life::Events { first: 1, last: 1 };
    });
    assert!(matches!(life, Fault::Life { allocation: 2, .. }));
    let twice = spoilt(|placed| {
        let again = transfers(placed)[0].clone();
        transfers(placed).push(again);
    });
    assert!(matches!(twice, Fault::Twice { .. }));
    let long = spoilt(|placed| transfers(placed)[0].words += 1);
    assert!(matches!(long, Fault::Use { .. }));
    let scalar = spoilt(|placed| calls(placed)[0].frame[2] = Word::Scalar(132));
    assert!(matches!(scalar, Fault::Use { .. }));
    let edge = spoilt(|placed| {
        for allocation in &mut placed.program.allocations {
            allocation.distinct.clear();
        }
        placed.addresses[2] = placed.addresses[4] + 1024;
    });
    assert!(matches!(edge, Fault::Shared { .. }), "{edge}");
}

#[test]
fn values_are_followed() {
    let is_replay = |fault: Fault| matches!(fault, Fault::Replay { .. });
    assert!(is_replay(misled(|placed| transfers(placed)[0].words -= 1)));
    assert!(is_replay(misled(|placed| {
        let list = transfers(placed);
        let source = list[0].source;
        list[0].source = list[1].source;
        list[1].source = source;
    })));
    assert!(is_replay(misled(|placed| placed
        .program
        .bindings
        .truncate(3))));
    assert!(is_replay(misled(
        |placed| placed.addresses[4] = placed.addresses[2]
    )));
}
