//! Recalled kernel calls take the cycles of executed ones.

mod common;
use common::*;
use ipu_package::*;
use ipu_sim::{Calls, Session, SessionError};

const SCRATCH: u32 = 0x580e0;

/// Kernels whose path is decided in different ways. The frame is pointer, scalar.
const KERNELS: &str = "scalar:
    setzi $m1, =scalar_worker
    setzi $m8, SCRATCH
    ld32 $m2, $m0, $m15, 0
    st32 $m2, $m8, $m15, 3
    runall $m1, $m0, 0
    sync 2
    br $m10
    pointer:
    ld32 $m1, $m0, $m15, 0
    and $m1, $m1, 16
    brz $m1, @short
    nop
    nop
    nop
    short:
    br $m10
    frame:
    and $m1, $m0, 8
    brz $m1, @even
    nop
    nop
    even:
    br $m10
    counter:
    get $m1, 96
    and $m1, $m1, 7
    brz $m1, @zero
    nop
    zero:
    br $m10
    leaver:
    setzi $m3, 5
    br $m10
    left:
    brz $m3, @nothing
    nothing:
    br $m10
    .worker
    scalar_worker:
    setzi $m8, SCRATCH
    ld32 $m1, $m8, $m15, 3
    ld32 $m2, $m13, $m15, 1
    add $m1, $m1, 8
    loop:
    ld64step $a0:1, $m15, $m1+=, 1
    brnzdec $m2, @loop
    exitz $m15
";

struct Call {
    kernel: &'static str,
    pointer: u32,
    scalar: u32,
}

const fn call(kernel: &'static str, pointer: u32, scalar: u32) -> Call {
    Call {
        kernel,
        pointer,
        scalar,
    }
}

/// One tile that makes calls, each with its own frame.
fn package(calls: &[Call], before: &str) -> Package {
    let kernels = assemble(CODE, &KERNELS.replace("SCRATCH", &SCRATCH.to_string()));
    let program = CODE + 0x1000;
    // One batch in and one out, in which the tile moves nothing.
    let mut text = "entry:\nsync 7\nloop:\nsync 7\nsync 7\nsync 3\n".to_owned();
    let mut frames = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        let frame = FRAME + 8 * i as u32;
        let entry = kernels.labels[call.kernel] / 4;
        text += &format!("{before}\nsetzi $m0, {frame}\ncall $m10, {entry}\n");
        frames.extend([call.pointer, call.scalar]);
    }
    text += "sync 7\nsync 7\nbri @loop\n";
    let code = assemble(program, &text);
    let pieces = [
        (CODE, SegmentKind::Kernel, kernels.words.clone()),
        (program, SegmentKind::TileProgram, code.words.clone()),
        (FRAME, SegmentKind::Frames, frames),
    ];
    let run = HostRun {
        tile: 0,
        address: 0x60000,
        bytes: 4,
    };
    Package {
        device: "c600".to_owned(),
        tiles: 1,
        images: vec![TileImage {
            tile: 0,
            entry: code.labels["entry"],
            pieces: (0..).zip(&pieces).map(piece).collect(),
            marks: Vec::new(),
        }],
        segments: pieces.into_iter().map(segment).collect(),
        tensors: Vec::new(),
        bindings: Vec::new(),
        rest: None,
        host: HostPlan {
            slots: vec![0],
            inputs: vec![run],
            outputs: vec![run],
            parameters: Vec::new(),
        },
        steps: Vec::new(),
    }
}

fn piece((segment, &(address, ..)): (u32, &(u32, SegmentKind, Vec<u32>))) -> Piece {
    Piece { address, segment }
}

fn segment((_, kind, words): (u32, SegmentKind, Vec<u32>)) -> Segment {
    Segment { kind, words }
}

fn run(mut session: Session) -> Result<(u64, [u64; 6], Calls), SessionError> {
    session.initialize(&mut |_| None)?;
    let result = session.invoke(&mut |_| None)?;
    let machine = session.machine();
    let issues = machine.tile(0).expect("the tile").issues.total;
    Ok((result.cycles, issues, machine.calls()))
}

#[track_caller]
fn compare(calls: &[Call], executed: u64) {
    let package = package(calls, "");
    let (cycles, issues, counted) = run(Session::without_data(&package).unwrap()).unwrap();
    let each = Session::executing_each_call(&package).unwrap();
    let (expected, expected_issues, _) = run(each).unwrap();
    assert_eq!((cycles, issues), (expected, expected_issues));
    let (data, data_issues, _) = run(Session::new(&package).unwrap()).unwrap();
    assert_eq!((cycles, issues), (data, data_issues));
    assert_eq!(counted.executed, executed);
    assert_eq!(counted.recalled + counted.executed, calls.len() as u64);
}

/// Enough equal calls that every slot a call can begin in is known.
fn repeated(kernel: &'static str, of: impl Fn(u32) -> (u32, u32)) -> Vec<Call> {
    let made = |i| {
        let (pointer, scalar) = of(i);
        call(kernel, pointer, scalar)
    };
    (0..24).map(made).collect()
}

#[test]
fn a_pointer_that_decides_nothing_is_no_part_of_the_key() {
    // After the first call the others begin in one slot, or in a few.
    let calls = repeated("scalar", |i| (0x60000 + 64 * i, 40));
    let package = package(&calls, "");
    let (.., counted) = run(Session::without_data(&package).unwrap()).unwrap();
    assert!(counted.executed <= 6, "{counted:?}");
    compare(&calls, counted.executed);
}

#[test]
fn a_scalar_that_decides_is_part_of_the_key() {
    compare(&repeated("scalar", |i| (0x60000, 40 + i)), 24);
}

#[test]
fn a_pointer_that_decides_is_part_of_the_key() {
    let calls = repeated("pointer", |i| (0x60000 + 16 * (i / 3 % 2), 0));
    let package = package(&calls, "");
    let (.., counted) = run(Session::without_data(&package).unwrap()).unwrap();
    assert!(counted.executed < 24, "{counted:?}");
    compare(&calls, counted.executed);
}

#[test]
fn a_frame_address_that_decides_is_part_of_the_key() {
    compare(&repeated("frame", |_| (0, 0)), 24);
}

#[test]
fn a_kernel_that_reads_the_clock_is_executed() {
    compare(&repeated("counter", |_| (0, 0)), 24);
}

#[test]
fn what_a_recalled_kernel_left_in_registers_cannot_be_used() {
    let mut calls = repeated("leaver", |_| (0, 0));
    calls.push(call("left", 0, 0));
    let package = package(&calls, "");
    assert!(run(Session::executing_each_call(&package).unwrap()).is_ok());
    match run(Session::without_data(&package).unwrap()) {
        Err(SessionError::Fault(fault)) => {
            assert!(matches!(fault.kind, ipu_sim::FaultKind::Undefined(_)));
        }
        other => panic!("{other:?}"),
    }
}
