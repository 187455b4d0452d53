//! Instructions against scalar expectations.

mod common;
use common::*;
use half::f16;

/// Run a single worker's program and return words of the output buffer.
fn run(program: &str, inputs: &[u32], count: u32) -> Vec<u32> {
    let (mut run, labels) = tile(&single_worker(&format!(
        "ld32 $m2, $m13, $m15, 0\nld32 $m3, $m13, $m15, 1\n{program}"
    )));
    run.write_words(0x60000, inputs).unwrap();
    run.frame(FRAME, &[0x60000, 0x64000]).unwrap();
    run.call(labels["main"]).unwrap_or_else(|f| panic!("{f}"));
    run.read_words(0x64000, count).unwrap()
}

fn h2(low: f32, high: f32) -> u32 {
    let bits = |v| u32::from(f16::from_f32(v).to_bits());
    bits(low) | bits(high) << 16
}

#[test]
fn integer_and_control() {
    let words = run(
        "setzi $m4, 10
         setzi $m5, 0
         sum:
         add $m5, $m5, $m4
         brnzdec $m4, @sum
         st32 $m5, $m3, $m15, 0
         sub $m6, 100, $m5
         st32 $m6, $m3, $m15, 1
         cmpslt $m7, $m6, 50
         movnz $m8, $m7, $m5
         st32 $m8, $m3, $m15, 2
         call $m9, @leaf
         st32 $m9, $m3, $m15, 3
         bri @done
         leaf:
         setzi $m9, 7
         br $m9
         done:
        "
        .replace(
            "setzi $m9, 7\n         br $m9",
            "mov $m4, $m9\nsetzi $m9, 7\nbr $m4",
        )
        .as_str(),
        &[0],
        4,
    );
    assert_eq!(words, [55, 45, 55, 7]);
}

#[test]
fn loads_of_all_widths() {
    let words = run(
        "lds8 $m4, $m2, $m15, 3
         st32 $m4, $m3, $m15, 0
         ldz16 $m4, $m2, $m15, 1
         st32 $m4, $m3, $m15, 1
         ldb16 $a0, $m2, $m15, 1
         st32 $a0, $m3, $m15, 2
         ldb8 $a1, $m2, $m15, 0
         st32 $a1, $m3, $m15, 3
         mov $m5, $m2
         ld32step $a2, $m15, $m5+=, 2
         ld32step $a3, $m15, $m5+=, -1
         st64 $a2:3, $m3, $m15, 2
         sub $m5, $m5, $m2
         st32 $m5, $m3, $m15, 6
         setzi $m6, 1
         ld32 $a4, $m2, $m15, $m6
         st32 $a4, $m3, $m15, 7
         stm32 $m6, $m3, $m6
        ",
        &[0x8182_8384, 5, 6],
        8,
    );
    let expected = [
        0xffff_ff81,
        1,
        0x8182_8182,
        0x8484_8484,
        0x8182_8384,
        6,
        4,
        5,
    ];
    assert_eq!(words, expected);
}

#[test]
fn half_arithmetic_and_broadcast() {
    let words = run(
        "ld64 $a0:1, $m2, $m15, 0
         ld64 $a2:3, $m2, $m15, 1
         f16v4add $a4:5, $a0:1, $a2:3
         st64 $a4:5, $m3, $m15, 0
         f16v4mul $a4:5, $a0:BU, $a2:3
         st64 $a4:5, $m3, $m15, 1
         f16v2tof32 $a4:5, $a0
         f32v2mul $a4:5, $a4:5, $a4:5
         f32v2tof16 $a6, $a4:5
         st32 $a6, $m3, $m15, 4
         st32 $a15, $m3, $m15, 5
         f16v4sum $a4:5, $a0:1
         st64 $a4:5, $m3, $m15, 3
        ",
        &[h2(1.0, 2.0), h2(3.0, 4.0), h2(0.5, -1.0), h2(8.0, 0.25)],
        8,
    );
    let expected = [
        h2(1.5, 1.0),
        h2(11.0, 4.25),
        h2(1.0, -2.0),
        h2(16.0, 0.5),
        h2(1.0, 4.0),
    ];
    assert_eq!(words[..5], expected);
    assert_eq!(words[6..], [3f32.to_bits(), 7f32.to_bits()]);
}

#[test]
fn bundles_read_the_old_state() {
    let words = run(
        "ld64 $a0:1, $m2, $m15, 0
         .align
         { ld64 $a0:1, $m2, $m15, 1 ; f32v2add $a2:3, $a0:1, $a0:1 }
         { st64 $a2:3, $m3, $m15, 0 ; f32v2add $a2:3, $a0:1, $a0:1 }
         { atom $m4, $a2 ; setzi $a2, 1 }
         st32 $m4, $m3, $m15, 2
        ",
        &[1f32, 2.0, 3.0, 4.0].map(f32::to_bits),
        3,
    );
    assert_eq!(words, [2f32.to_bits(), 4f32.to_bits(), 6f32.to_bits()]);
}

#[test]
fn accumulators_drain_in_lane_order() {
    let words = run(
        "setzi $a8, 8
         uput 1, $a8
         ld64 $a0:1, $m2, $m15, 0
         ld64 $a2:3, $m2, $m15, 1
         f16v8sqacc $a0:3
         f16v8acc $a0:3
         f32v2gina $a4:5, $a14:15, 0
         st64 $a4:5, $m3, $m15, 0
         f32v2gina $a4:5, $a14:15, 0
         st64 $a4:5, $m3, $m15, 1
         f32v2gina $a4:5, $a14:15, 0
         f32v2gina $a4:5, $a14:15, 0
         st64 $a4:5, $m3, $m15, 2
         f32v2gina $a4:5, $a14:15, 0
         st64 $a4:5, $m3, $m15, 3
        ",
        &[h2(1.0, 2.0), h2(3.0, 4.0), h2(5.0, 6.0), h2(7.0, -8.0)],
        8,
    );
    let expected = [2f32, 6.0, 12.0, 20.0, 56.0, 56.0, 0.0, 0.0].map(f32::to_bits);
    assert_eq!(words, expected);
}

#[test]
fn mix_and_axpy_return_the_previous_content() {
    let words = run(
        "setzi $a8, 8
         uput 1, $a8
         ld32 $a7, $m2, $m15, 4
         uput 8, $a7
         ld64 $a0:1, $m2, $m15, 0
         ld64 $a2:3, $m2, $m15, 1
         f16v4mix $a4:5, $a0:1, $a2:3
         f16v4mix $a4:5, $a14:15, $a14:15
         st64 $a4:5, $m3, $m15, 0
         ld32 $a7, $m2, $m15, 5
         uput 8, $a7
         f16v2tof32 $a0:1, $a0
         f16v2tof32 $a2:3, $a2
         f32v2axpy $a4:5, $a0:1, $a2:3
         f32v2axpy $a4:5, $a14:15, $a14:15
         st64 $a4:5, $m3, $m15, 1
        ",
        &[
            h2(1.0, 2.0),
            h2(3.0, 4.0),
            h2(10.0, 20.0),
            h2(30.0, 40.0),
            h2(2.0, 0.5),
            3f32.to_bits(),
        ],
        4,
    );
    let expected = [
        h2(7.0, 14.0),
        h2(21.0, 28.0),
        13f32.to_bits(),
        26f32.to_bits(),
    ];
    assert_eq!(words, expected);
}

#[test]
fn f8_casts_scale_both_ways() {
    // F143, scale 1: quantising sets -1, dequantising +1.
    let words = run(
        "setzi $a8, 1
         uput 9, $a8
         setzi $a8, 63
         uput 10, $a8
         ld64 $a0:1, $m2, $m15, 0
         ld64 $a2:3, $m2, $m15, 0
         f16v8tof8 $a4:5, $a0:3
         st64 $a4:5, $m3, $m15, 0
         setzi $a8, 1
         uput 10, $a8
         f8v4tof16 $a6:7, $a4
         st64 $a6:7, $m3, $m15, 1
        ",
        &[h2(2.0, -4.0), h2(0.0, 4000.0)],
        4,
    );
    assert_eq!(words[0], 0x7f00_c840);
    assert_eq!(words[2..], [h2(2.0, -4.0), h2(0.0, 480.0)]);
}

#[test]
fn paced_accesses_follow_their_selections() {
    let words = run(
        "add $m4, $m2, 8
         setzi $m9, 2
         or $m9, $m9, 0x400
         tapack $m6:7, $m2, $m3, $m3
         nop
         .align
         { rpt 2, 0 ; fnop }
         { ldst64pace $a0:1, $a0:1, $m6:7+=, $m9, 0b0001 ; fnop }
         st64pace $a0:1, $m6:7+=, $m15, 0
        ",
        &[1, 2, 3, 4, 5, 6],
        6,
    );
    assert_eq!(words[2..], [1, 2, 5, 6]);
}

#[test]
fn counter_and_index_of_a_worker() {
    let words = run(
        "get $m4, 96
         nop
         get $m5, 96
         sub $m5, $m5, $m4
         st32 $m5, $m3, $m15, 0
         get $m6, 2
         sub $m6, $m6, $m13
         st32 $m6, $m3, $m15, 1",
        &[0],
        2,
    );
    assert_eq!(words, [12, 0]);
}
