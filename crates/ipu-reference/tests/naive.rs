//! The evaluator against a plain F64 evaluator that shares nothing with it.

use std::collections::BTreeMap;

use ipu_ir::graph::{Graph, OpId, OpKind, Region, ValueDef, ValueId};
use ipu_model::{ModelSpec, SeededWeights, input_tensor, lower, param_matrix};
use ipu_reference::{
    EvaluateError, Operand, Quantise, compare, evaluate, evaluate_quantised, kernel_identity,
};

const TINY: &str = include_str!("../../../models/specs/siglip-tiny.toml");
const MLP: &str = "kind = \"mlp\"\nname = \"m\"\nrows = 9\nwidth = 40\nhidden = 1100\n";
const ATTENTION: &str = "kind = \"attention\"\nname = \"a\"\ntokens = 13\nwidth = 24\nheads = 3\n";
const WEIGHTS: SeededWeights = SeededWeights { seed: 3 };

fn graph(text: &str, batch: u32) -> Graph {
    lower(&ModelSpec::parse(text).unwrap(), batch).unwrap()
}

struct Naive<'a> {
    graph: &'a Graph,
    known: BTreeMap<ValueId, Vec<f64>>,
}

impl Naive<'_> {
    fn get(&self, id: ValueId) -> Vec<f64> {
        if let ValueDef::Param(_) = self.graph.value(id).def {
            let matrix = param_matrix(self.graph, id, &WEIGHTS).unwrap();
            return matrix.iter().map(|x| f64::from(*x)).collect();
        }
        self.known[&id].clone()
    }

    fn dim(&self, id: ValueId, axis: usize) -> usize {
        self.graph.value(id).shape[axis] as usize
    }

    fn region(&mut self, region: &Region) {
        for id in &region.ops {
            self.op(*id);
        }
    }

    fn op(&mut self, id: OpId) {
        let graph = self.graph;
        let result = graph.op(id).results[0];
        let out = match &graph.op(id).kind {
            OpKind::Gemm { x, w } => {
                let (inner, a, b) = (self.dim(*x, 1), self.get(*x), self.get(*w));
                let dot = |r: &[f64], c: &[f64]| r.iter().zip(c).map(|(r, c)| r * c).sum::<f64>();
                a.chunks(inner)
                    .flat_map(|r| b.chunks(inner).map(move |c| dot(r, c)))
                    .collect()
            }
            OpKind::Bias { x, b } | OpKind::Add { a: x, b } => {
                let b = self.get(*b);
                let x = self.get(*x).into_iter().enumerate();
                x.map(|(i, x)| x + b[i % b.len()]).collect()
            }
            OpKind::LayerNorm {
                x,
                scale,
                bias,
                epsilon,
            } => {
                let (s, b) = (self.get(*scale), self.get(*bias));
                let n = s.len();
                let mut out = Vec::new();
                for row in self.get(*x).chunks(n) {
                    let mean = row.iter().sum::<f64>() / n as f64;
                    let var = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
                    let dev = (var + f64::from(*epsilon)).sqrt();
                    out.extend((0..n).map(|i| (row[i] - mean) / dev * s[i] + b[i]));
                }
                out
            }
            OpKind::SliceColumns { x, first, columns } => {
                let (n, first, columns) = (self.dim(*x, 1), *first as usize, *columns as usize);
                let x = self.get(*x);
                let rows = x.chunks(n);
                rows.flat_map(|row| row[first..first + columns].to_vec())
                    .collect()
            }
            OpKind::SplitHeads { x, heads } => self.split(*x, *heads as usize, result),
            OpKind::JoinHeads { x } => self.join(*x),
            OpKind::Attention { q, k, v, scale } => self.attention(*q, *k, *v, *scale),
            OpKind::Gelu { x } => {
                let root = (2.0 / std::f64::consts::PI).sqrt();
                let x = self.get(*x).into_iter();
                x.map(|x| 0.5 * x * (1.0 + (root * (x + 0.044715 * x * x * x)).tanh()))
                    .collect()
            }
            kind @ OpKind::Repeat { .. } => self.repeat(kind),
        };
        self.known.insert(result, out);
    }

    fn repeat(&mut self, kind: &OpKind) -> Vec<f64> {
        let OpKind::Repeat {
            count,
            carried,
            iterated,
            body,
        } = kind
        else {
            panic!("a loop");
        };
        let mut state = self.get(carried[0]);
        for i in 0..*count as usize {
            self.known.insert(body.args[0], state);
            for (arg, sequence) in body.args[1..].iter().zip(iterated) {
                let member = self.get(sequence[i]);
                self.known.insert(*arg, member);
            }
            self.region(body);
            state = self.get(body.yields[0]);
        }
        state
    }

    fn split(&self, x: ValueId, heads: usize, result: ValueId) -> Vec<f64> {
        let [groups, tokens, depth] = [0, 1, 2].map(|axis| self.dim(result, axis));
        let x = self.get(x);
        let mut out = Vec::new();
        for g in 0..groups {
            for t in 0..tokens {
                let row = g / heads * tokens + t;
                let at = row * heads * depth + g % heads * depth;
                out.extend(&x[at..at + depth]);
            }
        }
        out
    }

    fn join(&self, x: ValueId) -> Vec<f64> {
        let [groups, tokens, depth] = [0, 1, 2].map(|axis| self.dim(x, axis));
        let batch = self.graph.batch as usize;
        let heads = groups / batch;
        let x = self.get(x);
        let mut out = Vec::new();
        for row in 0..batch * tokens {
            for head in 0..heads {
                let group = row / tokens * heads + head;
                let at = (group * tokens + row % tokens) * depth;
                out.extend(&x[at..at + depth]);
            }
        }
        out
    }

    fn attention(&self, q: ValueId, k: ValueId, v: ValueId, scale: f32) -> Vec<f64> {
        let (groups, queries, depth) = (self.dim(q, 0), self.dim(q, 1), self.dim(q, 2));
        let keys = self.dim(k, 1);
        let (q, k, v) = (self.get(q), self.get(k), self.get(v));
        let mut out = vec![0.0; q.len()];
        for g in 0..groups {
            for row in g * queries..(g + 1) * queries {
                let weights: Vec<f64> = (g * keys..(g + 1) * keys)
                    .map(|key| {
                        let dot = (0..depth).map(|d| q[row * depth + d] * k[key * depth + d]);
                        (f64::from(scale) * dot.sum::<f64>()).exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for (key, weight) in weights.iter().enumerate() {
                    for d in 0..depth {
                        out[row * depth + d] += weight / total * v[(g * keys + key) * depth + d];
                    }
                }
            }
        }
        out
    }
}

fn naive(graph: &Graph, input: &[f32]) -> Vec<f32> {
    let mut naive = Naive {
        graph,
        known: BTreeMap::new(),
    };
    let input = input.iter().map(|x| f64::from(*x)).collect();
    naive.known.insert(graph.top.args[0], input);
    naive.region(&graph.top);
    let out = naive.get(graph.top.yields[0]);
    out.iter().map(|x| *x as f32).collect()
}

fn fp32(graph: &Graph, input: &[f32]) -> Vec<f32> {
    let params = |value| param_matrix(graph, value, &WEIGHTS);
    let inputs = [input.to_vec()];
    evaluate(graph, &params, &inputs).unwrap().remove(0)
}

fn quantised(
    graph: &Graph,
    input: &[f32],
    policy: &dyn Fn(&str, Operand) -> Option<Quantise>,
) -> Vec<f32> {
    let params = |value| param_matrix(graph, value, &WEIGHTS);
    let inputs = [input.to_vec()];
    let outputs = evaluate_quantised(graph, &params, &inputs, policy);
    outputs.unwrap().remove(0)
}

/// Models, batch sizes, columns of a row of the output.
fn cases() -> Vec<(Graph, usize)> {
    let one_layer = TINY.replace("layers = 2", "layers = 1");
    let no_head = TINY.replace("map_head = true", "map_head = false");
    vec![
        (graph(TINY, 1), 128),
        (graph(TINY, 2), 128),
        (graph(&one_layer, 2), 128),
        (graph(&no_head, 2), 128),
        (graph(MLP, 2), 40),
        (graph(ATTENTION, 2), 24),
    ]
}

#[test]
fn fp32_agrees_with_f64() {
    for (graph, columns) in cases() {
        let input = input_tensor(&graph, 5, 0);
        let metrics = compare(&fp32(&graph, &input), &naive(&graph, &input), columns);
        assert!(metrics.finite());
        assert!(metrics.cosine_min > 1.0 - 1e-10, "{}", graph.name);
        assert!(metrics.max_abs_error < 2e-5, "{metrics:?}");
    }
}

#[test]
fn outputs_do_not_depend_on_the_number_of_threads() {
    // Large enough for the products themselves to be shared out.
    let text = ATTENTION.replace("13", "301").replace("24", "96");
    let graph = graph(&text, 1);
    let input = input_tensor(&graph, 5, 0);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let out = pool.unwrap().install(|| fp32(&graph, &input));
        out.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(3));
}

#[test]
fn device_precision_is_near_and_holds_f16_numbers() {
    for (graph, columns) in cases() {
        let input = input_tensor(&graph, 5, 0);
        let exact = naive(&graph, &input);
        let half = quantised(&graph, &input, &|_, _| None);
        let mut rounded = half.clone();
        Quantise::F16.apply(&mut rounded);
        assert_eq!(half, rounded);
        let half = compare(&half, &exact, columns);
        assert!(half.finite() && half.cosine_min > 0.99999, "{half:?}");
        let eight = quantised(&graph, &input, &|_, _| {
            Some(Quantise::F143 { scale_exp: -4 })
        });
        let eight = compare(&eight, &exact, columns);
        assert!(eight.finite() && eight.cosine_min > 0.98, "{eight:?}");
        assert!(eight.cosine_min < half.cosine_min);
    }
}

#[test]
fn the_policy_is_asked_for_each_product_operand() {
    let graph = graph(ATTENTION, 1);
    let asked = std::cell::RefCell::new(Vec::new());
    let input = input_tensor(&graph, 5, 0);
    quantised(&graph, &input, &|name, role| {
        asked.borrow_mut().push((name.to_owned(), role));
        None
    });
    let mut asked = asked.into_inner();
    asked.sort();
    let expected = [
        ("encoder.attention", Operand::Query),
        ("encoder.attention", Operand::Key),
        ("encoder.attention", Operand::Value),
        ("encoder.attention", Operand::Probabilities),
        ("encoder.attn_out", Operand::Activation),
        ("encoder.attn_out", Operand::Weight),
        ("encoder.qkv", Operand::Activation),
        ("encoder.qkv", Operand::Weight),
    ];
    assert_eq!(asked, expected.map(|(name, role)| (name.to_owned(), role)));
}

#[test]
fn a_weight_is_rounded_once() {
    // 1 + 2^-4 + 2^-12 is nearest to 1.125 in F143; by way of F16 it would be a tie, and 1.
    let graph = graph(
        "kind = \"mlp\"\nname = \"m\"\nrows = 1\nwidth = 1\nhidden = 1\n",
        1,
    );
    let weight = 1.0 + 2f32.powi(-4) + 2f32.powi(-12);
    let params = |value: ValueId| {
        let name = &graph.value(value).name;
        Ok(vec![if name.ends_with("weight") {
            weight
        } else {
            0.0
        }])
    };
    let policy = |name: &str, role| {
        let up = name == "encoder.mlp_up" && role == Operand::Weight;
        up.then_some(Quantise::F143 { scale_exp: 0 })
    };
    let out = evaluate_quantised(&graph, &params, &[vec![1.0]], &policy).unwrap();
    let by_hand = {
        let x = 1.125f64;
        let root = (2.0 / std::f64::consts::PI).sqrt();
        let gelu = 0.5 * x * (1.0 + (root * (x + 0.044715 * x * x * x)).tanh());
        gelu * (1.0 + 2f64.powi(-4))
    };
    assert!((f64::from(out[0][0]) - by_hand).abs() < 1e-3, "{out:?}");
}

#[test]
fn wrong_inputs_are_errors() {
    let graph = graph(MLP, 1);
    let params = |value| param_matrix(&graph, value, &WEIGHTS);
    assert!(matches!(
        evaluate(&graph, &params, &[]),
        Err(EvaluateError::Inputs {
            expected: 1,
            found: 0
        })
    ));
    let error = evaluate(&graph, &params, &[vec![0.0; 3]]).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 360 elements, 3 were given");
    let short = |_: ValueId| Ok(vec![0.0]);
    let error = evaluate(&graph, &short, &[vec![0.0; 360]]).unwrap_err();
    assert!(matches!(error, EvaluateError::Length { .. }));
}

#[test]
fn the_identity_names_the_kernel() {
    assert!(kernel_identity().starts_with("matrixmultiply-0.3 f32 "));
}

/// `cargo test --release -p ipu-reference -- --ignored --nocapture full_size`
#[test]
#[ignore = "a measurement: it prints how long the full model takes"]
fn full_size_model_is_evaluated_in_time() {
    let graph = graph(
        include_str!("../../../models/specs/siglip-so400m-378.toml"),
        1,
    );
    let input = input_tensor(&graph, 5, 0);
    let start = std::time::Instant::now();
    let exact = fp32(&graph, &input);
    println!("FP32: {:.2?}, weights included", start.elapsed());
    for (label, format) in [
        ("F16", None),
        ("F143", Some(Quantise::F143 { scale_exp: -4 })),
    ] {
        let start = std::time::Instant::now();
        let encoder_products = |name: &str, role: Operand| {
            let projection = matches!(role, Operand::Activation | Operand::Weight);
            format.filter(|_| projection && name != "embed.patch")
        };
        let found = quantised(&graph, &input, &encoder_products);
        println!("{label}: {:.2?}", start.elapsed());
        println!("{:?}", compare(&found, &exact, 1152));
    }
}
