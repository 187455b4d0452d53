//! The numbering, names and shapes of the lowered graphs.

use ipu_ir::graph::{Graph, OpKind, ValueDef, ValueId};
use ipu_model::{ModelSpec, checkpoint_tensors, lower};

const SO400M: &str = include_str!("../../../models/specs/siglip-so400m-378.toml");
const ONE_LAYER: &str = include_str!("../../../models/specs/siglip-so400m-378-1.toml");
const TINY: &str = include_str!("../../../models/specs/siglip-tiny.toml");
const MLP: &str = include_str!("../../../models/specs/mlp-so400m.toml");
const ATTENTION: &str = include_str!("../../../models/specs/attention-so400m.toml");

fn graph(text: &str, batch: u32) -> Graph {
    let graph = lower(&ModelSpec::parse(text).unwrap(), batch).unwrap();
    graph.verify().unwrap();
    graph
}

/// Name, result value and result shape of each operation.
fn listing(graph: &Graph) -> Vec<(&str, u32, &[u32])> {
    graph
        .ops
        .iter()
        .map(|op| {
            let result = op.results[0];
            (
                op.name.as_str(),
                result.0,
                graph.value(result).shape.as_slice(),
            )
        })
        .collect()
}

#[test]
fn operations_and_values_of_the_full_model_have_their_published_numbers() {
    let graph = graph(SO400M, 1);
    let expected: [(&str, u32, &[u32]); 46] = [
        ("embed.patch", 3, &[729, 1152]),
        ("embed.patch.bias", 4, &[729, 1152]),
        ("embed.position", 6, &[729, 1152]),
        ("encoder.ln1", 344, &[729, 1152]),
        ("encoder.qkv", 345, &[729, 3456]),
        ("encoder.qkv.bias", 346, &[729, 3456]),
        ("encoder.q", 347, &[729, 1152]),
        ("encoder.k", 348, &[729, 1152]),
        ("encoder.v", 349, &[729, 1152]),
        ("encoder.q.heads", 350, &[16, 729, 72]),
        ("encoder.k.heads", 351, &[16, 729, 72]),
        ("encoder.v.heads", 352, &[16, 729, 72]),
        ("encoder.attention", 353, &[16, 729, 72]),
        ("encoder.join", 354, &[729, 1152]),
        ("encoder.attn_out", 355, &[729, 1152]),
        ("encoder.attn_out.bias", 356, &[729, 1152]),
        ("encoder.attn_residual", 357, &[729, 1152]),
        ("encoder.ln2", 358, &[729, 1152]),
        ("encoder.mlp_up", 359, &[729, 4304]),
        ("encoder.mlp_up.bias", 360, &[729, 4304]),
        ("encoder.gelu", 361, &[729, 4304]),
        ("encoder.mlp_down", 362, &[729, 1152]),
        ("encoder.mlp_down.bias", 363, &[729, 1152]),
        ("encoder.mlp_residual", 364, &[729, 1152]),
        ("encoder.repeat", 365, &[729, 1152]),
        ("final_ln", 368, &[729, 1152]),
        ("map.kv", 371, &[729, 2304]),
        ("map.kv.bias", 372, &[729, 2304]),
        ("map.query", 376, &[1, 1152]),
        ("map.query.bias", 377, &[1, 1152]),
        ("map.k", 378, &[729, 1152]),
        ("map.v", 379, &[729, 1152]),
        ("map.q.heads", 380, &[16, 1, 72]),
        ("map.k.heads", 381, &[16, 729, 72]),
        ("map.v.heads", 382, &[16, 729, 72]),
        ("map.attention", 383, &[16, 1, 72]),
        ("map.join", 384, &[1, 1152]),
        ("map.attn_out", 387, &[1, 1152]),
        ("map.attn_out.bias", 388, &[1, 1152]),
        ("map.ln", 391, &[1, 1152]),
        ("map.mlp_up", 396, &[1, 4304]),
        ("map.mlp_up.bias", 397, &[1, 4304]),
        ("map.gelu", 398, &[1, 4304]),
        ("map.mlp_down", 399, &[1, 1152]),
        ("map.mlp_down.bias", 400, &[1, 1152]),
        ("map.mlp_residual", 401, &[1, 1152]),
    ];
    assert_eq!(listing(&graph), expected);
    assert_eq!(graph.top.yields, [ValueId(401)]);
    assert_eq!(graph.value(ValueId(0)).shape, [729, 588]);
}

#[test]
fn the_loop_has_one_state_and_twelve_sequences() {
    let graph = graph(SO400M, 1);
    let OpKind::Repeat {
        count,
        carried,
        iterated,
        body,
    } = &graph.ops[24].kind
    else {
        panic!("operation 24 is the loop");
    };
    assert_eq!((*count, carried.as_slice()), (27, [ValueId(6)].as_slice()));
    let members: Vec<u32> = iterated.iter().flatten().map(|member| member.0).collect();
    assert_eq!(members, (7..331).collect::<Vec<u32>>());
    assert_eq!(iterated.len(), 12);
    let args: Vec<u32> = body.args.iter().map(|arg| arg.0).collect();
    assert_eq!(args, (331..344).collect::<Vec<u32>>());
    assert_eq!(body.yields, [ValueId(364)]);
    let ops: Vec<u32> = body.ops.iter().map(|op| op.0).collect();
    assert_eq!(ops, (3..24).collect::<Vec<u32>>());
    assert_eq!(
        graph.value(iterated[2][3]).name,
        "encoder.layers.3.qkv.weight"
    );
    assert_eq!(graph.value(body.args[3]).name, "encoder.repeat.qkv.weight");
}

#[test]
fn ids_do_not_depend_on_the_batch_size() {
    let (one, two) = (graph(SO400M, 1), graph(SO400M, 2));
    let ids = |graph: &Graph| -> Vec<(String, u32)> {
        let listed = listing(graph).into_iter();
        listed.map(|(name, id, _)| (name.to_owned(), id)).collect()
    };
    assert_eq!(ids(&one), ids(&two));
    let shape = |name: &str| {
        let op = two.op(two.op_named(name).unwrap());
        two.value(op.results[0]).shape.clone()
    };
    assert_eq!(shape("encoder.attention"), [32, 729, 72]);
    assert_eq!(shape("map.attention"), [32, 1, 72]);
    assert_eq!(shape("map.mlp_residual"), [2, 1152]);
}

#[test]
fn a_single_layer_has_no_loop() {
    let (many, one) = (graph(SO400M, 1), graph(ONE_LAYER, 1));
    let mut names: Vec<&str> = listing(&many).iter().map(|(name, ..)| *name).collect();
    names.remove(24);
    let found: Vec<&str> = listing(&one).iter().map(|(name, ..)| *name).collect();
    assert_eq!(found, names);
    assert_eq!(one.ops[3].results[0], ValueId(19));
    assert_eq!(one.op_named("final_ln").unwrap().0, 24);
}

#[test]
fn the_checkpoint_of_the_full_model_has_448_tensors() {
    let graph = graph(SO400M, 2);
    let tensors = checkpoint_tensors(&graph).unwrap();
    assert_eq!(tensors.len(), 448);
    let elements: usize = tensors.iter().map(|tensor| tensor.elements()).sum();
    assert_eq!(elements, 428_225_600);
    let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    for name in [
        "embeddings.patch_embedding.weight",
        "embeddings.position_embedding.weight",
        "encoder.layers.26.layer_norm2.bias",
        "encoder.layers.0.self_attn.k_proj.weight",
        "encoder.layers.0.mlp.fc1.weight",
        "post_layernorm.weight",
        "head.probe",
        "head.attention.in_proj_weight",
        "head.attention.in_proj_bias",
        "head.attention.out_proj.bias",
        "head.layernorm.weight",
        "head.mlp.fc2.bias",
    ] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn operator_models_use_the_names_of_the_encoder() {
    let names = |text| {
        let graph = graph(text, 1);
        let names: Vec<String> = graph.ops.iter().map(|op| op.name.clone()).collect();
        names.join(" ")
    };
    assert_eq!(
        names(MLP),
        "encoder.mlp_up encoder.mlp_up.bias encoder.gelu encoder.mlp_down encoder.mlp_down.bias"
    );
    assert_eq!(
        names(ATTENTION),
        "encoder.qkv encoder.qkv.bias encoder.q encoder.k encoder.v encoder.q.heads \
         encoder.k.heads encoder.v.heads encoder.attention encoder.join encoder.attn_out \
         encoder.attn_out.bias"
    );
}

#[test]
fn without_the_head_the_output_is_the_normalised_tokens() {
    let graph = graph(&TINY.replace("map_head = true", "map_head = false"), 2);
    assert_eq!(graph.ops.last().unwrap().name, "final_ln");
    assert_eq!(graph.value(graph.top.yields[0]).shape, [8, 128]);
}

#[test]
fn a_graph_survives_serialisation() {
    let graph = graph(TINY, 1);
    let text = serde_json::to_string(&graph).unwrap();
    assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph);
    let params = |graph: &Graph| {
        let values = graph.values.iter();
        values
            .filter(|value| matches!(value.def, ValueDef::Param(_)))
            .count()
    };
    assert_eq!(params(&graph), 2 + 1 + 24 + 2 + 2 + 1 + 2 + 2 + 2 + 4);
}
