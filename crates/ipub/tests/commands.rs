//! The commands beside `build`, and the documents that it writes.

mod world;

use std::fs;

use serde_json::Value;
use world::{TINY, World, root};

/// The faults of a value against a schema, of the words that ours uses.
fn faults(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let is_type = |name: &str| match name {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        other => panic!("the test knows no type {other}"),
    };
    if let Some(name) = schema["type"].as_str()
        && !is_type(name)
    {
        found.push(format!("{at} is no {name}: {value}"));
    }
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        found.push(format!("{at} is {value}, not {constant}"));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        found.push(format!("{at} is {value}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        if value.get(name).is_none() {
            found.push(format!("{at}.{name} is absent"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let own = schema["properties"].get(name);
        match own.or_else(|| schema.get("additionalProperties")) {
            Some(schema) => faults(schema, inner, &format!("{at}.{name}"), found),
            None if schema.get("properties").is_some() => {
                found.push(format!("{at}.{name} is not in the schema"));
            }
            None => {}
        }
    }
}

#[track_caller]
fn conforms(results: &Value) {
    let schema = fs::read(root().join("docs/results.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let mut found = Vec::new();
    faults(&schema, results, "results", &mut found);
    assert_eq!(found, [""; 0], "{results:#}");
}

#[test]
fn results_conform_to_their_schema() {
    let world = World::new();
    world.build(&["--until", "time"]);
    conforms(&world.results());
    assert!(world.results()["cycles"]["cropped"].is_u64());
    world.build(&[]);
    let results = world.results();
    conforms(&results);
    for part in [
        "cycles",
        "verify",
        "exchange",
        "memory",
        "package",
        "simulator",
    ] {
        assert!(results.get(part).is_some(), "{part}");
    }
    world
        .ipub(&["build", TINY, "--set", "verify.cosine_min=1.0"])
        .fails(5, &[]);
    conforms(&world.results());
    let dir = world.path("artifacts/models/siglip-tiny");
    for file in [
        "model.ipuexe",
        "recipe.toml",
        "metrics.json",
        "memory.json",
        "outputs.npy",
        "run.log",
    ] {
        assert!(dir.join(file).is_file(), "{file}");
    }
}

#[test]
fn the_table_labels_its_cycles() {
    let world = World::new();
    let first = world.ipub(&["build", TINY]).succeeds();
    assert!(
        first.stdout.contains("simulated cycles"),
        "{}",
        first.stdout
    );
    assert!(first.stdout.contains("at 1.5 GHz"), "{}", first.stdout);
    assert!(first.stderr.contains("place"), "{}", first.stderr);
    let again = world.ipub(&["build", TINY]).succeeds();
    assert!(again.stdout.contains("hit"), "{}", again.stdout);
    let ended = "finished: 12 hits, 0 misses, 0 failed; read 0 B, wrote 0 B; ";
    assert!(again.stderr.starts_with(ended), "{}", again.stderr);
    assert_eq!(again.stderr.lines().count(), 1, "{}", again.stderr);
}

#[test]
fn explain_names_the_line_of_the_key() {
    let world = World::new();
    let explain = |args: &[&str]| {
        let ran = world.ipub(&[&["explain", TINY], args].concat());
        ran.succeeds().stdout
    };
    assert!(explain(&["verify"]).contains("never built"));
    world.build(&[]);
    assert!(explain(&["place"]).contains("up to date"));
    let text = explain(&["place", "--set", "reserve.row_bytes=65536"]);
    assert!(
        text.contains("param.reserve.row_bytes: 49152 -> 65536"),
        "{text}"
    );
    assert!(explain(&[]).lines().count() >= 12);
}

#[test]
fn own_inputs_give_the_outputs_of_the_fixture() {
    let world = World::new();
    world.build(&[]);
    world
        .ipub(&["fixture", "export", TINY, "-o", "fixture"])
        .succeeds();
    let args = [
        "run",
        TINY,
        "--input",
        "fixture/inputs.npy",
        "-o",
        "out.npy",
    ];
    world.ipub(&args).succeeds();
    let outputs = world.path("artifacts/models/siglip-tiny/outputs.npy");
    assert_eq!(
        fs::read(world.path("out.npy")).unwrap(),
        fs::read(outputs).unwrap()
    );
    for name in ["outputs_fp32.npy", "outputs_device_precision.npy"] {
        assert!(world.path("fixture").join(name).is_file());
    }
    fs::write(world.path("bad.npy"), b"PK").unwrap();
    world
        .ipub(&["run", TINY, "--input", "bad.npy"])
        .fails(1, &["bad.npy", "npy"]);
    let wrong = ["run", TINY, "--input", "out.npy"];
    world
        .ipub(&wrong)
        .fails(1, &["out.npy", "shape", "[4, 588]"]);
}

#[test]
fn a_stage_runs_alone_and_gives_the_same_bytes() {
    let world = World::new();
    world.build(&[]);
    let digests = world.results()["digests"].clone();
    for stage in world::STAGES {
        let (input, output) = (format!("{stage}/in"), format!("{stage}/out"));
        let args = [
            "stage", stage, "--from", TINY, "--in", &input, "--out", &output,
        ];
        world.ipub(&args).succeeds();
        let result = fs::read(world.path(&output).join("result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        for made in result["outputs"].as_array().unwrap() {
            let name = made["name"].as_str().unwrap();
            assert_eq!(made["digest"], digests[stage][name], "{stage} {name}");
        }
    }
    world
        .ipub(&["stage", "plann", "--in", "a", "--out", "b"])
        .fails(1, &["plann", "plan"]);
}

#[test]
fn inspect_shows_a_package_and_its_provenance() {
    let world = World::new();
    world
        .ipub(&["inspect", TINY])
        .fails(1, &["no package", "--until package"]);
    world.build(&["--until", "package"]);
    let target = world.ipub(&["inspect", TINY, "--json"]).succeeds();
    let target: Value = serde_json::from_str(&target.stdout).unwrap();
    assert_eq!(target["tiles"], 64);
    assert!(target["provenance"]["key"].is_string());
    let file = "artifacts/models/siglip-tiny/model.ipuexe";
    let file = world.ipub(&["inspect", file, "--json"]).succeeds();
    let file: Value = serde_json::from_str(&file.stdout).unwrap();
    assert_eq!(file["digest"], target["digest"]);
    assert!(file.get("provenance").is_none());
    world.ipub(&["inspect", TINY]).succeeds();
}

#[test]
fn programs_are_assembled_shown_and_run() {
    let world = World::new();
    let kernel = "kernels/copy/copy_u64.S";
    world.ipub(&["asm", kernel, "-o", "copy.o"]).succeeds();
    let text = world.ipub(&["disasm", "copy.o"]).succeeds().stdout;
    assert!(text.contains("copy_u64:"), "{text}");
    let data: Vec<u8> = (0..64).collect();
    fs::write(world.path("data"), &data).unwrap();
    let frame: Vec<u8> = [0x60000_u32, 0x70000, 8]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    fs::write(world.path("frame"), frame).unwrap();
    let args = [
        "tile",
        "copy.o",
        "--entry",
        "copy_u64",
        "--as",
        "supervisor",
        "--set",
        "m0=0x58800",
        "--load",
        "0x60000=data",
        "--load",
        "0x58800=frame",
        "--dump",
        "0x70000+64=copied",
        "--json",
    ];
    let ran = world.ipub(&args).succeeds();
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(result["cycles"].as_u64().unwrap() > 96);
    assert_eq!(fs::read(world.path("copied")).unwrap(), data);

    fs::write(world.path("bad.s"), ".worker\n add $m0 $m1\n").unwrap();
    world
        .ipub(&["asm", "bad.s", "-o", "bad.o"])
        .fails(1, &["bad.s:2:"]);
    let no_entry = ["tile", "copy.o", "--entry", "copy"];
    world
        .ipub(&no_entry)
        .fails(1, &["no symbol `copy`", "copy_u64"]);
    fs::write(
        world.path("fault.s"),
        ".supervisor\n.globl f\nf: ld32 $m1, $m0, $m15, 0\n br $m10\n",
    )
    .unwrap();
    world
        .ipub(&["disasm", "data"])
        .fails(1, &["data", "object file"]);
}

#[test]
fn the_machine_and_the_store_are_shown() {
    let world = World::new();
    let doctor = world.ipub(&["doctor"]).succeeds().stdout;
    assert!(doctor.contains("c600"), "{doctor}");
    let assumptions = world.ipub(&["doctor", "--assumptions"]).succeeds().stdout;
    assert!(assumptions.contains("amp-accumulation"), "{assumptions}");
    let stat = world.ipub(&["cache", "stat", "--json"]).succeeds().stdout;
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert!(stat["blobs"].is_u64());
    let targets = world.ipub(&["targets"]).succeeds().stdout;
    assert!(targets.contains("//models:siglip27-bs2-best"), "{targets}");
}
