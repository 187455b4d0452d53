//! GEMM, reduction, cast, packing and copy kernels against scalar references, case by case.

mod support;

use std::collections::BTreeMap;

use half::f16;
use ipu_sim::CallResult;
use support::{Data, Kernel, Layout, Random, Scalars, family, report};

type Named = BTreeMap<&'static str, Data>;
/// Inputs and expected outputs of a shape.
type Reference = fn(&Args<'_>, &mut Random) -> (Named, Named);

struct Args<'a>(&'a Scalars);

impl Args<'_> {
    fn get(&self, name: &str) -> usize {
        self.signed(name) as usize
    }

    fn signed(&self, name: &str) -> i64 {
        self.0[name]
    }

    fn scale(&self) -> i32 {
        self.signed("scale") as i32
    }
}

/// Run every case of a kernel in every layout; cycles are the same in all.
fn run(kernels: &[Kernel], name: &str, reference: Reference) {
    let kernel = kernels
        .iter()
        .find(|kernel| kernel.contract.name == name)
        .expect("kernel");
    for case in &kernel.contract.cases {
        let mut random = Random::new(
            case.args
                .values()
                .fold(7u64, |h, v| h.wrapping_mul(31).wrapping_add(*v as u64)),
        );
        let (inputs, expected) = reference(&Args(&case.args), &mut random);
        let results: Vec<CallResult> = kernel
            .layouts()
            .into_iter()
            .map(|layout| kernel.check(layout, &case.args, &inputs, &expected))
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
        report(kernel, case, &results[0]);
    }
    println!("{name}: {} words of code", kernel.code_words());
}

// Numbers.

fn narrow(value: f32) -> u16 {
    let code = f16::from_f32(value).to_bits();
    // Overflow saturates.
    if code & 0x7fff == 0x7c00 && value.is_finite() {
        return code - 1;
    }
    code
}

fn wide(code: u16) -> f32 {
    f16::from_bits(code).to_f32()
}

fn pow2(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Value of an F143 code.
fn f143(code: u8) -> f64 {
    if code == 0x80 {
        return f64::NAN;
    }
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match exponent {
        0 => mantissa * pow2(-10),
        _ => (8.0 + mantissa) * pow2(exponent - 11),
    };
    if code & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// The nearest F143 code, ties to the even code, saturating, without a negative zero.
fn to_f143(value: f64) -> u8 {
    if value.is_nan() {
        return 0x80;
    }
    let distance = |code: &u8| (f143(*code) - value.abs()).abs();
    let best = (0..0x80)
        .min_by(|a, b| {
            let order = distance(a).partial_cmp(&distance(b)).expect("numbers");
            order.then((a & 1).cmp(&(b & 1)))
        })
        .expect("codes");
    let best = if value.is_infinite() { 0x7f } else { best };
    if value < 0.0 && best != 0 {
        best | 0x80
    } else {
        best
    }
}

/// F16 values over the range of F143 around a scale: ties, tiny and overflowing values, NaN.
fn cast_source(random: &mut Random, count: usize, scale: i32) -> Vec<u16> {
    let value = |i: usize| match i % 7 {
        0 => {
            let code = (random.next() & 0x7f) as u8;
            let next = f143(code + 1);
            let middle = if next.is_nan() {
                250.0
            } else {
                (f143(code) + next) / 2.0
            };
            narrow((middle * pow2(scale)) as f32)
        }
        1 => (random.next() & 0xffff) as u16,
        _ => {
            let exponent = (random.next() % 20) as i32 - 11 + scale;
            narrow(random.unit() * pow2(exponent) as f32)
        }
    };
    let clean = |code: u16| {
        if code & 0x7c00 == 0x7c00 && code & 0x3ff != 0 {
            0x7e00
        } else {
            code
        }
    };
    (0..count).map(value).map(clean).collect()
}

fn code_of(code: u16, scale: i32) -> u8 {
    to_f143(f64::from(wide(code)) * pow2(-scale))
}

fn random_codes(random: &mut Random, count: usize) -> Vec<u8> {
    let code = |_| match random.next() as u8 {
        0x80 => 0,
        code => code,
    };
    (0..count).map(code).collect()
}

// GEMM.

/// `left` and `weight` are `[rows][inner]` and `[columns][inner]`; a panel has `g` inner values.
fn gemm(args: &Args<'_>, g: usize, left: &[f32], weight: &[f32]) -> Data {
    let (rows, inner, columns) = (args.get("rows"), args.get("inner"), args.get("columns"));
    let mut out = vec![0u16; rows * columns];
    for r in 0..rows {
        for c in 0..columns {
            let (x, w) = (&left[r * inner..][..inner], &weight[c * inner..][..inner]);
            let panels = x.chunks(g).zip(w.chunks(g));
            let partial = panels.fold(0u16, |partial, (x, w)| {
                let products = x.iter().zip(w);
                narrow(products.fold(wide(partial), |sum, (x, w)| x.mul_add(*w, sum)))
            });
            out[(c / 16 * rows + r) * 16 + c % 16] = partial;
        }
    }
    Data::halves(out)
}

/// Values in `Panels(g)` order.
fn panels<T: Copy + Default>(values: &[T], rows: usize, g: usize) -> Vec<T> {
    let columns = values.len() / rows;
    let mut out = vec![T::default(); values.len()];
    for (i, &value) in values.iter().enumerate() {
        let (r, c) = (i / columns, i % columns);
        out[c / g * rows * g + r * g + c % g] = value;
    }
    out
}

/// Values in `Blocks(g)` order.
fn blocks<T: Copy + Default>(values: &[T], rows: usize, g: usize) -> Vec<T> {
    let columns = values.len() / rows;
    let mut out = vec![T::default(); values.len()];
    for (i, &value) in values.iter().enumerate() {
        let (r, c) = (i / columns, i % columns);
        out[((r / 16) * (columns / g) + c / g) * 16 * g + (r % 16) * g + c % g] = value;
    }
    out
}

/// A left operand in its units of 32 bytes; what lies between them is holes.
fn left_units(args: &Args<'_>, codes: &[u8]) -> Data {
    let (row_step, panel_step) = (args.get("row_words") / 4, args.get("panel_units"));
    let row_bytes = codes.len() / args.get("rows");
    let place = |at: usize| at / row_bytes * row_step + at % row_bytes / 32 * panel_step;
    let last = place(codes.len() - 1);
    let mut data = Data::new(vec![0; 32 * (last + 1)]);
    let mut used = vec![false; last + 1];
    for (i, unit) in codes.chunks(32).enumerate() {
        let at = place(32 * i);
        assert!(!std::mem::replace(&mut used[at], true), "units overlap");
        data.bytes[32 * at..32 * at + 32].copy_from_slice(unit);
    }
    let hole = |at: usize| 32 * at as u32..32 * at as u32 + 32;
    data.holes = (0..last).filter(|&at| !used[at]).map(hole).collect();
    data
}

fn gemm_f16(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, inner, columns) = (args.get("rows"), args.get("inner"), args.get("columns"));
    let mut codes = |count| -> Vec<u16> { (0..count).map(|_| narrow(random.unit())).collect() };
    let (left, weight) = (codes(rows * inner), codes(columns * inner));
    let widen = |codes: &[u16]| -> Vec<f32> { codes.iter().map(|&code| wide(code)).collect() };
    let out = gemm(args, 16, &widen(&left), &widen(&weight));
    let inputs = Named::from([
        ("left", left_units(args, &Data::halves(left).bytes)),
        ("weight", Data::halves(blocks(&weight, columns, 16))),
    ]);
    (inputs, Named::from([("out", out)]))
}

fn gemm_f143(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, inner, columns) = (args.get("rows"), args.get("inner"), args.get("columns"));
    let left = random_codes(random, rows * inner);
    let weight = random_codes(random, columns * inner);
    let scale = pow2(args.scale());
    let x: Vec<f32> = left.iter().map(|&code| f143(code) as f32).collect();
    let w: Vec<f32> = weight
        .iter()
        .map(|&code| (f143(code) * scale) as f32)
        .collect();
    let out = gemm(args, 32, &x, &w);
    let inputs = Named::from([
        ("left", left_units(args, &left)),
        ("weight", Data::new(blocks(&weight, columns, 32))),
    ]);
    (inputs, Named::from([("out", out)]))
}

#[test]
fn gemm_kernels() {
    let kernels = family("gemm");
    run(&kernels, "gemm_f16", gemm_f16);
    run(&kernels, "gemm_f143", gemm_f143);
}

/// Random shapes in panels, in row-major order and with other steps.
#[test]
fn random_gemm_shapes() {
    for kernel in &family("gemm") {
        let f143 = kernel.contract.name == "gemm_f143";
        let mut random = Random::new(u64::from(f143));
        for n in 0..60 {
            let mut draw = |low: i64, high: i64| low + i64::from(random.next()) % (high - low + 1);
            let (rows, panels) = (draw(1, 40), draw(1, 5));
            let steps = match n % 3 {
                0 => (1, rows),
                1 => (panels, 1),
                _ => (draw(0, 4) + panels * 2, 2),
            };
            let scalars = Scalars::from([
                ("rows".to_owned(), rows),
                ("inner".to_owned(), panels * if f143 { 32 } else { 16 }),
                ("columns".to_owned(), 16 * draw(1, 3)),
                ("row_words".to_owned(), 4 * steps.0),
                ("panel_units".to_owned(), steps.1),
                ("scale".to_owned(), draw(-8, 0)),
            ]);
            let reference = if f143 { gemm_f143 } else { gemm_f16 };
            let (inputs, expected) = reference(&Args(&scalars), &mut random);
            for layout in [Layout::DenseRegion0, Layout::DenseRegion1] {
                kernel.check(layout, &scalars, &inputs, &expected);
            }
        }
    }
}

// Reduction.

fn reduce_f16(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (elements, count) = (args.get("elements"), args.get("count"));
    let stride = args.get("stride");
    let length = stride * (count - 1) + elements;
    let mut value = |i: usize| match i % 11 {
        0 => 0x8000,
        1 => narrow(random.unit() * 65_000.0),
        _ => narrow(random.unit() * 8.0),
    };
    let partials: Vec<u16> = (0..length).map(&mut value).collect();
    let sum = |e: usize| {
        let column = (1..count).map(|p| partials[p * stride + e]);
        column.fold(partials[e], |sum, code| narrow(wide(sum) + wide(code)))
    };
    let out = Data::halves((0..elements).map(sum));
    let partials = Data::halves(partials.iter().copied()).rows(2 * elements, 2 * stride);
    (
        Named::from([("partials", partials)]),
        Named::from([("out", out)]),
    )
}

#[test]
fn reduce_kernels() {
    run(&family("reduce"), "reduce_f16", reduce_f16);
}

// Casts.

fn named(source: Data, out: Data) -> (Named, Named) {
    (
        Named::from([("source", source)]),
        Named::from([("out", out)]),
    )
}

fn cast_f16_f143(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let source = cast_source(random, args.get("count"), args.scale());
    let out = source.iter().map(|&code| code_of(code, args.scale()));
    let out = Data::new(out.collect());
    named(Data::halves(source), out)
}

fn cast_panels_f16_f143(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, columns) = (args.get("rows"), 32 * args.get("panels"));
    let source = cast_source(random, rows * columns, args.scale());
    let codes: Vec<u8> = source
        .iter()
        .map(|&code| code_of(code, args.scale()))
        .collect();
    named(
        Data::halves(panels(&source, rows, 16)),
        Data::new(panels(&codes, rows, 32)),
    )
}

/// Row-major halves with a pitch; the gaps are holes.
fn pitched(values: &[u16], columns: usize, pitch: usize) -> Data {
    let mut all: Vec<u16> = Vec::new();
    for row in values.chunks(columns) {
        all.extend_from_slice(row);
        all.resize(all.len() + pitch - columns, 0);
    }
    all.truncate(all.len() - (pitch - columns));
    Data::halves(all).rows(2 * columns, 2 * pitch)
}

fn cast_rows_f16_f143(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, columns) = (args.get("rows"), args.get("columns"));
    let source = cast_source(random, rows * columns, args.scale());
    let codes: Vec<u8> = source
        .iter()
        .map(|&code| code_of(code, args.scale()))
        .collect();
    named(
        pitched(&source, columns, args.get("pitch")),
        Data::new(panels(&codes, rows, 32)),
    )
}

fn cast_f143_f16(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let source: Vec<u8> = (0..args.get("count"))
        .map(|_| random.next() as u8)
        .collect();
    let value = |code: u8| match code {
        0x80 => 0x7e00,
        code => narrow((f143(code) * pow2(args.scale())) as f32),
    };
    let out = Data::halves(source.iter().map(|&code| value(code)));
    named(Data::new(source), out)
}

#[test]
fn cast_kernels() {
    let kernels = family("cast");
    run(&kernels, "cast_f16_f143", cast_f16_f143);
    run(&kernels, "cast_panels_f16_f143", cast_panels_f16_f143);
    run(&kernels, "cast_rows_f16_f143", cast_rows_f16_f143);
    run(&kernels, "cast_f143_f16", cast_f143_f16);
}

// Packing.

fn any_halves(random: &mut Random, count: usize) -> Vec<u16> {
    (0..count).map(|_| random.next() as u16).collect()
}

fn pack_rows_f16(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, columns) = (args.get("rows"), args.get("columns"));
    let source = any_halves(random, rows * columns);
    let out = Data::halves(panels(&source, rows, 16));
    named(pitched(&source, columns, args.get("pitch")), out)
}

fn unpack_panels_f16(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, columns) = (args.get("rows"), args.get("columns"));
    let values = any_halves(random, rows * columns);
    let source = Data::halves(panels(&values, rows, 16));
    named(source, pitched(&values, columns, args.get("pitch")))
}

fn transpose_f16(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let source = any_halves(random, 256 * args.get("blocks"));
    let element = |i: usize| source[i / 256 * 256 + i % 16 * 16 + i / 16 % 16];
    let out = Data::halves((0..source.len()).map(element));
    named(Data::halves(source.iter().copied()), out)
}

fn transpose_f16_f143(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let source = cast_source(random, 512 * args.get("pairs"), args.scale());
    let element = |i: usize| source[i / 512 * 512 + i % 32 * 16 + i / 32 % 16];
    let codes = (0..source.len()).map(|i| code_of(element(i), args.scale()));
    let out = Data::new(codes.collect());
    named(Data::halves(source.iter().copied()), out)
}

#[test]
fn pack_kernels() {
    let kernels = family("pack");
    run(&kernels, "pack_rows_f16", pack_rows_f16);
    run(&kernels, "unpack_panels_f16", unpack_panels_f16);
    run(&kernels, "transpose_f16", transpose_f16);
    run(&kernels, "transpose_f16_f143", transpose_f16_f143);
}

// Copies.

fn any_words(random: &mut Random, count: usize) -> Vec<u32> {
    (0..count).map(|_| random.next()).collect()
}

fn fill_u32(args: &Args<'_>, _: &mut Random) -> (Named, Named) {
    let value = args.signed("value") as u32;
    let out = Data::words((0..args.get("count")).map(|_| value));
    (Named::new(), Named::from([("out", out)]))
}

fn copy_u64(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let source = Data::words(any_words(random, 2 * args.get("count")));
    named(source.clone(), source)
}

fn copy_strided(args: &Args<'_>, random: &mut Random) -> (Named, Named) {
    let (rows, units) = (args.get("rows"), args.get("units"));
    let values = any_words(random, 2 * rows * units);
    let strided = |stride: usize| {
        let mut all: Vec<u32> = Vec::new();
        for row in values.chunks(2 * units) {
            all.extend_from_slice(row);
            all.resize(all.len() + 2 * (stride - units), 0);
        }
        all.truncate(all.len() - 2 * (stride - units));
        Data::words(all).rows(8 * units, 8 * stride)
    };
    named(
        strided(args.get("source_stride")),
        strided(args.get("out_stride")),
    )
}

#[test]
fn copy_kernels() {
    let kernels = family("copy");
    run(&kernels, "fill_u32", fill_u32);
    run(&kernels, "copy_u64", copy_u64);
    run(&kernels, "copy_strided", copy_strided);
}
