//! Two tiles and an idle third: an upload, a phase, a kernel and a download, as they are emitted.

use std::collections::BTreeMap;

use ipu_emit::asm::{Options, Source, assemble};
use ipu_exchange::{Transfer, Width, place_in_order};
use ipu_ir::contract::MemoryClass;
use ipu_ir::program::{
    AllocId, Allocation, Call, HostBinding, Life, Place, Placed, PlacedPhase, Reservations, Row,
    Step, TileProgram, Word,
};
use ipu_package::*;
use ipu_sim::{FaultKind, HostFault, Session, SessionError, Use};

const ROWS: u32 = 0x60000;
const SOURCE: u32 = 0x68000;
const WORK: u32 = 0x6c000;
const RESULT: u32 = 0x70000;
const WEIGHTS: u32 = 0x74000;

/// Doubles 16 F16 values: worker 0 only.
const DOUBLE: &str = "
    .section .text.double, \"ax\"
    .align 8
    .worker
double_worker:
    get $m1, $WSR
    and $m1, $m1, 7
    brnz $m1, double_idle
    ld32 $m2, $m13, $m15, 0
    ld32 $m3, $m13, $m15, 1
    setzi $m4, 3
double_loop:
    ld64step $a0:1, $m15, $m2+=, 1
    f16v4add $a0:1, $a0:1, $a0:1
    st64step $a0:1, $m15, $m3+=, 1
    brnzdec $m4, double_loop
double_idle:
    exitz $m15
    .supervisor
    .global double
double:
    setzi $m1, double_worker
    runall $m1, $m0, 0
    sync 2
    br $m10
";

fn step(operation: &str, kind: StepKind) -> StepInfo {
    StepInfo {
        operation: operation.to_owned(),
        label: "test".to_owned(),
        kind,
    }
}

fn vector(name: &str, role: Role, columns: u32) -> Tensor {
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
        columns,
        row_spans: span(1),
        column_spans: span(columns),
    }
}

fn allocation(tile: u32, bytes: u32) -> Allocation {
    Allocation {
        tile,
        tensor: 0,
        bytes,
        members: 1,
        stride: 0,
        align: 8,
        class: MemoryClass::Standard,
        over_read: 0,
        life: Life::Persistent,
        distinct: Vec::new(),
    }
}

fn place(id: u32) -> Place {
    Place {
        allocation: AllocId(id),
        offset: 0,
    }
}

fn binding(tensor: u32, id: u32, columns: u32) -> HostBinding {
    HostBinding {
        tensor,
        place: place(id),
        member: 0,
        dtype: Dtype::F16,
        scale_exponent: 0,
        order: Order::RowMajor,
        row: 0,
        column: 0,
        rows: 1,
        columns,
    }
}

fn row(row: ipu_exchange::Row) -> Row {
    Row {
        tile: row.tile,
        address: ROWS,
        words: row.words,
        incoming_base: row.incoming_base,
        outgoing_base: None,
        horizon: 0,
    }
}

/// Elements of the parameter on tiles 1 and 2.
const WEIGHT_ELEMENTS: [u32; 2] = [5_001, 50];

/// Tile 0 sends its input to tile 1, which doubles it; tile 2 is idle in the phase. Both others
/// hold a parameter. `input` is where tile 0 receives.
fn placed(input: u32) -> Placed {
    let transfer = Transfer {
        source: 0,
        source_address: SOURCE,
        words: 8,
        destinations: vec![(1, WORK)],
        width: Width::Word32,
        moving: None,
    };
    let schedule = place_in_order(&[transfer], &[0]).unwrap();
    Placed {
        program: tile_program(),
        addresses: vec![input, WORK, RESULT, WEIGHTS, WEIGHTS],
        phases: vec![PlacedPhase {
            rows: schedule.rows.into_iter().map(row).collect(),
            horizon: 0,
            bound: 0,
        }],
        reservations: Reservations {
            support_bytes: 0x4000,
            row_bytes: 0x4000,
        },
    }
}

fn tile_program() -> TileProgram {
    let call = Call {
        tile: 1,
        kernel: 0,
        frame: vec![Word::Address(place(1)), Word::Address(place(2))],
    };
    let [long, short] = WEIGHT_ELEMENTS;
    TileProgram {
        tiles: 3,
        allocations: vec![
            allocation(0, 32),
            allocation(1, 32),
            allocation(1, 32),
            allocation(1, 2 * long),
            allocation(2, 2 * short),
        ],
        kernels: vec!["double".to_owned()],
        infos: vec![
            step("upload", StepKind::HostUpload),
            step("gather", StepKind::Exchange),
            step("double", StepKind::Compute),
            step("download", StepKind::HostDownload),
        ],
        steps: vec![
            Step::HostUpload { info: 0 },
            Step::Phase {
                info: 1,
                transfers: Vec::new(),
            },
            Step::Calls {
                info: 2,
                calls: vec![call],
            },
            Step::HostDownload { info: 3 },
        ],
        host_tensors: vec![
            vector("in", Role::Input, 16),
            vector("out", Role::Output, 16),
            vector("long", Role::Parameter, long),
            vector("short", Role::Parameter, short),
        ],
        bindings: vec![
            binding(0, 0, 16),
            binding(1, 2, 16),
            binding(2, 3, long),
            binding(3, 4, short),
        ],
    }
}

fn package_with(input: u32) -> Package {
    let source = Source {
        name: "double.S",
        text: DOUBLE,
    };
    let object = assemble(source, &Options::default())
        .unwrap_or_else(|e| panic!("{e}"))
        .object;
    let objects = BTreeMap::from([("double".to_owned(), object)]);
    let package =
        ipu_emit::emit(&placed(input), &objects, "c600").unwrap_or_else(|e| panic!("{e}"));
    check(&package).unwrap_or_else(|e| panic!("{e}"));
    package
}

fn package() -> Package {
    package_with(SOURCE)
}

fn weight(index: usize) -> f32 {
    (index % 1_000) as f32 - 300.0
}

/// Parameters uploaded.
fn started(package: &Package) -> Result<Session<'_>, SessionError> {
    let mut session = Session::new(package)?;
    session.initialize(&mut |tensor| Some((0..tensor.columns as usize).map(weight).collect()))?;
    Ok(session)
}

fn invoke(session: &mut Session, values: &[f32]) -> Result<ipu_sim::Invocation, SessionError> {
    session.invoke(&mut |_| Some(values.to_vec()))
}

#[test]
fn two_tiles_exchange_and_compute() {
    let package = package();
    let mut session = started(&package).unwrap();
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
    assert_eq!(session.machine().counters(), (6, 3, 24));
}

#[test]
fn parts_sum_to_the_cycles_and_do_not_need_data() {
    let package = package();
    let mut session = started(&package).unwrap();
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
    let package = package_with(SOURCE + 0x40);
    let mut session = started(&package).unwrap();
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
    replace(
        &mut package,
        2,
        SegmentKind::TileProgram,
        0x40c0_0000,
        0x4180_0007,
    );
    let mut session = started(&package).unwrap();
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

/// Replace the first such word in the segments of a tile.
fn replace(package: &mut Package, tile: usize, kind: SegmentKind, from: u32, to: u32) {
    for piece in &package.images[tile].pieces {
        let segment = &mut package.segments[piece.segment as usize];
        let word = segment.words.iter_mut().find(|word| **word == from);
        if let (true, Some(word)) = (segment.kind == kind, word) {
            *word = to;
            return;
        }
    }
    panic!("tile {tile} has no word {from:#010x}");
}

#[test]
fn parameters_arrive_in_batches() {
    let package = package();
    assert_eq!(package.host.slots, [0, 1, 2]);
    let batches = host::batches(&package.host.parameters);
    let bytes = |batch: &Vec<HostSlice>| batch.iter().map(|slice| slice.bytes).collect::<Vec<_>>();
    let expected = [vec![4_096, 100], vec![4_096], vec![1_812]];
    assert_eq!(batches.iter().map(bytes).collect::<Vec<_>>(), expected);
    // Tiles 0, 1 and 2 are all served by tile 0.
    assert_eq!(package.images.len(), 3);
    assert_eq!(package.rest.as_ref().map(|rest| rest.tile), Some(3));
    let mut session = started(&package).unwrap();
    invoke(&mut session, &[1.0; 16]).unwrap();
    for (tile, count) in [1, 2].into_iter().zip(WEIGHT_ELEMENTS) {
        let memory = &session.machine().tile(tile).unwrap().memory;
        for index in 0..count {
            let (value, undefined) = memory.load(WEIGHTS + 2 * index, 2).unwrap();
            let value = half::f16::from_bits(value as u16).to_f32();
            assert!(
                !undefined && value == weight(index as usize),
                "{tile} {index}"
            );
        }
        let end = WEIGHTS + (2 * count).next_multiple_of(4);
        assert_eq!(memory.first_undefined(end, 1).unwrap(), Some(end));
    }
}

/// The fault after words of a tile were replaced.
fn host_fault(tile: usize, kind: SegmentKind, words: &[(u32, u32)]) -> (u32, HostFault) {
    let mut package = package();
    for &(from, to) in words {
        replace(&mut package, tile, kind, from, to);
    }
    fault_of(&package)
}

fn fault_of(package: &Package) -> (u32, HostFault) {
    let result = started(package).and_then(|mut session| invoke(&mut session, &[1.0; 16]));
    match result {
        Err(SessionError::Fault(fault)) => match fault.kind {
            FaultKind::Host(kind) => (fault.tile, kind),
            kind => panic!("{kind}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Header of the read of tile 0: 32 bytes from the first slot.
const READ: [u32; 2] = [0xcc00_020c, (0x1000 >> 2) << 4 | 8];

#[test]
fn malformed_packets_are_faults() {
    use HostFault::*;
    let place = |offset: u32, words: u32| vec![(READ[1], (offset >> 2) << 4 | words)];
    let kind = |word: u32| vec![(READ[0], word)];
    let window = [kind(READ[0] | 0x1ff), place(0x1000, 15)].concat();
    let (offset, bytes) = (0x4000, 32);
    let [found, expected, owner] = [2, 0, 2];
    for (words, fault) in [
        (kind(READ[0] | 1 << 16), WrongTile { found, expected }),
        (kind(0xdc00_020c), Header { word: 0xdc00_020c }),
        (kind(READ[0] & !0x0c00_0000), Stream),
        (place(offset, 8), OutOfPage { offset, bytes }),
        (
            place(0x800, 8),
            OutOfPage {
                offset: 0x800,
                bytes,
            },
        ),
        (
            place(0x2000, 8),
            WrongSlot {
                offset: 0x2000,
                owner,
            },
        ),
        (place(0x1000, 0), Length { bytes: 0 }),
    ] {
        assert_eq!(host_fault(0, SegmentKind::Frames, &words), (0, fault));
    }
    let (address, bytes) = (0x53fe0, 60);
    let outside = host_fault(0, SegmentKind::Frames, &window);
    assert_eq!(outside, (0, OutOfWindow { address, bytes }));
    let count = host_fault(0, SegmentKind::Frames, &place(0x1000, 9));
    let (expected, found) = (8, 9);
    assert_eq!(count, (0, WordCount { expected, found }));
}

#[test]
fn requests_and_packets_that_do_not_match_are_faults() {
    // The request of tile 0 in the upload stands before its header.
    let requests = |bits: u32| {
        let mut package = package();
        let words = &mut package.segments.iter_mut().find_map(|segment| {
            let at = segment.words.iter().position(|word| *word == READ[0])?;
            (segment.kind == SegmentKind::Frames).then(|| &mut segment.words[at - 2])
        });
        **words.as_mut().expect("the request") = bits;
        fault_of(&package)
    };
    assert_eq!(requests(0), (0, HostFault::NotRequested));
    assert_eq!(requests(5), (0, HostFault::NotSending { target: 64 }));
    // The mux of tile 1 at another endpoint.
    let words = [(0x1980_0600, 0x1980_0604)];
    let (tile, fault) = host_fault(1, SegmentKind::TileProgram, &words);
    assert_eq!((tile, fault), (1, HostFault::NotSelected { mux: 0x604 }));
}
