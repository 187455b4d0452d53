//! Products against the interpreter.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::link::{Placed, link};
use ipu_isa::Mode;
use ipu_package::SegmentKind;

use super::*;
use crate::code::{Block, CodeMap, LineKind};
use crate::matrix::Coefficients;
use crate::numeric::Portable;
use crate::worker::Launch;

const CODE: u32 = 0x5c000;
const LEFT: u32 = 0x88000;
const OUT: u32 = 0x98000;

/// The words of a kernel's code.
fn code(name: &str) -> Vec<u32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../kernels/gemm")
        .join(format!("{name}.S"));
    let text = std::fs::read_to_string(&path).unwrap();
    let source = Source { name, text: &text };
    let assembly = assemble(source, &Options::default()).unwrap();
    let placed = Placed {
        object: &assembly.object,
        addresses: assembly.object.addresses_from(CODE),
    };
    let linked = link(&[placed], &BTreeMap::new(), SRAM_BASE).unwrap();
    let mut segments = linked.segments.iter().filter(|s| !s.bytes.is_empty());
    let segment = segments.next().unwrap();
    assert_eq!(segment.address, CODE as _);
    let (words, _) = segment.bytes.as_chunks();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn block(words: &[u32]) -> Block {
    Block::new(CODE, SegmentKind::Kernel, words.to_vec())
}

struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0.rotate_left(13)
    }

    /// Mostly moderate values as F16 and as bytes, some special ones.
    fn code(&mut self) -> u32 {
        let mut one = || match self.next() {
            bits if bits & 0x3ff == 0 => 0x7c00,
            bits if bits & 0x3ff == 1 => 0x0003,
            bits => (bits >> 10 & 0x8fff) + 0x3000,
        };
        one() | one() << 16
    }
}

struct State {
    w: Context,
    memory: Memory,
    coefficients: Coefficients,
}

/// Where things stand.
#[derive(Clone, Copy, Debug)]
struct Layout {
    rows: u32,
    left: u32,
    /// Bytes from row to row of left.
    stride: u32,
    out: u32,
    /// Undefined from this word after the rows on.
    undefined: u32,
}

fn setup(random: &mut Random, layout: Layout) -> State {
    let mut w = Context::default();
    let mut memory = Memory::default();
    let mut coefficients = Coefficients::default();
    for entry in 0..64 {
        let value = u64::from(random.code()) | u64::from(random.code()) << 32;
        coefficients.set(entry, value, false);
    }
    let words = 8 * layout.rows + layout.undefined;
    let data: Vec<u32> = (0..words).map(|_| random.code()).collect();
    let _ = memory.write_words(layout.out, &data);
    for row in 0..layout.rows {
        // Nothing between the rows is defined.
        let data: Vec<u32> = (0..8).map(|_| random.code()).collect();
        let _ = memory.write_words(layout.left + layout.stride * row, &data);
    }
    for register in 0..14 {
        w.a[register] = random.code();
        w.m[register] = random.code();
        w.a_taint |= (random.next() & 1) << register;
    }
    let offset = random.next() & 0xfff8;
    w.m[2] = layout.left;
    w.m[3] = layout.left.wrapping_add(layout.stride + 16);
    w.m[4] = layout.out;
    w.m[5] = layout.rows.wrapping_sub(2);
    w.m[6] = offset;
    w.m[9] = layout.out.wrapping_add(32);
    w.m[10] = layout.stride;
    w.m[11] = w.m[11] << 10 | (layout.stride / 8).wrapping_sub(3) & 0x3ff;
    w.m[13] = layout.left.wrapping_sub(offset);
    w.a[0] = CLEAR_ACCUMULATORS;
    w.a_taint &= !1;
    w.fp_nfmt = random.next() & 3;
    w.fp_scl = (random.next() & 31) as i32 - 20;
    w.fp_ctl = (random.next() & 1) << 20;
    w.fp_sts = random.next();
    w.matrix.results_taint = random.next() as u16;
    w.matrix.partials_at = 8;
    State {
        w,
        memory,
        coefficients,
    }
}

fn bits(values: &[f32; LANES]) -> [u32; LANES] {
    // Bits of a NaN that stays F32 may differ.
    values.map(|value| if value.is_nan() { 1 } else { value.to_bits() })
}

fn compare(fused: &State, plain: &State, at: &str) {
    let (a, b) = (&fused.w, &plain.w);
    assert_eq!((a.m, a.m_taint), (b.m, b.m_taint), "{at}");
    assert_eq!((a.a, a.a_taint), (b.a, b.a_taint), "{at}");
    assert_eq!(a.fp_sts, b.fp_sts, "{at}");
    let (a, b) = (&a.matrix, &b.matrix);
    assert_eq!(bits(&a.acc), bits(&b.acc), "{at}: accumulators");
    assert_eq!(bits(&a.partials), bits(&b.partials), "{at}: partials");
    assert_eq!(bits(&a.results), bits(&b.results), "{at}: results");
    assert_eq!(a.acc_taint, b.acc_taint, "{at}");
    assert_eq!(a.partials_taint, b.partials_taint, "{at}");
    assert_eq!(a.results_taint, b.results_taint, "{at}");
    assert_eq!(a.partials_at, b.partials_at, "{at}");
    assert_eq!(a.results_at, b.results_at, "{at}");
    assert!(fused.memory == plain.memory, "{at}: memory");
}

/// Run a plan and the interpreter from equal states: whether the plan allowed it.
fn both<V: Lanes>(words: &[u32], line: usize, layout: Layout, seed: u32) -> bool {
    let at = format!("line {line} {layout:x?} seed {seed}");
    let (known, plain) = (block(words), block(words).without_products());
    let lines = known.lines(Mode::Worker);
    let LineKind::Product(number) = lines[line].kind else {
        panic!("{at}");
    };
    let mut fused = setup(&mut Random(seed), layout);
    let mut state = setup(&mut Random(seed), layout);
    let mut shared = Shared {
        memory: &mut fused.memory,
        coefficients: &mut fused.coefficients,
        recorder: None,
        tracer: None,
    };
    let plan = known.product(number).unwrap();
    let issues = V::product(plan, &mut fused.w, &mut shared);
    let code = CodeMap::new(vec![Arc::new(plain)]);
    let launch = Launch {
        code: &code,
        index: 0,
        entry: CODE + 4 * line as u32,
        start: 0,
    };
    if issues.is_none() {
        // Nothing is touched.
        compare(&fused, &state, &at);
        return false;
    }
    let mut shared = Shared {
        memory: &mut state.memory,
        coefficients: &mut state.coefficients,
        recorder: None,
        tracer: None,
    };
    let done = launch.interpret::<true, Portable>(&mut state.w, &mut shared);
    let done = done.unwrap_or_else(|fault| panic!("{at}: {:?}", fault.kind));
    assert_eq!(issues, Some(done.issues), "{at}");
    compare(&fused, &state, &at);
    true
}

fn products<V: Lanes>() {
    for name in ["gemm_f143", "gemm_f16"] {
        let words = code(name);
        let known = block(&words);
        let lines = known.lines(Mode::Worker);
        let starts: Vec<usize> = (0..lines.len())
            .filter(|&i| matches!(lines[i].kind, LineKind::Product(_)))
            .collect();
        assert_eq!(starts.len(), 2, "{name}");
        for &line in &starts {
            let mut seed = 1;
            for rows in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 40] {
                for undefined in [14, 9, 6, 3, 1, 0] {
                    for (left, out) in [(LEFT, OUT), (0x60008, OUT + 16), (0xa0008, LEFT)] {
                        seed += 1;
                        let layout = Layout {
                            rows,
                            left,
                            stride: [32, 144, 1152][seed as usize / 3 % 3],
                            out,
                            undefined,
                        };
                        let allowed = both::<V>(&words, line, layout, seed);
                        // One row is no loop.
                        assert_eq!(allowed, rows > 1, "{layout:x?}");
                    }
                }
                // Odd alignment, overlap, a port for two, region 0, and the end of memory: a
                // plan may refuse any of these, and must where the interpreter faults.
                for (left, out) in [
                    (LEFT + 4, OUT),
                    (OUT + 8 * rows, OUT),
                    (OUT - 16 * rows - 8, OUT),
                    (LEFT, 0x60000),
                    (0xe7fe0 - 32 * rows, OUT),
                ] {
                    seed += 1;
                    let layout = Layout {
                        rows,
                        left,
                        stride: [32, 48, 24, 136, 16][seed as usize % 5],
                        out,
                        undefined: 16,
                    };
                    both_or_fault::<V>(&words, line, layout, seed);
                }
            }
        }
    }
}

/// As [`both`], where the interpreter may fault: then the plan must refuse.
fn both_or_fault<V: Lanes>(words: &[u32], line: usize, layout: Layout, seed: u32) {
    let mut state = setup(&mut Random(seed), layout);
    let code = CodeMap::new(vec![Arc::new(block(words).without_products())]);
    let launch = Launch {
        code: &code,
        index: 0,
        entry: CODE + 4 * line as u32,
        start: 0,
    };
    let mut shared = Shared {
        memory: &mut state.memory,
        coefficients: &mut state.coefficients,
        recorder: None,
        tracer: None,
    };
    let faults = launch
        .interpret::<true, Portable>(&mut state.w, &mut shared)
        .is_err();
    let allowed = both::<V>(words, line, layout, seed);
    assert!(!(faults && allowed), "{layout:x?}");
}

#[test]
fn a_product_is_what_the_interpreter_does() {
    products::<Portable>();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_wide_product_is_what_the_interpreter_does() {
    if crate::vector::has_wide_vectors() {
        products::<crate::vector::Wide>();
    }
}

#[test]
fn undefined_and_unusual_operands_are_left_to_the_interpreter() {
    let words = code("gemm_f143");
    let known = block(&words);
    let lines = known.lines(Mode::Worker);
    let refused = |change: fn(&mut State)| {
        let layout = Layout {
            rows: 5,
            left: LEFT,
            stride: 160,
            out: OUT,
            undefined: 16,
        };
        let mut state = setup(&mut Random(3), layout);
        change(&mut state);
        let mut shared = Shared {
            memory: &mut state.memory,
            coefficients: &mut state.coefficients,
            recorder: None,
            tracer: None,
        };
        let plan = lines.iter().rev().find_map(|line| match line.kind {
            LineKind::Product(number) => known.product(number),
            _ => None,
        });
        Portable::product(plan.unwrap(), &mut state.w, &mut shared).is_none()
    };
    assert!(!refused(|_| {}));
    assert!(refused(|state| state.w.m_taint |= 1 << 5));
    assert!(refused(|state| state.w.m[9] += 8));
    assert!(refused(|state| state.w.m[5] = 0x10000));
    assert!(refused(|state| state.w.m_taint |= 1 << 11));
    assert!(refused(|state| state.w.m[11] += 2));
    assert!(refused(|state| state.w.a[0] = 0));
    assert!(refused(|state| state.w.a_taint |= 1));
    assert!(refused(|state| state.coefficients.set(5, 0, true)));
    assert!(refused(|state| state.memory.poison(LEFT + 164, 1).unwrap()));
    assert!(refused(|state| state.memory.poison(OUT + 156, 1).unwrap()));
}
