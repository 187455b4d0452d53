//! Pointwise, layernorm, softmax and merge kernels against scalar references, case by case.

mod support;

use std::collections::BTreeMap;

use half::f16;
use support::judged::{Alias, Outputs};
use support::{Data, Kernel, Layout, Random, Scalars, family, report};

type Inputs = BTreeMap<&'static str, Data>;
type Judge = Box<dyn Fn(&Outputs)>;
/// Inputs of a shape, and a judge of its outputs.
type Shape = fn(&Scalars, &mut Random) -> (Inputs, Judge);

/// A number of a closed range.
type Draw<'a> = &'a mut dyn FnMut(i64, i64) -> i64;
type Drawn = Vec<(&'static str, i64)>;
type Aliases = &'static [Alias];

/// A kernel under test: family, name, outputs that may stand on inputs, shape, and a legal shape
/// made of random numbers.
struct Subject {
    family: &'static str,
    name: &'static str,
    aliases: Aliases,
    shape: Shape,
    random: fn(Draw) -> Drawn,
}

fn find<'a>(kernels: &'a [Kernel], name: &str) -> &'a Kernel {
    let kernel = kernels.iter().find(|kernel| kernel.contract.name == name);
    kernel.expect("kernel")
}

/// Run every case of a kernel in every layout; cycles are the same in all.
fn run(kernel: &Kernel, aliases: Aliases, shape: Shape) {
    let name = &kernel.contract.name;
    let plain = kernel.layouts().into_iter().map(|layout| (layout, None));
    let in_place = aliases
        .iter()
        .map(|&alias| (Layout::DenseRegion1, Some(alias)));
    let layouts: Vec<(Layout, Option<Alias>)> = plain.chain(in_place).collect();
    for case in &kernel.contract.cases {
        let mix = |h: u64, v: &i64| h.wrapping_mul(31).wrapping_add(*v as u64);
        let mut random = Random::new(case.args.values().fold(7, mix));
        let (inputs, judge) = shape(&case.args, &mut random);
        let mut first = None;
        for &(layout, alias) in &layouts {
            let (outputs, result) = kernel.outputs(layout, alias, &case.args, &inputs);
            judge(&outputs);
            let first = first.get_or_insert_with(|| result.clone());
            assert_eq!(*first, result, "{name} {} {layout:?}", case.name);
        }
        report(kernel, case, &first.expect("a layout"));
    }
    println!("{name}: {} words of code", kernel.code_words());
}

fn get(scalars: &Scalars, name: &str) -> usize {
    scalars[name] as usize
}

/// Round to F16; beyond the maximum, saturate.
fn narrow(value: f64) -> f16 {
    let half = f16::from_f64(value);
    match half.is_infinite() && value.is_finite() {
        true if value < 0.0 => f16::MIN,
        true => f16::MAX,
        false => half,
    }
}

/// Distance of F16 numbers near `value`.
fn ulp(value: f64) -> f64 {
    let exponent = libm::log2(value.abs().max(f64::from(f16::MIN_POSITIVE))).floor();
    libm::exp2(exponent - 10.0)
}

fn data(values: &[f16]) -> Data {
    Data::halves(values.iter().map(|value| value.to_bits()))
}

fn read_halves(bytes: &[u8]) -> Vec<f16> {
    let half = |two: &[u8]| f16::from_le_bytes([two[0], two[1]]);
    bytes.chunks(2).map(half).collect()
}

fn read_singles(bytes: &[u8]) -> Vec<f32> {
    let single = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
    bytes.chunks(4).map(single).collect()
}

/// About normal with this spread.
fn normal(random: &mut Random, spread: f32) -> f32 {
    (0..6).map(|_| random.unit()).sum::<f32>() / 1.414 * spread
}

fn halves(random: &mut Random, count: usize, spread: f32) -> Vec<f16> {
    (0..count)
        .map(|_| f16::from_f32(normal(random, spread)))
        .collect()
}

fn named<const N: usize>(pairs: [(&'static str, &[f16]); N]) -> Inputs {
    pairs
        .into_iter()
        .map(|(name, values)| (name, data(values)))
        .collect()
}

/// a, b and the sums of a[outer][rows][width] and b[outer][width].
fn columns(scalars: &Scalars, random: &mut Random) -> (Vec<f16>, Vec<f16>, Vec<f16>) {
    let (outer, rows, width) = (
        get(scalars, "outer"),
        get(scalars, "rows"),
        get(scalars, "width"),
    );
    let a = halves(random, outer * rows * width, 3.0);
    let b = halves(random, outer * width, 1.0);
    let sum = |i: usize| {
        let bias = b[i / (rows * width) * width + i % width];
        narrow(a[i].to_f64() + bias.to_f64())
    };
    let sums = (0..a.len()).map(sum).collect();
    (a, b, sums)
}

fn gelu(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + libm::tanh(u))
}

fn judge_gelu(x: &[f16], out: &[f16]) {
    assert_eq!(x.len(), out.len());
    for (x, y) in x.iter().zip(out) {
        let reference = gelu(x.to_f64());
        let error = (y.to_f64() - reference).abs();
        assert!(
            error <= f64::max(1e-3, 2.0 * ulp(reference)),
            "gelu({x}) = {y}, not {reference}"
        );
        assert!(x.to_f64() < 8.0 || x == y, "gelu({x}) = {y}");
        assert!(x.to_f64() > -8.0 || y.to_f64() == 0.0, "gelu({x}) = {y}");
    }
}

fn add(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let count = get(scalars, "count");
    let (a, b) = (halves(random, count, 20.0), halves(random, count, 1.0));
    let inputs = named([("a", &a), ("b", &b)]);
    let judge = move |outputs: &Outputs| {
        for (i, y) in read_halves(&outputs["out"]).into_iter().enumerate() {
            assert_eq!(y, narrow(a[i].to_f64() + b[i].to_f64()), "{i}");
        }
    };
    (inputs, Box::new(judge))
}

fn add_columns(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let (a, b, sums) = columns(scalars, random);
    let judge = move |outputs: &Outputs| assert_eq!(read_halves(&outputs["out"]), sums);
    (named([("a", &a), ("b", &b)]), Box::new(judge))
}

fn bias_gelu(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let (a, b, sums) = columns(scalars, random);
    let judge = move |outputs: &Outputs| judge_gelu(&sums, &read_halves(&outputs["out"]));
    (named([("a", &a), ("b", &b)]), Box::new(judge))
}

/// 65,536 values are all finite ones.
fn gelu_dense(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let count = get(scalars, "count");
    let a: Vec<f16> = match count {
        65536 => (0..=u16::MAX)
            .map(f16::from_bits)
            .map(|x| if x.is_finite() { x } else { f16::ZERO })
            .collect(),
        _ => halves(random, count, 3.0),
    };
    let inputs = named([("a", &a)]);
    let judge = move |outputs: &Outputs| judge_gelu(&a, &read_halves(&outputs["out"]));
    (inputs, Box::new(judge))
}

fn layernorm(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let (rows, columns) = (get(scalars, "rows"), get(scalars, "columns"));
    let epsilon = f64::from(f32::from_bits(get(scalars, "epsilon") as u32));
    // Rows of different spread, some far from zero.
    let mut x = Vec::new();
    for r in 0..rows {
        let (centre, spread) = ([0.0, 30.0, -5.0][r % 3], [1.0, 0.5, 40.0][r % 3]);
        x.extend((0..columns).map(|_| f16::from_f32(centre + normal(random, spread))));
    }
    let (scale, bias) = (halves(random, columns, 1.0), halves(random, columns, 0.5));
    let inputs = named([("x", &x), ("scale", &scale), ("bias", &bias)]);
    let judge = move |outputs: &Outputs| {
        let out = read_halves(&outputs["out"]);
        for (x, out) in x.chunks(columns).zip(out.chunks(columns)) {
            let count = columns as f64;
            let mean = x.iter().map(|x| x.to_f64()).sum::<f64>() / count;
            let square = |x: &f16| (x.to_f64() - mean) * (x.to_f64() - mean);
            let deviation = (x.iter().map(square).sum::<f64>() / count + epsilon).sqrt();
            for (c, y) in out.iter().enumerate() {
                let product = (x[c].to_f64() - mean) / deviation * scale[c].to_f64();
                let reference = product + bias[c].to_f64();
                let error = (y.to_f64() - reference).abs();
                // n, product and sum round once each, and F32 leaves a little.
                let bound = (2.0 * product.abs() + reference.abs()) / 2048.0 + 2e-5;
                assert!(error <= bound, "column {c}: {y}, not {reference}");
            }
        }
    };
    (inputs, Box::new(judge))
}

/// F143 code nearest to a value that is not negative, ties to even, saturated at 240.
fn f143_of_positive(value: f64) -> u8 {
    let exponent = libm::log2(value.max(1e-9)).floor().clamp(-7.0, 7.0);
    let step = libm::exp2(exponent - 3.0);
    let code = 8.0 * (exponent + 7.0) + libm::rint(value / step);
    code.min(127.0) as u8
}

struct Softmax {
    rows: usize,
    valid: usize,
    keys: usize,
    scale: f32,
    /// By row and key.
    scores: Vec<f16>,
}

impl Softmax {
    fn new(scalars: &Scalars, random: &mut Random) -> Softmax {
        let (rows, keys) = (get(scalars, "rows"), get(scalars, "keys"));
        let valid = get(scalars, "valid_keys");
        let scale = f32::from_bits(get(scalars, "scale") as u32);
        let mut scores = halves(random, rows * keys, 20.0);
        for r in 0..rows {
            scores[r * keys + valid..(r + 1) * keys].fill(f16::NAN);
            // A maximum in every place of a row, and one row of negative scores.
            scores[r * keys + r * 7 % valid] = f16::from_f32(90.0);
            if r == 1 {
                scores[keys..keys + valid]
                    .iter_mut()
                    .for_each(|s| *s = f16::from_bits(s.to_bits() | 0x8000));
            }
        }
        Softmax {
            rows,
            valid,
            keys,
            scale,
            scores,
        }
    }

    /// Scores in Panels(16); padded words without a valid key are undefined.
    fn panels(&self) -> Data {
        let order = |i: usize| {
            let (panel, r, lane) = (i / (16 * self.rows), i / 16 % self.rows, i % 16);
            (r, 16 * panel + lane)
        };
        let values: Vec<f16> = (0..self.rows * self.keys)
            .map(order)
            .map(|(r, k)| self.scores[r * self.keys + k])
            .collect();
        let mut data = data(&values);
        data.holes = (0..values.len())
            .step_by(2)
            .filter(|&i| order(i).1 >= self.valid)
            .map(|i| 2 * i as u32..2 * i as u32 + 4)
            .collect();
        data
    }

    /// The exponential of row r and key k by the F16 steps of the kernel.
    fn exponential(&self, r: usize, k: usize) -> f16 {
        let row = &self.scores[r * self.keys..][..self.valid];
        let max = row
            .iter()
            .map(|s| s.to_f64())
            .fold(f64::NEG_INFINITY, f64::max);
        let scale = f16::from_f32(self.scale).to_f64();
        let argument = narrow(-scale * narrow(max - row[k].to_f64()).to_f64());
        let value = narrow(libm::exp(argument.to_f64()));
        // How far the steps are from the exact value.
        let exact = f64::from(self.scale) * (row[k].to_f64() - max);
        let error = (value.to_f64() - libm::exp(exact)).abs();
        let bound = libm::exp(exact) * (3.0 * exact.abs() + 1.0) / 2048.0 * 1.01 + 3e-8;
        assert!(error <= bound, "exp({exact}) = {value}");
        value
    }

    fn judge_sums(&self, sums: &[f32]) {
        for (r, &sum) in sums.iter().enumerate() {
            let wanted: f64 = (0..self.valid)
                .map(|k| self.exponential(r, k).to_f64())
                .sum();
            assert!(
                (f64::from(sum) / wanted - 1.0).abs() < 1e-6,
                "sum of row {r}: {sum}"
            );
        }
    }
}

fn softmax_f16(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let softmax = Softmax::new(scalars, random);
    let inputs = BTreeMap::from([("scores", softmax.panels())]);
    let judge = move |outputs: &Outputs| {
        let out = read_halves(&outputs["out"]);
        for (r, k) in (0..softmax.rows).flat_map(|r| (0..softmax.keys).map(move |k| (r, k))) {
            let y = out[k / 16 * softmax.rows * 16 + r * 16 + k % 16];
            let wanted = match k < softmax.valid {
                true => softmax.exponential(r, k),
                false => f16::ZERO,
            };
            assert_eq!(
                y.to_bits(),
                wanted.to_bits(),
                "row {r} key {k}: {y}, not {wanted}"
            );
        }
        softmax.judge_sums(&read_singles(&outputs["sums"]));
    };
    (inputs, Box::new(judge))
}

fn softmax_f143(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let softmax = Softmax::new(scalars, random);
    let inputs = BTreeMap::from([("scores", softmax.panels())]);
    let unit = libm::exp2(-(scalars["out_scale"] as f64));
    let judge = move |outputs: &Outputs| {
        let out = &outputs["out"];
        for (r, k) in (0..softmax.rows).flat_map(|r| (0..softmax.keys).map(move |k| (r, k))) {
            let y = out[k / 32 * softmax.rows * 32 + r * 32 + k % 32];
            let wanted = match k < softmax.valid {
                true => f143_of_positive(softmax.exponential(r, k).to_f64() * unit),
                false => 0,
            };
            assert_eq!(y, wanted, "row {r} key {k}");
        }
        softmax.judge_sums(&read_singles(&outputs["sums"]));
    };
    (inputs, Box::new(judge))
}

fn merge(scalars: &Scalars, random: &mut Random) -> (Inputs, Judge) {
    let (rows, panels) = (get(scalars, "rows"), get(scalars, "panels"));
    let (count, stride) = (get(scalars, "count"), get(scalars, "stride"));
    let piece = 16 * rows * panels;
    let partials = halves(random, (count - 1) * stride + piece, 50.0);
    let sums: Vec<f32> = (0..rows).map(|_| 300.0 + 290.0 * random.unit()).collect();
    let mut inputs = named([("partials", &partials)]);
    inputs.insert("sums", Data::words(sums.iter().map(|sum| sum.to_bits())));
    let judge = move |outputs: &Outputs| {
        for (i, y) in read_halves(&outputs["out"]).into_iter().enumerate() {
            let total: f64 = (0..count).map(|p| partials[p * stride + i].to_f64()).sum();
            let reference = total / f64::from(sums[i / 16 % rows]);
            let error = (y.to_f64() - reference).abs();
            assert!(error <= 0.501 * ulp(reference), "{i}: {y}, not {reference}");
        }
    };
    (inputs, Box::new(judge))
}

const SUBJECTS: [Subject; 8] = [
    Subject {
        family: "pointwise",
        name: "add_f16",
        aliases: &[("out", "a"), ("out", "b")],
        shape: add,
        random: |draw| vec![("count", 4 * draw(1, 400))],
    },
    Subject {
        family: "pointwise",
        name: "add_columns_f16",
        aliases: &[("out", "a")],
        shape: add_columns,
        random: random_columns,
    },
    Subject {
        family: "pointwise",
        name: "bias_gelu_f16",
        aliases: &[("out", "a")],
        shape: bias_gelu,
        random: random_columns,
    },
    Subject {
        family: "pointwise",
        name: "gelu_f16",
        aliases: &[("out", "a")],
        shape: gelu_dense,
        random: |draw| vec![("count", 4 * draw(1, 200))],
    },
    Subject {
        family: "layernorm",
        name: "layernorm_f16",
        aliases: &[("out", "x")],
        shape: layernorm,
        random: |draw| {
            vec![
                ("rows", draw(1, 23)),
                ("columns", 8 * draw(1, 40)),
                ("epsilon", i64::from(1e-6f32.to_bits())),
            ]
        },
    },
    Subject {
        family: "softmax",
        name: "softmax_f16",
        aliases: &[("out", "scores")],
        shape: softmax_f16,
        random: |draw| random_softmax(draw, 16),
    },
    Subject {
        family: "softmax",
        name: "softmax_f143",
        aliases: &[],
        shape: softmax_f143,
        random: |draw| {
            let mut shape = random_softmax(draw, 32);
            shape.push(("out_scale", draw(-8, 2)));
            shape
        },
    },
    Subject {
        family: "softmax",
        name: "attention_merge_f16",
        aliases: &[("out", "partials")],
        shape: merge,
        random: |draw| {
            let (rows, panels) = (draw(1, 20), draw(1, 6));
            let stride = 16 * rows * panels + 4 * draw(0, 3);
            vec![
                ("rows", rows),
                ("panels", panels),
                ("count", draw(1, 5)),
                ("stride", stride),
            ]
        },
    },
];

fn random_columns(draw: Draw) -> Drawn {
    let width = 4 * [1, 4, 4, 18, draw(1, 60)][draw(0, 4) as usize];
    vec![
        ("outer", draw(1, 7)),
        ("rows", draw(1, 40)),
        ("width", width),
    ]
}

fn random_softmax(draw: Draw, panel: i64) -> Drawn {
    let keys = panel * draw(1, 30);
    let valid = keys - draw(0, i64::min(keys - 1, 4 * panel));
    let scale = i64::from(0.117_851_13_f32.to_bits());
    vec![
        ("rows", draw(1, 14)),
        ("valid_keys", valid),
        ("keys", keys),
        ("scale", scale),
    ]
}

/// The cases of the contracts, with a table of cycles.
fn cases(name: &str) {
    let kernels = family(name);
    for subject in SUBJECTS.iter().filter(|subject| subject.family == name) {
        run(find(&kernels, subject.name), subject.aliases, subject.shape);
    }
}

#[test]
fn pointwise_cases() {
    cases("pointwise");
}

#[test]
fn layernorm_cases() {
    cases("layernorm");
}

#[test]
fn softmax_cases() {
    cases("softmax");
}

#[test]
fn random_shapes() {
    for subject in &SUBJECTS {
        let kernels = family(subject.family);
        let kernel = find(&kernels, subject.name);
        let mut random = Random::new(subject.name.len() as u64);
        for _ in 0..40 {
            let mut draw = |low: i64, high: i64| low + i64::from(random.next()) % (high - low + 1);
            let scalars: Scalars = (subject.random)(&mut draw)
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            let (inputs, judge) = (subject.shape)(&scalars, &mut random);
            let outputs = kernel
                .outputs(Layout::DenseRegion1, None, &scalars, &inputs)
                .0;
            judge(&outputs);
        }
    }
}
