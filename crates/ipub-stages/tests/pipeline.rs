//! From a model specification to outputs of the simulated device, pass by pass, without the engine.

mod tree;

use std::collections::BTreeMap;

use ipu_ir::graph::ValueId;
use ipu_ir::program::Reservations;
use ipu_model::lower;
use ipu_package::Package;
use ipu_plan::{AttentionFormats, Format, PlannerPolicy, Precision, candidates};
use ipu_sim::{Invocation, Session};
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

fn invoke(session: &mut Session, input: &[f32]) -> Invocation {
    let result = session.invoke(&mut |_| Some(input.to_vec()));
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Another input takes the same cycles, the first one again gives the same bytes, and a run without
/// data counts the same.
fn check_repeats(
    package: &Package,
    session: &mut Session,
    [first, other]: [&[f32]; 2],
    result: &Invocation,
) {
    let between = invoke(session, other);
    assert_eq!(
        (between.cycles, &between.parts),
        (result.cycles, &result.parts)
    );
    assert!(between.outputs != result.outputs);
    assert_eq!(&invoke(session, first), result);
    let mut timed = Session::without_data(package).unwrap();
    timed.initialize(&mut |_| None).unwrap();
    assert_eq!(timed.invoke(&mut |_| None).unwrap().parts, result.parts);
}

fn run(model: &str, batch: u32, tiles: u32, precision: Precision) -> (f64, u64) {
    let graph = lower(&spec(model), batch).unwrap();
    let (contracts, objects) = kernels();
    let costs = SimulatedCosts::new(&contracts, &objects, &NoMemo);
    let planner = PlannerPolicy {
        tiles,
        operand_limits: vec![400_000, 160_000, 120_000, 96_000],
        search_steps: 50,
    };
    let clock = std::time::Instant::now();
    let found = candidates(&graph, &precision, &planner, &costs).unwrap();
    println!("plan {:?}", clock.elapsed());
    let reservations = Reservations {
        support_bytes: 32_768,
        row_bytes: 49_152,
    };
    let policy = ipu_place::SchedulePolicy::default();
    let placed = ipu_place::place(&found[0].mid, &contracts, &reservations, &policy)
        .unwrap_or_else(|error| panic!("{error}"));
    println!("place {:?}", clock.elapsed());
    ipu_place::check::check(&placed, &contracts).unwrap_or_else(|fault| panic!("{fault}"));
    println!("check {:?}", clock.elapsed());
    let horizons: Vec<(u32, u32)> = placed
        .phases
        .iter()
        .map(|phase| (phase.horizon, phase.bound))
        .collect();
    println!("{model} bs{batch}: horizons and bounds {horizons:?}");
    let package = ipu_emit::emit(&placed, &objects, "c600").unwrap_or_else(|e| panic!("{e}"));
    println!("emit {:?}", clock.elapsed());
    ipu_package::check(&package).unwrap_or_else(|fault| panic!("{fault}"));
    println!(
        "segments {} images {}",
        package.segments.len(),
        package.images.len()
    );
    let weights = ipu_model::SeededWeights { seed: 1 };
    let values: BTreeMap<&str, ValueId> = graph
        .values
        .iter()
        .enumerate()
        .map(|(index, value)| (value.name.as_str(), ValueId(index as u32)))
        .collect();
    let mut session = Session::new(&package).unwrap_or_else(|e| panic!("{e}"));
    session
        .initialize(&mut |tensor| {
            Some(ipu_model::param_matrix(&graph, values[tensor.name.as_str()], &weights).unwrap())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let input = ipu_model::input_tensor(&graph, 7, 0);
    let result = invoke(&mut session, &input);
    println!("run once {:?}", clock.elapsed());
    let other = ipu_model::input_tensor(&graph, 8, 0);
    check_repeats(&package, &mut session, [&input, &other], &result);
    println!("run {:?}", clock.elapsed());
    timed(&package, &result);
    let params = |value| ipu_model::param_matrix(&graph, value, &weights);
    let expected = ipu_reference::evaluate(&graph, &params, &[input]).unwrap();
    let output = result.outputs.values().next().unwrap();
    let columns = graph.columns(graph.top.yields[0]) as usize;
    let metrics = ipu_reference::metrics::compare(output, &expected[0], columns);
    println!(
        "{model} bs{batch}: {} simulated cycles, {metrics:?}",
        result.cycles
    );
    for part in result.parts.by_kind(&package.steps) {
        println!("  {part:?}");
    }
    (metrics.cosine_min, result.cycles)
}

/// Without data the count is that of the run, with kernel calls recalled or all executed.
fn timed(package: &ipu_package::Package, run: &ipu_sim::Invocation) {
    let count = |mut session: ipu_sim::Session| {
        session.initialize(&mut |_| None).unwrap();
        session.invoke(&mut |_| None).unwrap();
        let result = session.invoke(&mut |_| None).unwrap();
        let machine = session.machine();
        let issues: Vec<_> = (0..ipu_target::TILES)
            .filter_map(|id| machine.tile(id).map(|tile| (tile.time, tile.issues.total)))
            .collect();
        (result.parts, issues, machine.calls().recalled)
    };
    let (parts, issues, recalled) = count(ipu_sim::Session::without_data(package).unwrap());
    let (each, each_issues, _) = count(ipu_sim::Session::executing_each_call(package).unwrap());
    assert!(recalled > 0);
    assert_eq!(parts, run.parts);
    assert_eq!(parts, each);
    assert_eq!(issues, each_issues, "of every tile");
}

#[test]
fn tiny_f16() {
    let (cosine, _) = run(
        "siglip-tiny",
        1,
        64,
        precision(Format::F16, Format::F16, Format::F16),
    );
    assert!(cosine > 0.999, "{cosine}");
}

#[test]
fn tiny_f143() {
    let f143 = Format::F143(-4);
    let (cosine, _) = run(
        "siglip-tiny",
        1,
        64,
        precision(f143, Format::F16, Format::F16),
    );
    assert!(cosine > 0.99, "{cosine}");
}

#[test]
fn tiny_f143_attention_two_images() {
    let f143 = Format::F143(-4);
    let (cosine, _) = run("siglip-tiny", 2, 64, precision(f143, f143, f143));
    assert!(cosine > 0.99, "{cosine}");
}
