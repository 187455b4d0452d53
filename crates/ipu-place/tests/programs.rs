//! Hand-made programs through the whole pass, judged by the checkers.

mod support;

use ipu_ir::contract::MemoryClass;
use ipu_ir::layout::{Extent, Owner};
use ipu_ir::mid::*;
use ipu_ir::program::{Life, Reservations, Step as PlacedStep};
use ipu_package::{Order, Role};
use ipu_place::{PlaceError, SchedulePolicy};
use support::*;

/// `x [8 x 64] * w` on a 2 x 1 x 2 grid of 4 tiles, weights `[32 x 64]` with their owners.
fn gemm() -> Mid {
    Mid {
        tiles: 4,
        tensors: gemm_tensors(),
        steps: vec![
            exchange("gather", &[(0, 1, View::SAME)]),
            compute(
                "gemm",
                "gemm",
                &[("left", 1), ("right", 2), ("out", 3)],
                &[
                    ("rows", measure("left", Measure::Rows, 1)),
                    ("inner", measure("left", Measure::Columns, 1)),
                    ("columns", measure("right", Measure::Rows, 1)),
                ],
            ),
            exchange("scatter", &[(3, 4, View::SAME)]),
            compute(
                "reduce",
                "reduce",
                &[("source", 4), ("out", 5)],
                &[
                    ("count", measure("source", Measure::Area, 1)),
                    ("parts", measure("source", Measure::Groups, 1)),
                ],
            ),
        ],
    }
}

fn gemm_tensors() -> Vec<Tensor> {
    let plain = Extent::plain;
    let rows = |row, column, replicas| owner(0, row, column, replicas);
    let x = tensor(
        "x",
        (1, plain(8), plain(64)),
        layout(
            Order::RowMajor,
            tiling(1, (4, 2), (1, 1), rows(1, 0, (1, 0))),
        ),
        Storage::Input("x".into()),
    );
    // Tile = 2 * m + k.
    let left = tensor(
        "left",
        (1, plain(8), plain(64)),
        layout(
            Order::Panels(16),
            tiling(1, (2, 2), (2, 16), rows(2, 1, (1, 0))),
        ),
        Storage::Transient,
    );
    let weights = tensor(
        "w",
        (1, plain(32), plain(64)),
        layout(
            Order::Blocks(16),
            tiling(1, (1, 16), (2, 16), rows(0, 1, (2, 2))),
        ),
        Storage::Parameter(vec!["w".into()]),
    );
    let partial = tensor(
        "partial",
        (2, plain(8), plain(32)),
        layout(
            Order::Panels(16),
            tiling(2, (2, 2), (1, 16), owner(1, 2, 0, (1, 0))),
        ),
        Storage::Transient,
    );
    let staged = tensor(
        "staged",
        (2, plain(8), plain(32)),
        layout(
            Order::Panels(16),
            tiling(1, (2, 2), (2, 16), rows(2, 1, (1, 0))),
        ),
        Storage::Transient,
    );
    let out = tensor(
        "y",
        (1, plain(8), plain(32)),
        layout(
            Order::Panels(16),
            tiling(1, (2, 2), (2, 16), rows(2, 1, (1, 0))),
        ),
        Storage::Output("y".into()),
    );
    vec![x, left, weights, partial, staged, out]
}

#[test]
fn a_product_on_four_tiles() {
    let placed = judged(&gemm()).unwrap();
    let program = &placed.program;
    assert!(matches!(program.steps[0], PlacedStep::HostUpload { .. }));
    assert!(matches!(
        program.steps.last(),
        Some(PlacedStep::HostDownload { .. })
    ));
    let interleaved = program
        .allocations
        .iter()
        .zip(&placed.addresses)
        .filter(|(allocation, _)| allocation.class == MemoryClass::Interleaved);
    for (allocation, &address) in interleaved {
        assert_eq!(program.allocations[allocation.tensor as usize].members, 1);
        assert!(address >= 0x80000 && address % 16 == 0);
        assert_eq!(allocation.life, Life::Persistent);
    }
    assert_eq!(placed.phases.len(), 2);
    assert!(
        program
            .host_tensors
            .iter()
            .any(|host| host.role == Role::Parameter)
    );
    assert_eq!(judged(&gemm()).unwrap(), placed);
}

#[test]
fn transients_use_the_aperture_between_host_steps() {
    let placed = judged(&gemm()).unwrap();
    let inside = |tensor: u32| {
        let allocations = placed.program.allocations.iter().zip(&placed.addresses);
        allocations
            .filter(|(allocation, _)| allocation.tensor == tensor)
            .all(|(_, address)| (0x50000..0x58000).contains(address))
    };
    assert!(inside(1) && inside(4));
    assert!(!inside(0) && !inside(5));
}

/// Fused QKV columns to heads and back, heads of 12 padded to 16, two images of 5 tokens in 8.
#[test]
fn heads_are_split_and_joined() {
    let extent = |groups, logical, padded| Extent {
        groups,
        logical,
        padded,
    };
    let (tokens, one) = (extent(2, 5, 8), (4, extent(1, 5, 8), extent(1, 12, 16)));
    let heads = |groups| extent(groups, 12, 16);
    let split = View::SplitHeads {
        heads: 2,
        tokens: 8,
        depth: 16,
        column: 32,
    };
    let join = View::JoinHeads {
        heads: 2,
        tokens: 8,
        depth: 16,
    };
    let by_rows = tiling(1, (4, 4), (1, 1), owner(0, 1, 0, (1, 0)));
    let by_heads = tiling(4, (1, 1), (1, 1), owner(1, 0, 0, (1, 0)));
    let mid = Mid {
        tiles: 4,
        tensors: vec![
            tensor(
                "qkv",
                (1, tokens, heads(6)),
                layout(Order::Panels(16), by_rows),
                Storage::Input("qkv".into()),
            ),
            tensor(
                "k",
                one,
                layout(Order::Panels(16), by_heads),
                Storage::Transient,
            ),
            tensor(
                "o",
                one,
                layout(Order::Panels(16), by_heads),
                Storage::Transient,
            ),
            tensor(
                "joined",
                (1, tokens, heads(2)),
                layout(Order::RowMajor, by_rows),
                Storage::Output("joined".into()),
            ),
        ],
        steps: vec![
            exchange("split", &[(0, 1, split)]),
            map("work", 1, 2),
            fill("clear", 3, Filter::Padded),
            exchange("join", &[(2, 3, join)]),
        ],
    };
    judged(&mid).unwrap();
}

/// `x` is updated by each of three members, gathered from their homes on other tiles.
fn sequence() -> Mid {
    let plain = Extent::plain;
    let by_rows = tiling(1, (4, 1), (1, 1), owner(0, 1, 0, (1, 0)));
    let turned = tiling(
        1,
        (4, 1),
        (1, 1),
        Owner {
            base: 1,
            ..owner(0, 1, 0, (1, 0))
        },
    );
    let shape = (1, plain(8), plain(30));
    let names = |name: &str| (0..3).map(|layer| format!("{name}.{layer}")).collect();
    let rows = |tiling| layout(Order::RowMajor, tiling);
    Mid {
        tiles: 4,
        tensors: vec![
            tensor("in", shape, rows(by_rows), Storage::Input("in".into())),
            tensor("x", shape, rows(by_rows), Storage::Transient),
            tensor(
                "home",
                shape,
                rows(turned),
                Storage::Parameter(names("home")),
            ),
            tensor("here", shape, rows(by_rows), Storage::Transient),
            tensor(
                "bias",
                shape,
                rows(by_rows),
                Storage::Parameter(names("bias")),
            ),
            tensor("out", shape, rows(by_rows), Storage::Output("out".into())),
        ],
        steps: vec![
            map("begin", 0, 1),
            Step::Repeat {
                count: 3,
                body: vec![
                    exchange("weights", &[(2, 3, View::SAME)]),
                    compute(
                        "first",
                        "update",
                        &[("data", 1), ("source", 3)],
                        &[("bytes", measure("data", Measure::Bytes, 1))],
                    ),
                    compute(
                        "second",
                        "update",
                        &[("data", 1), ("source", 4)],
                        &[("bytes", measure("data", Measure::Bytes, 1))],
                    ),
                ],
            },
            map("end", 1, 5),
        ],
    }
}

#[test]
fn sequences_move_in_a_loop() {
    let placed = judged(&sequence()).unwrap();
    let allocations = &placed.program.allocations;
    let lives = |tensor: u32| allocations.iter().filter(move |a| a.tensor == tensor);
    assert!(lives(2).all(|home| home.members == 3 && home.stride == 120));
    // upload, begin, weights, first, second, end, download
    assert!(lives(1).all(|x| x.life == Life::Events { first: 1, last: 5 }));
    assert!(lives(3).all(|here| here.life == Life::Events { first: 2, last: 3 }));
    let moving = placed.phases[0].rows.iter();
    assert!(
        moving
            .filter_map(|row| row.outgoing_base)
            .all(|base| base.1 == 120)
    );
    assert!(
        placed.phases[0]
            .rows
            .iter()
            .any(|row| row.outgoing_base.is_some())
    );
}

#[test]
fn sequences_need_a_loop_of_their_length() {
    let mut mid = sequence();
    if let Step::Repeat { count, .. } = &mut mid.steps[1] {
        *count = 2;
    }
    let error = judged(&mid).unwrap_err();
    assert!(
        matches!(
            error,
            PlaceError::Members {
                members: 3,
                count: 2,
                ..
            }
        ),
        "{error}"
    );
}

/// What stays on a tile: whole units by a local copy, odd words through the exchange.
#[test]
fn own_tiles_are_served() {
    for (columns, phases) in [(8, 0), (6, 1)] {
        let whole = tiling(1, (2, 1), (1, 1), owner(0, 1, 0, (1, 0)));
        let shape = (1, Extent::plain(6), Extent::plain(columns));
        let wide = (1, Extent::plain(6), Extent::plain(16));
        let mid = Mid {
            tiles: 3,
            tensors: vec![
                tensor(
                    "a",
                    wide,
                    layout(Order::RowMajor, whole),
                    Storage::Input("a".into()),
                ),
                tensor(
                    "b",
                    shape,
                    layout(Order::RowMajor, whole),
                    Storage::Output("b".into()),
                ),
            ],
            steps: vec![exchange(
                "own",
                &[(
                    0,
                    1,
                    View::Same {
                        group: 0,
                        column: 4,
                    },
                )],
            )],
        };
        let placed = judged(&mid).unwrap();
        assert_eq!(placed.phases.len(), phases);
    }
}

#[test]
fn undefined_padding_stays_where_it_is() {
    let tiling_ = tiling(1, (2, 1), (1, 1), owner(0, 1, 0, (1, 0)));
    let padded = Extent::padded(6, 8);
    let turned = Owner {
        base: 1,
        ..owner(0, 1, 0, (1, 0))
    };
    let other = tiling(1, (2, 1), (1, 1), turned);
    let shape = (1, Extent::plain(4), padded);
    let make =
        |name: &str, tiling, storage| tensor(name, shape, layout(Order::RowMajor, tiling), storage);
    let plain = (1, Extent::plain(4), Extent::plain(6));
    let source = tensor(
        "a",
        plain,
        layout(Order::RowMajor, tiling_),
        Storage::Input("a".into()),
    );
    let mut mid = Mid {
        tiles: 2,
        tensors: vec![
            source,
            make("b", other, Storage::Transient),
            make("c", tiling_, Storage::Output("c".into())),
        ],
        steps: vec![
            exchange("first", &[(0, 1, View::SAME)]),
            exchange("second", &[(1, 2, View::SAME)]),
        ],
    };
    let words = |mid: &Mid| -> Vec<u32> {
        let placed = judged(mid).unwrap();
        let steps = placed.program.steps.iter();
        let phases = steps.filter_map(|step| match step {
            PlacedStep::Phase { transfers, .. } => Some(transfers.iter().map(|t| t.words).sum()),
            _ => None,
        });
        phases.collect()
    };
    assert_eq!(words(&mid), [12, 12]);
    mid.steps.insert(0, fill("clear", 1, Filter::Padded));
    assert_eq!(words(&mid), [12, 16]);
}

#[test]
fn failures_say_what_is_in_the_way() {
    let none = Reservations {
        support_bytes: 0,
        row_bytes: 0,
    };
    let place = |mid: &Mid, reservations: &Reservations| {
        let policy = SchedulePolicy::default();
        ipu_place::place(mid, &contracts(), reservations, &policy).unwrap_err()
    };
    let error = place(&gemm(), &none);
    assert!(
        matches!(error, PlaceError::RowsExceed { reserved: 0, .. }),
        "{error}"
    );
    let text = serde_json::to_string(&error).unwrap();
    assert_eq!(serde_json::from_str::<PlaceError>(&text).unwrap(), error);
    let huge = Reservations {
        support_bytes: 0x24000,
        row_bytes: 4,
    };
    assert!(matches!(
        place(&gemm(), &huge),
        PlaceError::Reservations { .. }
    ));

    let mut mid = gemm();
    mid.tensors[2].storage = Storage::Parameter((0..300).map(|at| format!("w.{at}")).collect());
    mid.steps = vec![Step::Repeat {
        count: 300,
        body: mid.steps,
    }];
    let error = place(&mid, &RESERVATIONS);
    let PlaceError::Infeasible(proof) = &error else {
        panic!("{error}");
    };
    assert_eq!((proof.tile, proof.tensor.as_str()), (0, "w"));
    assert_eq!(proof.class, MemoryClass::Interleaved);
    assert_eq!((proof.needed, proof.available), (300 * 2048, 0x67bb0));

    let mut mid = gemm();
    if let Step::Compute(compute) = &mut mid.steps[1] {
        compute.scalars.insert("rows".into(), ScalarRule::Const(5));
    }
    let error = place(&mid, &RESERVATIONS);
    let PlaceError::Extent(extent) = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (extent.argument.as_str(), extent.needed, extent.available),
        ("left", 320, 256)
    );
}

#[test]
fn refusals_of_a_mid_name_the_step() {
    let place = |mid: &Mid| {
        let policy = SchedulePolicy::default();
        ipu_place::place(mid, &contracts(), &RESERVATIONS, &policy).unwrap_err()
    };
    let mut mid = gemm();
    mid.steps[0] = exchange(
        "gather",
        &[(
            0,
            1,
            View::Same {
                group: 0,
                column: 16,
            },
        )],
    );
    let error = place(&mid);
    assert!(
        matches!(&error, PlaceError::Uncovered { destination, tile: 1, missing: 64, .. } if destination == "left"),
        "{error}"
    );
    mid.steps[0] = exchange("gather", &[(0, 1, View::SAME), (1, 3, View::SAME)]);
    assert!(matches!(place(&mid), PlaceError::Hazard { tensor, .. } if tensor == "left"));
    mid.steps[0] = exchange("gather", &[(0, 2, View::SAME)]);
    assert!(matches!(place(&mid), PlaceError::ParameterWritten { .. }));
    mid = gemm();
    mid.tensors[1].layout.dtype = ipu_package::Dtype::F143;
    assert!(matches!(place(&mid), PlaceError::Type { .. }));
    mid = gemm();
    mid.tensors[1].layout.order = Order::Panels(24);
    assert!(matches!(
        place(&mid),
        PlaceError::Physical { columns: 32, .. }
    ));
    mid = gemm();
    if let Step::Compute(compute) = &mut mid.steps[1] {
        compute.kernel = "matmul".into();
    }
    assert!(matches!(place(&mid), PlaceError::UnknownKernel { kernel, .. } if kernel == "matmul"));
    let good = gemm();
    let candidates = [&mid, &good, &mid];
    let policy = SchedulePolicy::default();
    let (placed, failures) =
        ipu_place::place_first(candidates, &contracts(), &RESERVATIONS, &policy);
    assert_eq!((placed.is_some(), failures.len()), (true, 1));
}

#[test]
fn threads_change_nothing() {
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| judged(&sequence()).unwrap())
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn sources_of_one_phase_move_together() {
    let mut mid = sequence();
    for tensor in [4, 2] {
        let mut other = mid.tensors[tensor].clone();
        other.name = format!("wide {tensor}");
        other.columns = Extent::plain(62);
        if tensor == 4 {
            other.storage = Storage::Transient;
        }
        mid.tensors.push(other);
    }
    if let Step::Repeat { body, .. } = &mut mid.steps[1] {
        body[0] = exchange("weights", &[(2, 3, View::SAME), (7, 6, View::SAME)]);
    }
    let error = judged(&mid).unwrap_err();
    assert!(
        matches!(
            error,
            PlaceError::MovingStrides {
                first: 120,
                second: 248,
                ..
            }
        ),
        "{error}"
    );
    mid.tensors[6].columns = Extent::plain(60);
    mid.tensors[7].columns = Extent::plain(60);
    mid.tensors[6].rows = Extent::plain(4);
    mid.tensors[7].rows = Extent::plain(4);
    let placed = judged(&mid).unwrap();
    assert!(
        placed.phases[0]
            .rows
            .iter()
            .any(|row| row.outgoing_base.is_some())
    );
}
