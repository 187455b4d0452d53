//! From a model specification to outputs of the simulated device, pass by pass, without the engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::object::Object;
use ipu_ir::contract::{Contract, Family};
use ipu_ir::program::Reservations;
use ipu_model::{ModelSpec, lower};
use ipu_plan::{AttentionFormats, Format, PlannerPolicy, Precision, candidates};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn spec(name: &str) -> ModelSpec {
    let path = root().join(format!("models/specs/{name}.toml"));
    ModelSpec::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn kernels() -> (BTreeMap<String, Contract>, BTreeMap<String, Object>) {
    let (mut contracts, mut objects) = (BTreeMap::new(), BTreeMap::new());
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root().join("kernels"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    for folder in folders {
        let text = std::fs::read_to_string(folder.join("kernel.toml")).unwrap();
        for kernel in Family::parse(&text).unwrap().kernels {
            let source = std::fs::read_to_string(folder.join(&kernel.source)).unwrap();
            let assembly = assemble(
                Source { name: &kernel.source, text: &source },
                &Options::default(),
            )
            .unwrap_or_else(|errors| panic!("{errors}"));
            objects.insert(kernel.name.clone(), assembly.object);
            contracts.insert(kernel.name.clone(), kernel);
        }
    }
    (contracts, objects)
}

fn precision(dense: Format, qk: Format, pv: Format) -> Precision {
    let f16 = AttentionFormats { qk: Format::F16, pv: Format::F16 };
    Precision { embed: Format::F16, dense, attention: AttentionFormats { qk, pv }, map: f16 }
}

fn run(model: &str, batch: u32, tiles: u32, precision: Precision) {
    let graph = lower(&spec(model), batch).unwrap();
    let (contracts, objects) = kernels();
    let planner = PlannerPolicy {
        tiles,
        operand_limits: vec![400_000, 160_000, 120_000, 96_000],
        data_bytes: 500_000,
    };
    let found = candidates(&graph, &precision, &planner).unwrap();
    let reservations = Reservations { support_bytes: 32_768, row_bytes: 49_152 };
    let placed = ipu_place::place(&found[0].mid, &contracts, reservations)
        .unwrap_or_else(|error| panic!("{error}"));
    let horizons: Vec<(u32, u32)> =
        placed.phases.iter().map(|phase| (phase.horizon, phase.bound)).collect();
    println!("{model} bs{batch}: horizons and bounds {horizons:?}");
    let package = ipu_emit::emit(&placed, &objects, "c600").unwrap_or_else(|e| panic!("{e}"));
    println!("segments {} images {}", package.segments.len(), package.images.len());
}

#[test]
fn tiny_f16() {
    run("siglip-tiny", 1, 64, precision(Format::F16, Format::F16, Format::F16));
}
