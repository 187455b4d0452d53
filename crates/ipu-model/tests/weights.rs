//! Seeded weights, and checkpoints written and read back.

use half::{bf16, f16};
use ipu_ir::graph::{Graph, ValueDef, ValueId};
use ipu_model::{
    Checkpoint, ModelSpec, SeededWeights, WeightError, WeightSource, check_weights,
    checkpoint_tensors, export_safetensors, input_tensor, lower, param_matrix,
};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

const TINY: &str = include_str!("../../../models/specs/siglip-tiny.toml");
const WEIGHTS: SeededWeights = SeededWeights { seed: 1 };

fn tiny(batch: u32) -> Graph {
    lower(&ModelSpec::parse(TINY).unwrap(), batch).unwrap()
}

fn params(graph: &Graph) -> Vec<ValueId> {
    (0..graph.values.len() as u32)
        .map(ValueId)
        .filter(|id| matches!(graph.value(*id).def, ValueDef::Param(_)))
        .collect()
}

fn param(graph: &Graph, name: &str, weights: &dyn WeightSource) -> Vec<f32> {
    let id = params(graph)
        .into_iter()
        .find(|id| graph.value(*id).name == name)
        .unwrap();
    param_matrix(graph, id, weights).unwrap()
}

fn tensor(graph: &Graph, name: &str, weights: &dyn WeightSource) -> Vec<f32> {
    let tensors = checkpoint_tensors(graph).unwrap();
    let tensor = tensors.iter().find(|t| t.name == name).unwrap();
    let mut out = vec![0.0; tensor.elements()];
    weights.read(tensor, 0, &mut out).unwrap();
    out
}

fn exported(graph: &Graph) -> Vec<u8> {
    let mut bytes = Vec::new();
    export_safetensors(graph, &WEIGHTS, &mut bytes).unwrap();
    bytes
}

#[test]
fn fused_parameters_are_made_of_their_checkpoint_tensors() {
    let graph = tiny(2);
    let stack = |names: &[&str]| -> Vec<f32> {
        let parts = names.iter().map(|name| tensor(&graph, name, &WEIGHTS));
        parts.flatten().collect()
    };
    for part in ["weight", "bias"] {
        let fused = param(&graph, &format!("encoder.layers.1.qkv.{part}"), &WEIGHTS);
        let names =
            ["q", "k", "v"].map(|role| format!("encoder.layers.1.self_attn.{role}_proj.{part}"));
        assert_eq!(fused, stack(&names.each_ref().map(|name| name.as_str())));
        let mut map = param(&graph, &format!("head.query.{part}"), &WEIGHTS);
        map.extend(param(&graph, &format!("head.kv.{part}"), &WEIGHTS));
        assert_eq!(map, stack(&[&format!("head.attention.in_proj_{part}")]));
    }
    let probe = param(&graph, "head.probe", &WEIGHTS);
    assert_eq!(probe, stack(&["head.probe", "head.probe"]));
}

#[test]
fn patch_weights_are_read_with_channels_last() {
    let graph = tiny(1);
    let stored = tensor(&graph, "embeddings.patch_embedding.weight", &WEIGHTS);
    let packed = param(&graph, "embeddings.patch.weight", &WEIGHTS);
    let (pixels, columns) = (14 * 14, 14 * 14 * 3);
    for (row, y, x, channel) in [(0, 0, 0, 1), (5, 3, 9, 2), (127, 13, 13, 0)] {
        let pixel = y * 14 + x;
        assert_eq!(
            packed[row * columns + pixel * 3 + channel],
            stored[row * columns + channel * pixels + pixel]
        );
    }
}

#[test]
fn distributions_are_those_of_the_graph() {
    let graph = tiny(1);
    let std = |name: &str| {
        let values = param(&graph, name, &WEIGHTS);
        let sum: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
        (sum / values.len() as f64).sqrt()
    };
    let near = |name: &str, expected: f64| {
        let found = std(name);
        assert!((found / expected - 1.0).abs() < 0.2, "{name}: {found}");
    };
    near("encoder.layers.0.qkv.weight", (2.0f64 / 256.0).sqrt());
    near("encoder.layers.0.mlp_up.weight", (2.0f64 / 384.0).sqrt());
    near("encoder.layers.0.mlp_up.bias", 0.02);
    near("encoder.layers.0.ln1.bias", 0.02);
    near("embeddings.position", (1.0f64 / 128.0).sqrt());
    near("head.probe", (1.0f64 / 128.0).sqrt());
    let scale = param(&graph, "post_layernorm.scale", &WEIGHTS);
    assert!(scale.iter().all(|x| *x == 1.0));
}

#[test]
fn seeded_elements_are_fixed() {
    let graph = tiny(1);
    let weight = param(&graph, "encoder.layers.0.mlp_up.weight", &WEIGHTS);
    assert_eq!(weight[..3], [-0.07265862, 0.062489673, 0.04673465]);
    let input = input_tensor(&graph, 1, 0);
    assert_eq!(input.len(), 4 * 588);
    assert_eq!(input[..3], [0.4350586, 1.1669922, 0.020217896]);
    assert!(input.iter().all(|x| f16::from_f32(*x).to_f32() == *x));
    assert_ne!(input_tensor(&graph, 1, 1), input);
}

#[test]
fn an_exported_checkpoint_reads_back_bit_for_bit() {
    let graph = tiny(2);
    let bytes = exported(&graph);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), 48);
    let probe = file.tensor("vision_model.head.probe").unwrap();
    assert_eq!(probe.shape(), [1, 1, 128]);
    let checkpoint = Checkpoint::new(bytes).unwrap();
    check_weights(&graph, &checkpoint).unwrap();
    for id in params(&graph) {
        assert_eq!(
            param_matrix(&graph, id, &checkpoint).unwrap(),
            param_matrix(&graph, id, &WEIGHTS).unwrap(),
        );
    }
}

/// The exported file with each tensor passed through `edit`; `None` leaves it out.
fn edited(
    graph: &Graph,
    edit: impl Fn(&str, Vec<f32>) -> Option<(Dtype, Vec<usize>, Vec<u8>)>,
    name: impl Fn(&str) -> String,
) -> Vec<u8> {
    let tensors: Vec<_> = checkpoint_tensors(graph)
        .unwrap()
        .into_iter()
        .filter_map(|t| {
            let edited = edit(&t.name, tensor(graph, &t.name, &WEIGHTS))?;
            Some((name(&t.name), edited))
        })
        .collect();
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
        (name.as_str(), view)
    });
    serialize(views, None).unwrap()
}

fn shape(graph: &Graph, name: &str) -> Vec<usize> {
    let tensors = checkpoint_tensors(graph).unwrap();
    let found = tensors.iter().find(|t| t.name == name).unwrap();
    found.shape.iter().map(|extent| *extent as usize).collect()
}

#[test]
fn half_precision_files_without_a_prefix_are_read() {
    let graph = tiny(1);
    let weight = param(&graph, "head.kv.weight", &WEIGHTS);
    let f16_file = edited(
        &graph,
        |name, values| {
            let bytes = values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes());
            Some((Dtype::F16, shape(&graph, name), bytes.collect()))
        },
        str::to_owned,
    );
    let rounded: Vec<f32> = weight.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
    let checkpoint = Checkpoint::new(&f16_file).unwrap();
    assert_eq!(param(&graph, "head.kv.weight", &checkpoint), rounded);
    let bf16_file = edited(
        &graph,
        |name, values| {
            let bytes = values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes());
            Some((Dtype::BF16, shape(&graph, name), bytes.collect()))
        },
        |name| format!("vision_model.{name}"),
    );
    let rounded: Vec<f32> = weight.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    let checkpoint = Checkpoint::new(&bf16_file).unwrap();
    assert_eq!(param(&graph, "head.kv.weight", &checkpoint), rounded);
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What `check_weights` says when one tensor is replaced.
fn fault(
    replaced: &str,
    replacement: impl Fn(Vec<f32>) -> Option<(Dtype, Vec<usize>, Vec<u8>)>,
) -> WeightError {
    let graph = tiny(1);
    let file = edited(
        &graph,
        |name, values| {
            if name == replaced {
                replacement(values)
            } else {
                Some((Dtype::F32, shape(&graph, name), little_endian(&values)))
            }
        },
        str::to_owned,
    );
    check_weights(&graph, &Checkpoint::new(file).unwrap()).unwrap_err()
}

#[test]
fn faults_of_a_checkpoint_name_the_tensor() {
    let name = "encoder.layers.1.mlp.fc1.weight";
    assert_eq!(
        fault(name, |_| None).to_string(),
        "the checkpoint has no tensor `encoder.layers.1.mlp.fc1.weight` (with or without \
         `vision_model.`)"
    );
    let transposed = fault(name, |values| {
        Some((Dtype::F32, vec![128, 256], little_endian(&values)))
    });
    assert_eq!(
        transposed.to_string(),
        "tensor `encoder.layers.1.mlp.fc1.weight` has shape [128, 256], the model expects \
         [256, 128]"
    );
    let integers = fault(name, |values| {
        Some((Dtype::I32, vec![256, 128], little_endian(&values)))
    });
    assert_eq!(
        integers.to_string(),
        "tensor `encoder.layers.1.mlp.fc1.weight` holds I32; F32, F16 and BF16 can be read"
    );
}

#[test]
fn a_broken_file_is_an_error() {
    let bytes = exported(&tiny(1));
    for broken in [
        &bytes[..bytes.len() - 1],
        &bytes[..4],
        b"not a checkpoint at all",
    ] {
        assert!(matches!(
            Checkpoint::new(broken),
            Err(WeightError::Malformed(_))
        ));
    }
}

/// `cargo test --release -p ipu-model -- --ignored --nocapture full_size`
#[test]
#[ignore = "a measurement: it prints how long the full model's weights take"]
fn full_size_weights_are_generated_in_time() {
    let text = include_str!("../../../models/specs/siglip-so400m-378.toml");
    let graph = lower(&ModelSpec::parse(text).unwrap(), 1).unwrap();
    let start = std::time::Instant::now();
    let mut elements = 0;
    for id in params(&graph) {
        elements += param_matrix(&graph, id, &WEIGHTS).unwrap().len();
    }
    println!("{elements} elements in {:.2?}", start.elapsed());
}
