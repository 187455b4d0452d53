//! Every model specification plans at every precision, without a picked table.

mod tree;

use ipu_ir::mid::Step;
use ipu_model::lower;
use ipu_plan::{AttentionFormats, Format, PlannerPolicy, Precision, candidates};
use ipub_base::NoMemo;
use ipub_stages::SimulatedCosts;
use tree::{kernels, spec};

fn precision(dense: Format, qk: Format, pv: Format) -> Precision {
    let f16 = AttentionFormats {
        qk: Format::F16,
        pv: Format::F16,
    };
    Precision {
        embed: Format::F16,
        dense,
        attention: AttentionFormats { qk, pv },
        map: f16,
    }
}

#[test]
fn every_model_has_a_candidate() {
    let (f16, f143) = (Format::F16, Format::F143(-4));
    let (contracts, objects) = kernels();
    let costs = SimulatedCosts::new(&contracts, &objects, &NoMemo);
    let policies = [
        precision(f16, f16, f16),
        precision(f143, f16, f16),
        precision(f143, f143, f143),
    ];
    let models = [
        ("siglip-tiny", 1, 64),
        ("siglip-tiny", 2, 64),
        ("mlp-so400m", 1, 1472),
        ("attention-so400m", 1, 1472),
        ("siglip-so400m-378-1", 1, 1472),
        ("siglip-so400m-378", 1, 1472),
        ("siglip-so400m-378", 2, 1472),
    ];
    for (name, batch, tiles) in models {
        let graph = lower(&spec(name), batch).unwrap();
        for policy in &policies {
            let planner = PlannerPolicy {
                tiles,
                operand_limits: vec![400_000, 160_000, 120_000, 96_000, 72_000, 48_000],
                search_steps: 20,
            };
            let found = candidates(&graph, policy, &planner, &costs).unwrap();
            assert!(!found.is_empty(), "{name}");
            for candidate in &found {
                println!(
                    "{name} bs{batch} {:?}: estimate {} {:?}",
                    policy.attention, candidate.estimate, candidate.bounds
                );
            }
            println!("{}", toml::to_string(&found[0].recipe).unwrap());
        }
    }
}

/// Kernels of the products of an operation, in program order.
fn products(steps: &[Step], operation: &str) -> Vec<String> {
    let mut found = Vec::new();
    for step in steps {
        match step {
            Step::Compute(compute)
                if compute.operation == operation && compute.kernel.starts_with("gemm_") =>
            {
                found.push(compute.kernel.clone());
            }
            Step::Repeat { body, .. } => found.extend(products(body, operation)),
            _ => {}
        }
    }
    found
}

#[test]
fn attention_products_run_in_the_format_that_is_asked_for() {
    let (f16, f143) = (Format::F16, Format::F143(-4));
    let (contracts, objects) = kernels();
    let costs = SimulatedCosts::new(&contracts, &objects, &NoMemo);
    let graph = lower(&spec("siglip-so400m-378"), 1).unwrap();
    let planner = PlannerPolicy {
        tiles: 1472,
        operand_limits: vec![400_000],
        search_steps: 20,
    };
    for (qk, pv, kernels) in [
        (f16, f16, ["gemm_f16", "gemm_f16"]),
        (f143, f16, ["gemm_f143", "gemm_f16"]),
        (f16, f143, ["gemm_f16", "gemm_f143"]),
        (f143, f143, ["gemm_f143", "gemm_f143"]),
    ] {
        let found = candidates(&graph, &precision(f143, qk, pv), &planner, &costs).unwrap();
        let steps = &found[0].mid.steps;
        assert_eq!(products(steps, "encoder.attention"), kernels);
        assert_eq!(products(steps, "map.attention"), ["gemm_f16", "gemm_f16"]);
    }
}

#[test]
fn a_search_lowers_the_price_whatever_the_threads() {
    let (contracts, objects) = kernels();
    let graph = lower(&spec("siglip-so400m-378-1"), 1).unwrap();
    let (f16, f143) = (Format::F16, Format::F143(-4));
    let find = |search_steps, threads| {
        let planner = PlannerPolicy {
            tiles: 1472,
            operand_limits: vec![400_000],
            search_steps,
        };
        let costs = SimulatedCosts::new(&contracts, &objects, &NoMemo);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().unwrap();
        pool.install(|| candidates(&graph, &precision(f143, f16, f16), &planner, &costs).unwrap())
    };
    let (swept, searched) = (find(0, 1), find(200, 1));
    assert!(searched[0].estimate < swept[0].estimate);
    assert!(searched.iter().any(|other| other.recipe == swept[0].recipe));
    assert_eq!(searched, find(200, 3));
}
