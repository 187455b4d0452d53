//! Faults stop with their kind and place.

mod common;
use common::*;
use ipu_sim::{ContextId, DeviceFault, FaultKind, Use};

fn fault(source: &str) -> DeviceFault {
    let (mut run, labels) = tile(source);
    run.write_words(0x60000, &[1, 2, 3, 4]).unwrap();
    run.frame(FRAME, &[0x60000]).unwrap();
    *run.call(labels["main"]).unwrap_err()
}

fn worker(program: &str) -> FaultKind {
    let found = fault(&single_worker(&format!("setzi $m2, 0x60000\n{program}")));
    assert_eq!(found.context, ContextId::Worker(0));
    found.kind
}

#[test]
fn addresses() {
    assert!(matches!(
        worker("ld64 $a0:1, $m2, $m15, 0\nadd $m2, $m2, 4\nld64 $a0:1, $m2, $m15, 0"),
        FaultKind::Misaligned {
            address: 0x60004,
            bytes: 8
        }
    ));
    assert!(matches!(
        worker("ld32 $m3, $m15, $m15, 0"),
        FaultKind::OutOfRange { .. }
    ));
    assert!(matches!(
        worker("ld128 $a0:3, $m2, $m15, 0"),
        FaultKind::NotInterleaved { address: 0x60000 }
    ));
    assert!(matches!(
        worker(
            "setzi $m3, 0x60100\ntapack $m4:5, $m2, $m3, $m3\nld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0"
        ),
        FaultKind::Conflict { .. }
    ));
}

#[test]
fn undefined_data() {
    let load = "ld32 $m3, $m2, $m15, 8\n";
    assert_eq!(
        worker(&format!("{load}brnz $m3, @stop")),
        FaultKind::Undefined(Use::Branch)
    );
    assert_eq!(
        worker(&format!("{load}add $m3, $m3, 1\nld32 $m4, $m3, $m15, 0")),
        FaultKind::Undefined(Use::Address)
    );
    assert_eq!(
        worker("ld32 $a0, $m2, $m15, 8\nf32add $a0, $a0, $a1\natom $m3, $a0\nbrz $m3, @stop"),
        FaultKind::Undefined(Use::Branch)
    );
}

#[test]
fn undefined_data_may_be_carried() {
    let program =
        single_worker("setzi $m2, 0x60000\nld64 $a0:1, $m2, $m15, 2\nst64 $a0:1, $m2, $m15, 4");
    let (mut run, labels) = tile(&program);
    run.write_words(0x60010, &[9]).unwrap();
    run.frame(FRAME, &[0]).unwrap();
    run.call(labels["main"]).unwrap();
    assert_eq!(run.read_words(0x60020, 1).unwrap(), [9]);
    assert!(!run.is_defined(0x60024, 1));
}

#[test]
fn execution() {
    assert!(matches!(
        worker("setzi $m3, 0x80000\nbr $m3"),
        FaultKind::NotExecutable { address: 0x80000 }
    ));
    assert!(matches!(
        worker("setzi $m3, 0x60000\nbr $m3"),
        FaultKind::NoCode { address: 0x60000 }
    ));
    assert!(matches!(
        worker(".word ffffffff"),
        FaultKind::NoInstruction { .. }
    ));
    assert!(matches!(worker("trap 3"), FaultKind::Trap(3)));
    assert_eq!(
        worker("f32class $a0, $a1"),
        FaultKind::Unimplemented("f32class A")
    );
    assert_eq!(worker("setzi $m13, 1"), FaultKind::ReadOnlyRegister(13));
}

#[test]
fn repeats() {
    assert!(matches!(
        worker("nop\n.align\nrpt 2, 0\nnop\nnop"),
        FaultKind::Repeat(_)
    ));
    assert!(matches!(
        worker("setzi $m3, 0x10000\nrpt $m3, 0"),
        FaultKind::Repeat(_)
    ));
}

#[test]
fn launches_and_modes() {
    let twice = "main:\nsetzi $m1, =body\nrunall $m1, $m0, 0\nrunall $m1, $m0, 0\nsync 2\nbr $m10\n\
                 .worker\nbody:\nexitz $m15\n";
    assert!(matches!(fault(twice).kind, FaultKind::WorkersBusy(_)));
    let arithmetic = "main:\n.worker\nf32add $a0, $a0, $a0\n";
    let found = fault(arithmetic);
    assert!(matches!(found.kind, FaultKind::NoInstruction { .. }));
    assert_eq!(found.pc, CODE);
    let sync = fault("main:\nsync 3\nbr $m10\n");
    assert!(matches!(
        sync.kind,
        FaultKind::SyncMismatch { found: 3, .. }
    ));
    let unanswered = fault("main:\nsync 1\nbr $m10\n");
    assert!(matches!(
        unanswered.kind,
        FaultKind::SyncMismatch { found: 1, .. }
    ));
}

#[test]
fn a_fault_reads_well() {
    let found = fault(&single_worker("setzi $m2, 3\nld32 $m3, $m2, $m15, 0"));
    let text = found.to_string();
    assert!(text.starts_with("tile 0, worker 0 at 0x5c0"), "{text}");
    assert!(text.contains("(ld32)"), "{text}");
}
