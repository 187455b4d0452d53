//! Fused loops against the interpreter.

use super::*;
use crate::code::Block;
use crate::exec::{aux, commit, main};
use crate::matrix::Coefficients;
use crate::numeric::Portable;
use ipu_isa::Mode;
use ipu_isa::text::assemble_statement;
use ipu_package::SegmentKind;

const LEFT: u32 = 0x88000;
const OTHER: u32 = 0x90000;

/// Bundles of a product: loads into alternating quads or one pair.
fn lines(amp: &str, second: bool) -> Vec<Line> {
    let mut words = Vec::new();
    for phase in [1, 2, 3, 0] {
        let quad = if phase % 2 == 1 { 0 } else { 8 };
        let (access, x, y) = if second {
            let access = format!("ld2xst64pace $a{quad}:{}, $a4:5", quad + 3);
            (access, quad, quad + 2)
        } else {
            ("ldst64pace $a0:1, $a4:5".to_owned(), 0, 14)
        };
        let main = format!("{access}, $m6:7+=, $m9, 0");
        let aux = format!("{amp} $a4:5, $a{x}:{}, $a{y}:{}, {phase}", x + 1, y + 1);
        for text in [main, aux] {
            let word =
                assemble_statement(&text, Mode::Worker).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            words.push(word[0] | 1 << 31);
        }
    }
    let block = Block::new(0x5c000, SegmentKind::Kernel, words);
    block.lines(Mode::Worker).to_vec()
}

struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0.rotate_left(13)
    }

    fn code(&mut self) -> u32 {
        // Mostly moderate F16 values, some special ones.
        let one = |bits: u32| match bits & 0xff {
            0 => 0x7c00,
            1 => 0x7e01,
            2 => 0x0003,
            _ => (bits & 0x8fff) + 0x3000,
        };
        one(self.next()) | one(self.next()) << 16
    }
}

fn interpret(body: &[Line], count: u32, w: &mut Context, shared: &mut Shared) {
    for _ in 0..count {
        for line in body.iter().step_by(2) {
            let out = aux::<Portable>(&line.aux, w, shared.coefficients).unwrap();
            main::<true>(&line.main, w, shared.memory).unwrap();
            commit(&line.aux, w, out);
        }
    }
}

fn setup(random: &mut Random, out: u32, nfmt: u32) -> (Context, Memory, Coefficients) {
    let mut w = Context::default();
    let mut memory = Memory::default();
    let mut coefficients = Coefficients::default();
    for entry in 0..64 {
        let value = u64::from(random.code()) | u64::from(random.code()) << 32;
        coefficients.set(entry, value, false);
    }
    let data: Vec<u32> = (0..0x3000).map(|_| random.code()).collect();
    memory.write_words(LEFT, &data).unwrap();
    memory.write_words(OTHER, &data[..0x2000]).unwrap();
    for register in 0..14 {
        w.a[register] = random.code();
    }
    for i in 0..4 {
        let codes = u64::from(random.code()) | u64::from(random.code()) << 32;
        // Waiting partials are F16 numbers.
        let codes = codes & 0xbfff_bfff_bfff_bfff;
        w.matrix.partials[4 * i..4 * i + 4].copy_from_slice(&widen4(codes));
    }
    // Registers that the body does not touch may be undefined.
    w.a_taint = 3 << 6 | 3 << 12;
    w.matrix.partials_at = 4;
    w.matrix.results_at = 4;
    w.fp_nfmt = nfmt;
    w.fp_scl = -3;
    let pair = tapack([LEFT, OTHER + 88, out]);
    w.m[6] = pair[0];
    w.m[7] = pair[1];
    (w, memory, coefficients)
}

fn same(x: f32, y: f32) -> bool {
    x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()
}

fn compare<V: Lanes>(amp: &str, second: bool, count: u32, poison: Option<u32>) -> u32 {
    let mut random = Random(count + 17 * u32::from(second));
    let body = lines(amp, second);
    let out = if second { OTHER } else { 0x98000 };
    let (mut w, mut memory, mut coefficients) = setup(&mut random, out, 3);
    if let Some(address) = poison {
        memory.poison(address, 2).unwrap();
    }
    let (mut w2, mut memory2) = (w.clone(), memory.clone());
    let mut coefficients2 = coefficients.clone();
    let mut shared = Shared {
        memory: &mut memory,
        coefficients: &mut coefficients,
        recorder: None,
        tracer: None,
    };
    let done = run::<V>(&body, count, &mut w, &mut shared);
    interpret(&body, count - done, &mut w, &mut shared);
    let mut shared2 = Shared {
        memory: &mut memory2,
        coefficients: &mut coefficients2,
        recorder: None,
        tracer: None,
    };
    interpret(&body, count, &mut w2, &mut shared2);
    assert_eq!((w.m, w.m_taint, w.a_taint), (w2.m, w2.m_taint, w2.a_taint));
    assert_eq!(w.a, w2.a, "{amp} {second} {count}");
    for (a, b) in [
        (&w.matrix.acc, &w2.matrix.acc),
        (&w.matrix.partials, &w2.matrix.partials),
        (&w.matrix.results, &w2.matrix.results),
    ] {
        assert!(a.iter().zip(b).all(|(x, y)| same(*x, *y)));
    }
    let (m, m2) = (&w.matrix, &w2.matrix);
    assert_eq!(
        (m.partials_at, m.results_at, m.acc_taint),
        (m2.partials_at, m2.results_at, m2.acc_taint)
    );
    for (start, words) in [(LEFT, 0x3000), (0x98000, 0x3000)] {
        assert_eq!(
            memory.words(start, words).unwrap(),
            memory2.words(start, words).unwrap()
        );
        for word in 0..words {
            let at = start + 4 * word;
            assert_eq!(
                memory.first_undefined(at, 1),
                memory2.first_undefined(at, 1)
            );
        }
    }
    done
}

fn all<V: Lanes>() {
    for amp in ["f16v4hihov4amp", "f8v8hihov4amp"] {
        for second in [false, true] {
            for count in [1, 2, 3, 7, 50, 64, 65, 150] {
                let done = compare::<V>(amp, second, count, None);
                assert_eq!(done, if count == 1 { 0 } else { count });
            }
            // Iteration 10 loads the undefined words.
            let done = compare::<V>(amp, second, 12, Some(LEFT + 32 * 10 + 8));
            assert_eq!(done, 10);
        }
    }
}

#[test]
fn fused_loops_equal_the_interpreter() {
    all::<Portable>();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn wide_fused_loops_equal_the_interpreter() {
    if crate::vector::has_wide_vectors() {
        all::<crate::vector::Wide>();
    }
}
