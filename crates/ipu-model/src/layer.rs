//! Parameters of the models: their names, shapes, checkpoint sources and distributions.
//!
//! Input: widths. Output: `(name, shape, Param)` for the builder.
//! Invariants: names are unique and never equal an operation's name; the distribution of a tensor
//! is the same whichever parameter reads it, so that fused and separate weights agree.
//! Not here: which operation reads a parameter.

use ipu_ir::graph::{Init, Param, ParamSource, SourceOrder};

use crate::spec::{CHANNELS, SiglipVision};

pub(crate) type NamedParam = (String, [u32; 2], Param);

/// Standard deviation of biases, LayerNorm biases included.
const BIAS_STD: f32 = 0.02;

/// Parameters of one encoder layer, in the order of the loop's sequences.
pub(crate) const LAYER_LEAVES: [&str; 12] = [
    "ln1.scale",
    "ln1.bias",
    "qkv.weight",
    "qkv.bias",
    "attn_out.weight",
    "attn_out.bias",
    "ln2.scale",
    "ln2.bias",
    "mlp_up.weight",
    "mlp_up.bias",
    "mlp_down.weight",
    "mlp_down.bias",
];

/// A parameter of encoder layer `layer`, by its name in [`LAYER_LEAVES`].
pub(crate) fn layer_param(leaf: &str, layer: u32, width: u32, hidden: u32) -> NamedParam {
    let name = format!("encoder.layers.{layer}.{leaf}");
    let at = |tensor: &str| format!("encoder.layers.{layer}.{tensor}");
    let qkv = |part: &str| ["q", "k", "v"].map(|role| at(&format!("self_attn.{role}_proj.{part}")));
    match leaf {
        "ln1.scale" => scale(name, at("layer_norm1.weight"), width),
        "ln1.bias" => vector(name, at("layer_norm1.bias"), width),
        "qkv.weight" => stacked(name, &qkv("weight"), width, width),
        "qkv.bias" => stacked_vector(name, &qkv("bias"), width),
        "attn_out.weight" => matrix(name, at("self_attn.out_proj.weight"), width, width),
        "attn_out.bias" => vector(name, at("self_attn.out_proj.bias"), width),
        "ln2.scale" => scale(name, at("layer_norm2.weight"), width),
        "ln2.bias" => vector(name, at("layer_norm2.bias"), width),
        "mlp_up.weight" => matrix(name, at("mlp.fc1.weight"), hidden, width),
        "mlp_up.bias" => vector(name, at("mlp.fc1.bias"), hidden),
        "mlp_down.weight" => matrix(name, at("mlp.fc2.weight"), width, hidden),
        "mlp_down.bias" => vector(name, at("mlp.fc2.bias"), width),
        _ => unreachable!("{leaf} is not a layer parameter"),
    }
}

/// Weight `[width, (y, x, channel)]` and bias of the patch embedding.
pub(crate) fn patch_params(spec: &SiglipVision) -> [NamedParam; 2] {
    let columns = spec.patch_elements();
    let source = ParamSource {
        tensor: "embeddings.patch_embedding.weight".into(),
        tensor_shape: vec![spec.width, CHANNELS, spec.patch, spec.patch],
        first_row: 0,
        rows: spec.width,
        order: SourceOrder::PatchChannelsLast {
            channels: CHANNELS,
            patch: spec.patch,
        },
    };
    let weight = Param {
        sources: vec![source],
        init: xavier(spec.width, columns),
    };
    [
        (
            "embeddings.patch.weight".into(),
            [spec.width, columns],
            weight,
        ),
        vector(
            "embeddings.patch.bias".into(),
            "embeddings.patch_embedding.bias".into(),
            spec.width,
        ),
    ]
}

/// The learned position of each token.
pub(crate) fn position_param(tokens: u32, width: u32) -> NamedParam {
    let tensor = "embeddings.position_embedding.weight".to_owned();
    let param = Param {
        sources: vec![rows_of(tensor, vec![tokens, width], 0, tokens)],
        init: learned_row(width),
    };
    ("embeddings.position".into(), [tokens, width], param)
}

/// Scale and bias of the LayerNorm after the encoder.
pub(crate) fn final_norm_params(width: u32) -> [NamedParam; 2] {
    [
        scale(
            "post_layernorm.scale".into(),
            "post_layernorm.weight".into(),
            width,
        ),
        vector(
            "post_layernorm.bias".into(),
            "post_layernorm.bias".into(),
            width,
        ),
    ]
}

/// The learned query of the MAP head: one stored row, repeated for each batch member.
pub(crate) fn probe_param(batch: u32, width: u32) -> NamedParam {
    let source = ParamSource {
        tensor: "head.probe".into(),
        tensor_shape: vec![1, 1, width],
        first_row: 0,
        rows: batch,
        order: SourceOrder::RepeatedRow,
    };
    let param = Param {
        sources: vec![source],
        init: learned_row(width),
    };
    ("head.probe".into(), [batch, width], param)
}

/// Weight and bias of a projection of the MAP head: blocks `first .. first + count` of the
/// stacked query, key and value rows.
pub(crate) fn map_projection(name: &str, first: u32, count: u32, width: u32) -> [NamedParam; 2] {
    let (first_row, rows) = (first * width, count * width);
    let weight = Param {
        sources: vec![rows_of(
            "head.attention.in_proj_weight".into(),
            vec![3 * width, width],
            first_row,
            rows,
        )],
        // Three projections of one width: each has the distribution of a square weight.
        init: xavier(width, width),
    };
    let bias = Param {
        sources: vec![rows_of(
            "head.attention.in_proj_bias".into(),
            vec![3 * width],
            first_row,
            rows,
        )],
        init: Init::Normal { std: BIAS_STD },
    };
    [
        (format!("head.{name}.weight"), [rows, width], weight),
        (format!("head.{name}.bias"), [1, rows], bias),
    ]
}

/// Weight and bias of another linear layer of the MAP head.
pub(crate) fn map_linear(name: &str, tensor: &str, rows: u32, columns: u32) -> [NamedParam; 2] {
    [
        matrix(
            format!("head.{name}.weight"),
            format!("head.{tensor}.weight"),
            rows,
            columns,
        ),
        vector(
            format!("head.{name}.bias"),
            format!("head.{tensor}.bias"),
            rows,
        ),
    ]
}

/// Scale and bias of the MAP head's LayerNorm.
pub(crate) fn map_norm_params(width: u32) -> [NamedParam; 2] {
    [
        scale(
            "head.ln.scale".into(),
            "head.layernorm.weight".into(),
            width,
        ),
        vector("head.ln.bias".into(), "head.layernorm.bias".into(), width),
    ]
}

fn matrix(name: String, tensor: String, rows: u32, columns: u32) -> NamedParam {
    stacked(name, &[tensor], rows, columns)
}

/// Matrices of one shape, one above the other.
fn stacked(name: String, tensors: &[String], rows: u32, columns: u32) -> NamedParam {
    let sources = tensors
        .iter()
        .map(|tensor| rows_of(tensor.clone(), vec![rows, columns], 0, rows))
        .collect();
    let param = Param {
        sources,
        init: xavier(rows, columns),
    };
    (name, [tensors.len() as u32 * rows, columns], param)
}

fn vector(name: String, tensor: String, length: u32) -> NamedParam {
    stacked_vector(name, &[tensor], length)
}

/// Vectors of one length, one after the other in a single row. A source counts the elements of a
/// vector as rows of one column, so that a part of it can be taken.
fn stacked_vector(name: String, tensors: &[String], length: u32) -> NamedParam {
    let param = Param {
        sources: tensors.iter().map(|t| whole_vector(t, length)).collect(),
        init: Init::Normal { std: BIAS_STD },
    };
    (name, [1, tensors.len() as u32 * length], param)
}

fn scale(name: String, tensor: String, length: u32) -> NamedParam {
    let param = Param {
        sources: vec![whole_vector(&tensor, length)],
        init: Init::One,
    };
    (name, [1, length], param)
}

fn whole_vector(tensor: &str, length: u32) -> ParamSource {
    rows_of(tensor.to_owned(), vec![length], 0, length)
}

fn rows_of(tensor: String, tensor_shape: Vec<u32>, first_row: u32, rows: u32) -> ParamSource {
    ParamSource {
        tensor,
        tensor_shape,
        first_row,
        rows,
        order: SourceOrder::Stored,
    }
}

fn xavier(fan_out: u32, fan_in: u32) -> Init {
    Init::XavierNormal { fan_in, fan_out }
}

/// A learned embedding row: variance `1 / width`.
fn learned_row(width: u32) -> Init {
    Init::Normal {
        std: (1.0 / f64::from(width).sqrt()) as f32,
    }
}
