//! Model specification to graph.
//!
//! Input: a [`ModelSpec`], a batch size. Output: a [`Graph`] in its fixed construction order.
//! Invariants: ids do not depend on the batch size; a tower with one layer has no `Repeat`, and
//! its body reads the parameters of layer 0; operator models use the names of the encoder.
//! Not here: precision, layouts, and every other decision.

use ipu_ir::graph::{Graph, ValueId};

use crate::builder::Builder;
use crate::layer;
use crate::spec::{Attention, Mlp, ModelSpec, SiglipVision, SpecError};

/// The graph of a model for `batch` members.
pub fn lower(spec: &ModelSpec, batch: u32) -> Result<Graph, SpecError> {
    spec.check_batch(batch)?;
    Ok(match spec {
        ModelSpec::SiglipVision(spec) => siglip(spec, batch),
        ModelSpec::Mlp(spec) => mlp(spec, batch),
        ModelSpec::Attention(spec) => attention(spec, batch),
    })
}

fn siglip(spec: &SiglipVision, batch: u32) -> Graph {
    let mut b = Builder::new(&spec.name, batch);
    let rows = batch * spec.tokens();
    let image = b.input("image", rows, spec.patch_elements());
    let patch = layer::patch_params(spec).map(|param| b.param(param));
    let embedded = b.linear("embed.patch", image, patch);
    let position = b.param(layer::position_param(spec.tokens(), spec.width));
    let x = b.add("embed.position", embedded, position);
    let x = encoder(&mut b, spec, x);
    let norm = layer::final_norm_params(spec.width).map(|param| b.param(param));
    let x = b.layer_norm("final_ln", x, norm, spec.epsilon);
    let output = if spec.map_head {
        map_head(&mut b, spec, x)
    } else {
        x
    };
    b.finish(output)
}

/// All layers: one loop body, or for a single layer the body alone.
fn encoder(b: &mut Builder, spec: &SiglipVision, x: ValueId) -> ValueId {
    let sequences: Vec<Vec<ValueId>> = layer::LAYER_LEAVES
        .iter()
        .map(|leaf| {
            (0..spec.layers)
                .map(|index| b.param(layer::layer_param(leaf, index, spec.width, spec.mlp)))
                .collect()
        })
        .collect();
    if spec.layers == 1 {
        let params: Vec<ValueId> = sequences.into_iter().flatten().collect();
        return encoder_layer(b, spec, x, &params);
    }
    b.repeat(
        "encoder.repeat",
        x,
        sequences,
        &layer::LAYER_LEAVES,
        |b, x, params| encoder_layer(b, spec, x, params),
    )
}

/// One pre-norm layer; `params` in the order of [`layer::LAYER_LEAVES`].
fn encoder_layer(b: &mut Builder, spec: &SiglipVision, x: ValueId, params: &[ValueId]) -> ValueId {
    let pair = |index: usize| [params[index], params[index + 1]];
    let normed = b.layer_norm("encoder.ln1", x, pair(0), spec.epsilon);
    let attended = self_attention(b, normed, spec.heads, pair(2), pair(4));
    let x = b.add("encoder.attn_residual", x, attended);
    let normed = b.layer_norm("encoder.ln2", x, pair(6), spec.epsilon);
    let hidden = mlp_block(b, "encoder", normed, pair(8), pair(10));
    b.add("encoder.mlp_residual", x, hidden)
}

/// Fused QKV projection, attention and output projection.
fn self_attention(
    b: &mut Builder,
    x: ValueId,
    heads: u32,
    qkv: [ValueId; 2],
    out: [ValueId; 2],
) -> ValueId {
    let fused = b.linear("encoder.qkv", x, qkv);
    let width = b.shape(fused)[1] / 3;
    let mut index = 0;
    let parts = ["q", "k", "v"].map(|role| {
        index += 1;
        b.slice(format!("encoder.{role}"), fused, index - 1, width)
    });
    let joined = heads_attention(b, "encoder", parts, heads);
    b.linear("encoder.attn_out", joined, out)
}

/// Split queries, keys and values into heads, attend, and join the heads.
fn heads_attention(b: &mut Builder, at: &str, [q, k, v]: [ValueId; 3], heads: u32) -> ValueId {
    let split = [("q", q), ("k", k), ("v", v)]
        .map(|(role, x)| b.split_heads(format!("{at}.{role}.heads"), x, heads));
    let attended = b.attention(format!("{at}.attention"), split);
    b.join_heads(format!("{at}.join"), attended)
}

fn mlp_block(
    b: &mut Builder,
    at: &str,
    x: ValueId,
    up: [ValueId; 2],
    down: [ValueId; 2],
) -> ValueId {
    let hidden = b.linear(&format!("{at}.mlp_up"), x, up);
    let hidden = b.gelu(format!("{at}.gelu"), hidden);
    b.linear(&format!("{at}.mlp_down"), hidden, down)
}

/// Pooling by attention of one learned query for each batch member over its tokens. The residual
/// is around the MLP only.
fn map_head(b: &mut Builder, spec: &SiglipVision, x: ValueId) -> ValueId {
    let (width, hidden) = (spec.width, spec.mlp);
    let kv = layer::map_projection("kv", 1, 2, width).map(|param| b.param(param));
    let kv = b.linear("map.kv", x, kv);
    let probe = layer::probe_param(b.batch(), width);
    let probe = b.param(probe);
    let query = layer::map_projection("query", 0, 1, width).map(|param| b.param(param));
    let q = b.linear("map.query", probe, query);
    let k = b.slice("map.k".into(), kv, 0, width);
    let v = b.slice("map.v".into(), kv, 1, width);
    let joined = heads_attention(b, "map", [q, k, v], spec.heads);
    let out = layer::map_linear("attn_out", "attention.out_proj", width, width);
    let out = out.map(|param| b.param(param));
    let h = b.linear("map.attn_out", joined, out);
    let norm = layer::map_norm_params(width).map(|param| b.param(param));
    let normed = b.layer_norm("map.ln", h, norm, spec.epsilon);
    let up = layer::map_linear("mlp_up", "mlp.fc1", hidden, width).map(|param| b.param(param));
    let down = layer::map_linear("mlp_down", "mlp.fc2", width, hidden).map(|param| b.param(param));
    let mlp = mlp_block(b, "map", normed, up, down);
    b.add("map.mlp_residual", h, mlp)
}

/// Parameters of layer 0, by their names in [`layer::LAYER_LEAVES`].
fn layer_pair(b: &mut Builder, linear: &str, width: u32, hidden: u32) -> [ValueId; 2] {
    ["weight", "bias"].map(|part| {
        b.param(layer::layer_param(
            &format!("{linear}.{part}"),
            0,
            width,
            hidden,
        ))
    })
}

fn mlp(spec: &Mlp, batch: u32) -> Graph {
    let mut b = Builder::new(&spec.name, batch);
    let x = b.input("x", batch * spec.rows, spec.width);
    let up = layer_pair(&mut b, "mlp_up", spec.width, spec.hidden);
    let down = layer_pair(&mut b, "mlp_down", spec.width, spec.hidden);
    let output = mlp_block(&mut b, "encoder", x, up, down);
    b.finish(output)
}

fn attention(spec: &Attention, batch: u32) -> Graph {
    let mut b = Builder::new(&spec.name, batch);
    let x = b.input("x", batch * spec.tokens, spec.width);
    let qkv = layer_pair(&mut b, "qkv", spec.width, spec.width);
    let out = layer_pair(&mut b, "attn_out", spec.width, spec.width);
    let output = self_attention(&mut b, x, spec.heads, qkv, out);
    b.finish(output)
}
