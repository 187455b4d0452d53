//! Published timing facts that the issue model was fitted to.

mod common;
use common::*;

fn cycles(source: &str, frame: &[u32]) -> u64 {
    let (mut run, labels) = tile(source);
    run.write(0x60000, &[0; 16384]).unwrap();
    run.write(0x64000, &[0; 16384]).unwrap();
    run.frame(FRAME, frame).unwrap();
    run.call(labels["main"]).unwrap().cycles
}

#[test]
fn an_empty_kernel_reads_about_a_hundred() {
    let found = cycles("main:\nbr $m10\n", &[0]);
    assert_eq!(found, 96);
    assert_eq!(found % 6, 0);
}

#[test]
fn an_empty_worker_kernel_is_a_small_multiple_of_six() {
    let found = cycles(&kernel("exitz $m15\n"), &[0]);
    assert_eq!(found % 6, 0);
    assert!((110..=140).contains(&found), "{found}");
}

/// Eight instructions, of which the chain load, add, store and the chain count, branch bind.
const PATCH: &str = "main:
    ld32 $m1, $m0, $m15, 0
    ld32 $m2, $m0, $m15, 1
loop:
    ld32 $m3, $m1, $m15, 0
    ld32 $m4, $m1, $m15, 1
    mov $m5, $m3
    add $m4, $m4, 16
    st32 $m4, $m1, $m15, 1
    add $m1, $m1, 8
    add $m2, $m2, -1
    brnz $m2, @loop
    br $m10
";

#[test]
fn patch_loop_is_31_cycles_a_word() {
    let at = |words: u32| cycles(PATCH, &[0x60000, words]);
    assert_eq!(at(600 + 24) - at(24), 600 * 31);
}

const COPY: &str = "main:
    ld32 $m1, $m0, $m15, 0
    ld32 $m2, $m0, $m15, 1
    ld32 $m3, $m0, $m15, 2
loop:
    ld32 $m4, $m1, $m15, 0
    st32 $m4, $m2, $m15, 0
    add $m1, $m1, 4
    add $m2, $m2, 4
    add $m3, $m3, -1
    brnz $m3, @loop
    br $m10
";

#[test]
fn supervisor_copy_loop_is_23_cycles_a_word() {
    let at = |words: u32| cycles(COPY, &[0x60000, 0x64000, words]);
    assert_eq!(at(66) - at(6), 60 * 23);
}

const WORKER_COPY: &str = "get $m1, 1
    and $m1, $m1, 7
    ld32 $m2, $m13, $m15, 0
    ld32 $m3, $m13, $m15, 1
    ld32 $m4, $m13, $m15, 2
    shl $m5, $m1, 3
    add $m2, $m2, $m5
    add $m3, $m3, $m5
    nop
    .align
    { rpt $m4, 1 ; fnop }
    { ld64step $a0:1, $m15, $m2+=, 6 ; fnop }
    { st64step $a0:1, $m15, $m3+=, 6 ; fnop }
    exitz $m15
";

#[test]
fn worker_copy_is_12_cycles_for_six_double_words() {
    let source = kernel(WORKER_COPY);
    let at = |count: u32| cycles(&source, &[0x60000, 0x64000, count]);
    assert_eq!(at(50) - at(10), 40 * 12);
}

fn feed(instruction: &str, step: usize) -> u64 {
    let mut source = "main:\nld32 $m1, $m0, $m15, 0\nput 80, $m1\n".to_owned();
    for entry in (0..64).step_by(step) {
        source += &format!("{instruction} {entry}\n");
    }
    source += "br $m10\n";
    let (mut run, labels) = tile(&source);
    run.write(0x80000, &[0; 512]).unwrap();
    run.frame(FRAME, &[0x80000]).unwrap();
    run.call(labels["main"]).unwrap().cycles
}

#[test]
fn interleaved_feed_saves_32_cycles_a_panel() {
    // A figure is a multiple of 6, so one panel shows 30 or 36.
    let saved = feed("ld64putcs", 1) - feed("ld128putcs", 2);
    assert!(saved == 30 || saved == 36, "{saved}");
}

#[test]
fn workers_are_timed_by_their_own_issues() {
    // Worker 3 takes 10 issues more than the others.
    let long = "get $m1, 1
        and $m1, $m1, 7
        cmpeq $m1, $m1, 3
        brz $m1, @end
        nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop
        end:
        exitz $m15
    ";
    let (mut run, labels) = tile(&kernel(long));
    run.frame(FRAME, &[0]).unwrap();
    let result = run.call(labels["main"]).unwrap();
    assert_eq!(result.issues, [5, 5, 5, 15, 5, 5]);
    assert_eq!(result.launches, vec![[5, 5, 5, 15, 5, 5]]);
}

#[test]
fn without_data_the_cycles_are_the_same() {
    let source = kernel(WORKER_COPY);
    let (mut run, labels) = tile(&source);
    run.frame(FRAME, &[0x60000, 0x64000, 33]).unwrap();
    let with = run.call(labels["main"]).unwrap();
    let without = run.without_data().call(labels["main"]).unwrap();
    assert_eq!(with, without);
}
