//! Two tiles and an idle third, with a row pair of the exchange scheduler and a kernel.

mod common;
use common::*;
use ipu_exchange::{Transfer, Width, place_in_order};
use ipu_package::*;
use ipu_sim::{FaultKind, Session, SessionError, Use};

const ROWS: u32 = 0x60000;
const SOURCE: u32 = 0x68000;
const WORK: u32 = 0x6c000;
const RESULT: u32 = 0x70000;

/// Doubles 16 F16 values: worker 0 only.
const DOUBLE: &str = "double:
    setzi $m1, =double_worker
    runall $m1, $m0, 0
    sync 2
    br $m10
    barrier:
    setzi $m0, =idle
    runall $m0, $m15, 0
    sync 2
    br $m7
    .worker
    double_worker:
    get $m1, 1
    and $m1, $m1, 7
    brnz $m1, @idle
    ld32 $m2, $m13, $m15, 0
    ld32 $m3, $m13, $m15, 1
    setzi $m4, 3
    loop:
    ld64step $a0:1, $m15, $m2+=, 1
    f16v4add $a0:1, $a0:1, $a0:1
    st64step $a0:1, $m15, $m3+=, 1
    brnzdec $m4, @loop
    idle:
    exitz $m15
";

fn program(kernels: &Code, row: u32, active: bool, compute: bool) -> Code {
    let phase = if active {
        format!(
            "setzi $m8, INCOMING
             put 164, $m8
             put 167, $m15
             call $m7, {}
             setzi $m8, 1
             put 166, $m8
             sync 3
             call $m10, {}",
            kernels.labels["barrier"] / 4,
            row / 4
        )
    } else {
        format!(
            "put 164, $m15\nput 167, $m15\nsans 0\nsync 1\ncall $m10, {}",
            row / 4
        )
    };
    let compute = if compute {
        format!(
            "setzi $m0, {FRAME}\ncall $m10, {}",
            kernels.labels["double"] / 4
        )
    } else {
        String::new()
    };
    let text = format!(
        "entry:
         sync 7
         loop:
         sync 7
         phase:
         {phase}
         compute:
         {compute}
         output:
         sync 7
         bri @loop
        "
    );
    assemble(CODE + 0x400, &text.replace("INCOMING", "0"))
}

fn step(operation: &str, kind: StepKind) -> StepInfo {
    StepInfo {
        operation: operation.to_owned(),
        label: "test".to_owned(),
        kind,
    }
}

fn vector(name: &str, role: Role) -> Tensor {
    let span = |count| {
        vec![Span {
            device: 0,
            logical: 0,
            count,
        }]
    };
    Tensor {
        name: name.to_owned(),
        role,
        rows: 1,
        columns: 16,
        row_spans: span(1),
        column_spans: span(16),
    }
}

fn binding(tensor: u32, tile: u32, address: u32) -> Binding {
    Binding {
        tensor,
        tile,
        address,
        dtype: Dtype::F16,
        scale_exponent: 0,
        order: Order::RowMajor,
        row: 0,
        column: 0,
        rows: 1,
        columns: 16,
    }
}

/// Tile 0 sends its input to tile 1, which doubles it; tile 2 is idle in the phase.
fn package() -> Package {
    let transfer = Transfer {
        source: 0,
        source_address: SOURCE,
        words: 8,
        destinations: vec![(1, WORK)],
        width: Width::Word32,
        moving: None,
    };
    let schedule = place_in_order(&[transfer], &[0]).unwrap();
    let kernels = assemble(CODE, DOUBLE);
    let mut package = Package {
        device: "c600".to_owned(),
        tiles: 3,
        segments: vec![
            Segment {
                kind: SegmentKind::Kernel,
                words: kernels.words.clone(),
            },
            Segment {
                kind: SegmentKind::Frames,
                words: vec![WORK, RESULT],
            },
        ],
        images: Vec::new(),
        tensors: vec![vector("in", Role::Input), vector("out", Role::Output)],
        bindings: vec![binding(0, 0, SOURCE), binding(1, 1, RESULT)],
        steps: vec![
            step("upload", StepKind::HostUpload),
            step("gather", StepKind::Exchange),
            step("double", StepKind::Compute),
            step("download", StepKind::HostDownload),
        ],
    };
    for tile in 0..3 {
        let row = schedule.rows.iter().find(|row| row.tile == tile);
        let words = row.map_or(vec![0x43a0_0000], |row| row.words.clone());
        let incoming = row.map_or(0, |row| row.incoming_base);
        let mut code = program(&kernels, ROWS, row.is_some(), tile == 1);
        if incoming != 0 {
            // The first word of an active phase sets the incoming base.
            let at = (code.labels["phase"] - (CODE + 0x400)) / 4;
            code.words[at as usize] = 0x1980_0000 | incoming;
        }
        let mut pieces = vec![
            Piece {
                address: CODE,
                segment: 0,
            },
            Piece {
                address: FRAME,
                segment: 1,
            },
        ];
        for (address, kind, words) in [
            (ROWS, SegmentKind::Row, words),
            (CODE + 0x400, SegmentKind::TileProgram, code.words.clone()),
        ] {
            pieces.push(Piece {
                address,
                segment: package.segments.len() as u32,
            });
            package.segments.push(Segment { kind, words });
        }
        let names = ["entry", "phase", "compute", "output"];
        package.images.push(TileImage {
            tile,
            entry: code.labels["entry"],
            pieces,
            marks: names
                .iter()
                .enumerate()
                .map(|(step, name)| Mark {
                    address: code.labels[*name],
                    step: step as u32,
                })
                .collect(),
        });
    }
    package
}

fn invoke(session: &mut Session, values: &[f32]) -> Result<ipu_sim::Invocation, SessionError> {
    session.invoke(&mut |_| Some(values.to_vec()))
}

#[test]
fn two_tiles_exchange_and_compute() {
    let package = package();
    let mut session = Session::new(&package).unwrap();
    session.initialize(&mut |_| None).unwrap();
    let first: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let second: Vec<f32> = (0..16).map(|i| -0.5 * i as f32).collect();
    let mut results = Vec::new();
    for input in [&first, &second, &first] {
        let result = invoke(&mut session, input).unwrap_or_else(|e| panic!("{e}"));
        let expected: Vec<f32> = input.iter().map(|x| 2.0 * x).collect();
        assert_eq!(result.outputs["out"], expected);
        results.push(result);
    }
    assert_eq!(results[0], results[2]);
    assert_eq!(session.machine().counters(), (3, 3, 24));
}

#[test]
fn parts_sum_to_the_cycles_and_do_not_need_data() {
    let package = package();
    let mut session = Session::new(&package).unwrap();
    session.initialize(&mut |_| None).unwrap();
    let with = invoke(&mut session, &[0.0; 16]).unwrap();
    let mut timed = Session::without_data(&package).unwrap();
    timed.initialize(&mut |_| None).unwrap();
    let without = timed.invoke(&mut |_| None).unwrap();
    assert_eq!(with.cycles, without.cycles);
    assert_eq!(with.parts, without.parts);
    let sum: u64 = with
        .parts
        .by_operation(&package.steps)
        .iter()
        .map(|part| part.cycles)
        .sum();
    assert_eq!(sum, with.cycles);
    let kinds = with.parts.by_kind(&package.steps);
    let of = |kind| kinds.iter().find(|k| k.kind == kind).unwrap().cycles;
    assert!(of(StepKind::Exchange) > 200 && of(StepKind::Compute) > 100);
    assert_eq!(kinds.iter().map(|k| k.cycles).sum::<u64>(), with.cycles);
}

#[test]
fn sending_undefined_words_is_a_fault() {
    let mut package = package();
    package.bindings[0].address = SOURCE + 0x40;
    let mut session = Session::new(&package).unwrap();
    session.initialize(&mut |_| None).unwrap();
    match invoke(&mut session, &[1.0; 16]) {
        Err(SessionError::Fault(fault)) => {
            assert_eq!(
                fault.kind,
                FaultKind::Undefined(Use::Send { address: SOURCE })
            );
            assert_eq!(fault.operation.as_deref(), Some("gather"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tile_at_another_sync_is_a_fault() {
    let mut package = package();
    // The idle tile misses the phase.
    let piece = package.images[2].pieces[3];
    let words = &mut package.segments[piece.segment as usize].words;
    let sans = words.iter().position(|&w| w == 0x40c0_0000).unwrap();
    words[sans] = 0x4180_0007;
    let mut session = Session::new(&package).unwrap();
    session.initialize(&mut |_| None).unwrap();
    match invoke(&mut session, &[1.0; 16]) {
        Err(SessionError::Fault(fault)) => {
            assert_eq!(fault.tile, 2);
            assert!(matches!(
                fault.kind,
                FaultKind::SyncMismatch { found: 7, .. }
            ));
        }
        other => panic!("{other:?}"),
    }
}
