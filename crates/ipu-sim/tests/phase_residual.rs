//! What a sampled phase costs beyond its horizon, as emitted: published as 229 to 295 cycles, from
//! the last tile that enters the phase to the sample after it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ipu_emit::asm::{Options, Source, assemble};
use ipu_exchange::{SchedulePolicy, Transfer, Width, schedule};
use ipu_ir::contract::MemoryClass;
use ipu_ir::program::{
    AllocId, Allocation, Call, HostBinding, Life, Place, Placed, PlacedPhase, Reservations, Row,
    Step, TileProgram,
};
use ipu_package::*;
use ipu_sim::Session;

const TILES: u32 = 4;
const ROWS: u32 = 0x60000;
const SOURCE: u32 = 0x68000;
const TARGET: u32 = 0x6c000;
const PUBLISHED: RangeInclusive<u64> = 229..=295;

/// Worker 0 reads the cycle counter.
const SAMPLE: &str = "
    .section .text.sample, \"ax\"
    .align 8
    .worker
sample_worker:
    get $m0, $WSR
    and $m0, $m0, 7
    brnz $m0, sample_end
    get $m1, $COUNT_L
    nop
sample_end:
    exitz $m15
    .supervisor
    .global sample
sample:
    setzi $m1, sample_worker
    runall $m1, $m15, 0
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

fn tensor(name: &str, role: Role, words: u32) -> Tensor {
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
        rows: TILES,
        columns: 2 * words,
        row_spans: span(TILES),
        column_spans: span(2 * words),
    }
}

fn allocation(tile: u32, words: u32) -> Allocation {
    Allocation {
        tile,
        tensor: 0,
        bytes: 4 * words,
        members: 1,
        stride: 0,
        align: 8,
        class: MemoryClass::Standard,
        over_read: 0,
        life: Life::Persistent,
        distinct: Vec::new(),
    }
}

/// Row `tile` of a tensor, in the allocation with this number.
fn binding(tensor: u32, tile: u32, allocation: u32, words: u32) -> HostBinding {
    HostBinding {
        tensor,
        place: Place {
            allocation: AllocId(allocation),
            offset: 0,
        },
        member: 0,
        dtype: Dtype::F16,
        scale_exponent: 0,
        order: Order::RowMajor,
        row: tile,
        column: 0,
        rows: 1,
        columns: 2 * words,
    }
}

/// Each tile sends `words` to the next; all sample before and after.
fn program(words: u32) -> TileProgram {
    let sample = |info| {
        let calls = (0..TILES).map(|tile| Call {
            tile,
            kernel: 0,
            frame: Vec::new(),
        });
        let calls = calls.collect();
        Step::Calls { info, calls }
    };
    let allocations = (0..2).flat_map(|_| (0..TILES).map(|tile| allocation(tile, words)));
    let bindings = (0..2).flat_map(|tensor| {
        (0..TILES).map(move |tile| binding(tensor, tile, TILES * tensor + tile, words))
    });
    TileProgram {
        tiles: TILES,
        allocations: allocations.collect(),
        kernels: vec!["sample".to_owned()],
        infos: vec![
            step("upload", StepKind::HostUpload),
            step("sample", StepKind::Compute),
            step("rotate", StepKind::Exchange),
            step("download", StepKind::HostDownload),
        ],
        steps: vec![
            Step::HostUpload { info: 0 },
            sample(1),
            Step::Phase {
                info: 2,
                transfers: Vec::new(),
            },
            sample(1),
            Step::HostDownload { info: 3 },
        ],
        host_tensors: vec![
            tensor("in", Role::Input, words),
            tensor("out", Role::Output, words),
        ],
        bindings: bindings.collect(),
    }
}

fn placed(words: u32) -> Placed {
    let rotate = |tile| Transfer {
        source: tile,
        source_address: SOURCE,
        words,
        destinations: vec![((tile + 1) % TILES, TARGET)],
        width: Width::Word32,
        moving: None,
    };
    let transfers: Vec<Transfer> = (0..TILES).map(rotate).collect();
    let schedule = schedule(&transfers, &SchedulePolicy::default()).unwrap();
    let row = |row: ipu_exchange::Row| Row {
        tile: row.tile,
        address: ROWS,
        words: row.words,
        incoming_base: row.incoming_base,
        outgoing_base: None,
        horizon: row.horizon,
    };
    let address = |base| (0..TILES).map(move |_| base);
    Placed {
        program: program(words),
        addresses: address(SOURCE).chain(address(TARGET)).collect(),
        phases: vec![PlacedPhase {
            rows: schedule.rows.into_iter().map(row).collect(),
            horizon: schedule.horizon,
            bound: schedule.bound,
        }],
        reservations: Reservations {
            support_bytes: 0x4000,
            row_bytes: 0x4000,
        },
    }
}

/// Horizon, and cycles from the last sample before the phase to the last after it.
fn sampled(words: u32) -> (u64, u64) {
    let source = Source {
        name: "sample.S",
        text: SAMPLE,
    };
    let object = assemble(source, &Options::default())
        .unwrap_or_else(|error| panic!("{error}"))
        .object;
    let objects = BTreeMap::from([("sample".to_owned(), object)]);
    let placed = placed(words);
    let package =
        ipu_emit::emit(&placed, &objects, "c600").unwrap_or_else(|error| panic!("{error}"));
    let mut session = Session::new(&package).unwrap();
    session.initialize(&mut |_| None).unwrap();
    let input: Vec<f32> = (0..2 * TILES * words)
        .map(|index| (index % 1_000) as f32)
        .collect();
    let result = session.invoke(&mut |_| Some(input.clone()));
    let outputs = result.unwrap_or_else(|error| panic!("{error}")).outputs;
    let row = 2 * words as usize;
    assert_eq!(outputs["out"][row..], input[..3 * row], "{words} words");
    let last = |index: usize| {
        let samples = (0..TILES).map(|tile| {
            let samples = &session.machine().tile(tile).unwrap().issues.samples;
            assert_eq!(samples.len(), 2, "one sample before the phase, one after");
            u64::from(samples[index])
        });
        samples.max().unwrap()
    };
    (u64::from(placed.phases[0].horizon), last(1) - last(0))
}

#[test]
fn a_sampled_phase_costs_its_horizon_and_the_published_residual() {
    for words in [2, 16, 250, 1_000] {
        let (horizon, cycles) = sampled(words);
        let residual = cycles - horizon;
        println!(
            "{words} words to the next of {TILES} tiles: {cycles} simulated cycles sampled, \
             horizon {horizon}, residual {residual} (published {} to {})",
            PUBLISHED.start(),
            PUBLISHED.end()
        );
        assert!(PUBLISHED.contains(&residual), "{words} words: {residual}");
    }
}
