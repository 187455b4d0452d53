//! Matrix products by the initialise and accumulate patterns against a scalar reference.

mod common;
use common::*;
use half::f16;
use ipu_isa::float::F8;
use ipu_sim::numeric::{NanOnOverflow, narrow, widen};

const LEFT: u32 = 0x88000;
const COEFFICIENTS: u32 = 0x80000;
const OUTPUT: u32 = 0x90000;

struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn half(&mut self) -> u16 {
        let value = (self.next() % 2001) as f32 / 500.0 - 2.0;
        f16::from_f32(value).to_bits()
    }
}

fn bytes16(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Coefficients are fed in the order that puts channel `4p + i` into lane i of phase p.
fn feed() -> String {
    let mut text = String::from("ld32 $m2, $m0, $m15, 0\nput 80, $m2\n");
    for phase in 0..4 {
        for base in [0, 32] {
            for i in 0..8 {
                text += &format!("ld64putcs {}\n", base + 8 * phase + i);
            }
        }
    }
    text
}

/// Supervisor part: feed, launch, join.
fn product(worker: &str) -> String {
    format!(
        "main:\n{}\nsetzi $m1, =body\nrunall $m1, $m0, 0\nsync 2\nbr $m10\n.worker\n.align\nbody:\n\
         get $m1, 1\nand $m1, $m1, 7\nbrnz $m1, @stop\n\
         ld32 $m2, $m13, $m15, 1\nld32 $m3, $m13, $m15, 2\nld32 $m4, $m13, $m15, 3\n{worker}\n\
         stop:\nexitz $m15\n",
        feed()
    )
}

/// Rows of left times 16 outputs over one panel of `K`, from partials.
fn reference<const K: usize>(
    left: &[[f32; K]],
    weights: &[[f32; K]; 16],
    partials: &[[f32; 16]],
) -> Vec<[u16; 16]> {
    let row = |x: &[f32; K], start: &[f32; 16]| {
        std::array::from_fn(|c| {
            let mut acc = start[c];
            for k in 0..K {
                acc = x[k].mul_add(weights[c][k], acc);
            }
            narrow(acc, NanOnOverflow(false))
        })
    };
    left.iter().zip(partials).map(|(x, p)| row(x, p)).collect()
}

fn halves_of(bytes: &[u8]) -> Vec<u16> {
    bytes
        .chunks(2)
        .map(|b| u16::from_le_bytes([b[0], b[1]]))
        .collect()
}

/// First row through phases, then a repeat over the rest, then the drain.
fn initialise(amp: &str) -> String {
    let text = "add $m4, $m4, -1
        ld64step $a0:1, $m15, $m2+=, 1
        .align
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a14:15, 0 }
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a14:15, 1 }
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a14:15, 2 }
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a14:15, 3 }
        { tapack $m6:7, $m2, $m15, $m3 ; AMP $a4:5, $a0:1, $a14:15, 0 }
        ld64step $a0:1, $m15, $m2+=, 1
        tapack $m6:7, $m2, $m15, $m3
        nop
        .align
        { rpt $m4, 3 ; fnop }
        { ldst64pace $a0:1, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a0:1, $a14:15, 1 }
        { ldst64pace $a0:1, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a0:1, $a14:15, 2 }
        { ldst64pace $a0:1, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a0:1, $a14:15, 3 }
        { ldst64pace $a0:1, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a0:1, $a14:15, 0 }
        { st64pace $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a14:15, $a14:15, 1 }
        { st64pace $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a14:15, $a14:15, 2 }
        { st64pace $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a14:15, $a14:15, 3 }
        st64pace $a4:5, $m6:7+=, $m15, 0";
    product(&text.replace("AMP", amp))
}

/// Loads run two bundles ahead, so that partials and results use different ports of their pair.
/// Warm-up with zeros after a clear brings in the partials of row 0.
fn accumulate(amp: &str) -> String {
    let text = "mov $m5, $m3
        setzi $a8, 8
        uput 1, $a8
        ld64step $a6:7, $m15, $m5+=, 1
        .align
        { ld64step $a6:7, $m15, $m5+=, 1 ; AMP $a4:5, $a14:15, $a6:7, 0 }
        { ld64step $a6:7, $m15, $m5+=, 1 ; AMP $a4:5, $a14:15, $a6:7, 1 }
        { ld64step $a6:7, $m15, $m5+=, 1 ; AMP $a4:5, $a14:15, $a6:7, 2 }
        { ld64step $a2:3, $m15, $m5+=, 1 ; AMP $a4:5, $a14:15, $a6:7, 3 }
        ld64step $a0:1, $m15, $m2+=, 1
        .align
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a2:3, 0 }
        ld64step $a2:3, $m15, $m5+=, 1
        .align
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a2:3, 1 }
        ld64step $a2:3, $m15, $m5+=, 1
        .align
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a2:3, 2 }
        ld64step $a2:3, $m15, $m5+=, 1
        .align
        { ld64step $a0:1, $m15, $m2+=, 1 ; AMP $a4:5, $a0:1, $a2:3, 3 }
        ld64step $a2:3, $m15, $m5+=, 1
        AMP $a4:5, $a0:1, $a2:3, 0
        ld64step $a0:1, $m15, $m2+=, 1
        ld64step $a2:3, $m15, $m5+=, 1
        ld64step $a8:9, $m15, $m2+=, 1
        ld64step $a10:11, $m15, $m5+=, 1
        tapack $m6:7, $m2, $m5, $m3
        add $m4, $m4, -1
        nop
        .align
        { rpt $m4, 3 ; fnop }
        { ld2xst64pace $a0:3, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a0:1, $a2:3, 1 }
        { ld2xst64pace $a8:11, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a8:9, $a10:11, 2 }
        { ld2xst64pace $a0:3, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a0:1, $a2:3, 3 }
        { ld2xst64pace $a8:11, $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a8:9, $a10:11, 0 }
        { st64pace $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a14:15, $a14:15, 1 }
        { st64pace $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a14:15, $a14:15, 2 }
        { st64pace $a4:5, $m6:7+=, $m15, 0 ; AMP $a4:5, $a14:15, $a14:15, 3 }
        st64pace $a4:5, $m6:7+=, $m15, 0";
    product(&text.replace("AMP", amp))
}

#[test]
fn f16_initialise_then_accumulate() {
    let mut random = Random(7);
    for rows in [1usize, 2, 3, 7] {
        let left: Vec<[u16; 16]> = (0..rows)
            .map(|_| std::array::from_fn(|_| random.half()))
            .collect();
        let weights: [[u16; 16]; 16] =
            std::array::from_fn(|_| std::array::from_fn(|_| random.half()));
        let wide_left: Vec<[f32; 16]> = left.iter().map(|r| r.map(widen)).collect();
        let wide_weights = weights.map(|r| r.map(widen));
        let zero = vec![[0.0; 16]; rows];
        let first = reference(&wide_left, &wide_weights, &zero);
        let partials: Vec<[f32; 16]> = first.iter().map(|r| r.map(widen)).collect();
        let second = reference(&wide_left, &wide_weights, &partials);

        let frame = [COEFFICIENTS, LEFT, OUTPUT, rows as u32];
        let (mut run, labels) = tile(&initialise("f16v4hihov4amp"));
        run.write(LEFT, &bytes16(&left.concat())).unwrap();
        run.write(COEFFICIENTS, &bytes16(&weights.concat()))
            .unwrap();
        run.frame(FRAME, &frame).unwrap();
        run.call(labels["main"]).unwrap_or_else(|f| panic!("{f}"));
        let found = run.read(OUTPUT, 32 * rows as u32).unwrap();
        assert_eq!(halves_of(&found), first.concat(), "initialise, {rows} rows");
        assert!(!run.is_defined(OUTPUT + 32 * rows as u32, 1));

        let (mut run, labels) = tile(&accumulate("f16v4hihov4amp"));
        run.write(LEFT, &bytes16(&left.concat())).unwrap();
        run.write(COEFFICIENTS, &bytes16(&weights.concat()))
            .unwrap();
        run.write(OUTPUT, &found).unwrap();
        run.frame(FRAME, &frame).unwrap();
        run.call(labels["main"]).unwrap_or_else(|f| panic!("{f}"));
        let found = run.read(OUTPUT, 32 * rows as u32).unwrap();
        assert_eq!(
            halves_of(&found),
            second.concat(),
            "accumulate, {rows} rows"
        );
    }
}

#[test]
fn f8_products_are_scaled() {
    let mut random = Random(3);
    let rows = 5;
    let code = |random: &mut Random| {
        F8::F143.encode(
            f64::from(widen(random.half())),
            ipu_isa::float::Overflow::Saturate,
        )
    };
    let left: Vec<[u8; 32]> = (0..rows)
        .map(|_| std::array::from_fn(|_| code(&mut random)))
        .collect();
    let weights: [[u8; 32]; 16] =
        std::array::from_fn(|_| std::array::from_fn(|_| code(&mut random)));
    let wide_left: Vec<[f32; 32]> = left.iter().map(|r| r.map(|c| F8::F143.decode(c))).collect();
    let wide_weights = weights.map(|r| r.map(|c| F8::F143.decode(c) / 8.0));
    let zero = vec![[0.0; 16]; rows];
    let expected = reference(&wide_left, &wide_weights, &zero);

    let source = initialise("f8v8hihov4amp").replace(
        "main:\n",
        "main:\nsetzi $m2, 3\nput 49, $m2\nsetzi $m2, 61\nput 51, $m2\n",
    );
    let (mut run, labels) = tile(&source);
    run.write(LEFT, &left.concat()).unwrap();
    run.write(COEFFICIENTS, &weights.concat()).unwrap();
    run.frame(FRAME, &[COEFFICIENTS, LEFT, OUTPUT, rows as u32])
        .unwrap();
    run.call(labels["main"]).unwrap_or_else(|f| panic!("{f}"));
    let found = run.read(OUTPUT, 32 * rows as u32).unwrap();
    assert_eq!(halves_of(&found), expected.concat());
}

#[test]
fn left_and_output_in_one_pair_conflict() {
    let (mut run, labels) = tile(&initialise("f16v4hihov4amp"));
    run.write(LEFT, &[0; 512]).unwrap();
    run.write(COEFFICIENTS, &[0; 512]).unwrap();
    // The left pointer runs ahead of the output pointer; equal ports meet.
    run.frame(FRAME, &[COEFFICIENTS, LEFT, LEFT + 0x1008, 4])
        .unwrap();
    let one = run.call(labels["main"]);
    run.frame(FRAME, &[COEFFICIENTS, LEFT, LEFT + 0x1000, 4])
        .unwrap();
    let other = run.call(labels["main"]);
    assert!(one.is_err() != other.is_err());
}
