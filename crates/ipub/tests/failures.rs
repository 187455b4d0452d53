//! Each failure gets one clear message and its exit code, and harms nothing.

mod world;

use std::fs;
use std::process::Command;

use world::{Ran, TINY, World};

#[test]
fn wrong_words_are_told_with_what_was_meant() {
    let world = World::new();
    world
        .ipub(&["bild"])
        .fails(1, &["unrecognized subcommand 'bild'", "build"]);
    world
        .ipub(&["build", "siglip-tiny"])
        .fails(1, &["is not a label", "//models:siglip-tiny"]);
    let unknown = world.ipub(&["build", "//models:siglip-tinny"]);
    unknown.fails(
        1,
        &[
            "unknown target //models:siglip-tinny",
            "models/BUILD.toml",
            "`siglip-tiny`",
        ],
    );
    let attribute = world.ipub(&["build", TINY, "--set", "precison.dense=f16"]);
    attribute.fails(1, &["no attribute `precison.dense`", "`precision.dense`"]);
    let value = world.ipub(&["build", TINY, "--set", "precision.dense=f15"]);
    value.fails(1, &["\"f15\"", "\"f143\""]);
    let stage = world.ipub(&["build", TINY, "--until", "plann"]);
    stage.fails(1, &["plann", "plan"]);
    let cast = world.ipub(&["build", TINY, "--set", "cast.encoder.mlp.x=late"]);
    cast.fails(1, &["cast.encoder.mlp.x", "encoder.mlp_up.x"]);
    let grid = world.ipub(&["build", TINY, "--set", "gemm.encoder.mlp_up.grid=8"]);
    grid.fails(1, &["gemm.encoder.mlp_up.grid", "ROWSxCOLUMNSxINNER"]);
    world.ipub(&["--help"]).succeeds();
}

#[test]
fn malformed_files_are_told_with_their_place() {
    let world = World::new();
    world.edit(
        "models/BUILD.toml",
        "planner.tiles = 64",
        "planner.tiles = = 64",
    );
    let build = fs::read_to_string(world.path("models/BUILD.toml")).unwrap();
    let line = 1 + build.lines().position(|line| line.contains("= =")).unwrap();
    let place = format!("models/BUILD.toml:{line}:17");
    world.ipub(&["build", TINY]).fails(1, &[&place]);
    world.edit("models/BUILD.toml", "= = 64", "= 64\nbatsh = 2");
    let place = format!("models/BUILD.toml:{}:1", line + 1);
    world
        .ipub(&["build", TINY])
        .fails(1, &[&place, "no attribute `batsh`", "`batch`"]);
    world.edit("models/BUILD.toml", "\nbatsh = 2", "");

    let spec = "models/specs/siglip-tiny.toml";
    world.edit(spec, "width = 128", "width = 127");
    world
        .ipub(&["build", TINY])
        .fails(1, &["siglip-tiny.toml:", "`width`", "127"]);
    world.edit(spec, "width = 127", "width = = 128");
    world
        .ipub(&["build", TINY])
        .fails(1, &["siglip-tiny.toml:6:9"]);
    world.edit(spec, "width = = 128", "width = 128");

    let kernel = "kernels/pointwise/add_f16.S";
    world.edit(kernel, "\n", "\nnonsense $m0\n");
    world
        .ipub(&["build", TINY])
        .fails(1, &["kernels/pointwise/add_f16.S:2:", "nonsense"]);
    world.edit(kernel, "\nnonsense $m0\n", "\n");

    world.edit("rules/verify.toml", "from = \"run\"", "from = \"rum\"");
    world
        .ipub(&["build", TINY])
        .fails(1, &["rules/verify.toml", "rum", "run"]);
    world.edit("rules/verify.toml", "\"rum\"", "\"run\"");
    world.build(&[]);
}

#[test]
fn what_cannot_fit_is_told_with_its_proof() {
    let world = World::new();
    let plan = world.ipub(&["build", TINY, "--set", "planner.tiles=1"]);
    plan.fails(2, &["plan:", "1 tiles", "planner.tiles"]);
    let spec = "models/specs/siglip-tiny.toml";
    world.edit(spec, "layers = 2", "layers = 256");
    let deep = ["build", TINY];
    let place = world.ipub(&deep);
    let words = [
        "place:",
        "tile 0",
        "bytes of Interleaved memory are live",
        "exist",
        "largest",
    ];
    place.fails(2, &words);
    // The failure is a result: it is not computed again.
    let again = world.ipub(&[&deep[..], &["--json"]].concat());
    assert_eq!(again.code, 2);
    let failed = again.events("stage_failed").next().unwrap();
    assert_eq!(failed["cached"], true);
    assert_eq!(failed["kind"], "infeasible");
    world.edit(spec, "layers = 256", "layers = 2");
    world.build(&[]);
}

#[test]
fn limits_and_thresholds_have_codes_of_their_own() {
    let world = World::new();
    let limit = world.ipub(&["build", TINY, "--set", "limits.exchange_table_bytes=100"]);
    limit.fails(4, &["tile ", "limits.exchange_table_bytes", "100"]);
    let threshold = world.ipub(&["build", TINY, "--set", "verify.cosine_min=1.0"]);
    threshold.fails(5, &["cosine", "verify.cosine_min"]);
    let results = world.results();
    assert_eq!(results["verify"]["passed"], false);
    assert_eq!(results["failure"]["kind"], "verification");
}

#[test]
fn a_device_fault_names_its_place() {
    let world = World::new();
    let kernel = "kernels/layernorm/layernorm_f16.S";
    let label = "layernorm_f16:\n";
    world.edit(kernel, label, &format!("{label}    trap 3\n"));
    let fault = world.ipub(&["build", TINY]);
    let words = ["tile ", "supervisor", "0x", "trap", "encoder.ln1"];
    fault.fails(6, &words);
}

#[test]
fn damaged_packages_are_refused() {
    let world = World::new();
    world.build(&["--until", "package"]);
    let file = world.path("artifacts/models/siglip-tiny/model.ipuexe");
    let bytes = fs::read(&file).unwrap();
    let inspect = |bytes: &[u8]| {
        fs::write(world.path("damaged.ipuexe"), bytes).unwrap();
        world.ipub(&["inspect", "damaged.ipuexe"])
    };
    inspect(&bytes).succeeds();
    inspect(&bytes[..bytes.len() - 1]).fails(1, &["damaged.ipuexe", "cut off"]);
    inspect(&bytes[..9]).fails(1, &["damaged.ipuexe"]);
    for at in [3, 20, bytes.len() / 2, bytes.len() - 1] {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        inspect(&altered).fails(1, &["damaged.ipuexe"]);
    }
    world
        .ipub(&["inspect", "absent.ipuexe"])
        .fails(1, &["absent.ipuexe"]);
}

#[test]
fn stages_refuse_damaged_packages() {
    let world = World::new();
    world.build(&["--until", "package"]);
    let args = ["stage", "time", "--in", "in", "--out", "out"];
    let filled = [&args[..], &["--from", TINY]].concat();
    world.ipub(&filled).succeeds();
    fs::remove_dir_all(world.path("out")).unwrap();
    let file = world.path("in/inputs/package");
    let bytes = fs::read(&file).unwrap();
    for length in [0, 9, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&file, &bytes[..length]).unwrap();
        world.ipub(&args).fails(1, &["package"]);
        assert!(!world.path("out/outputs").exists());
    }
    let mut altered = bytes.clone();
    altered[bytes.len() / 2] ^= 1;
    fs::write(&file, altered).unwrap();
    world.ipub(&args).fails(1, &["package"]);
    fs::write(&file, bytes).unwrap();
    world.ipub(&args).succeeds();
}

/// The header of a safetensors file, changed, before the same data.
fn with_header(file: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(file[8..8 + length].to_vec()).unwrap();
    let mut header = change(header.trim_end().to_owned()).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut changed = (header.len() as u64).to_le_bytes().to_vec();
    changed.extend(header);
    changed.extend(&file[8 + length..]);
    changed
}

#[test]
fn checkpoints_are_checked_tensor_by_tensor() {
    let world = World::new();
    world
        .ipub(&["weights", "export", TINY, "-o", "w.safetensors"])
        .succeeds();
    world.build(&[]);
    let seeded = world.results()["digests"]["run"]["outputs"].clone();
    world.build(&["--weights", "w.safetensors"]);
    let loaded = world.results()["digests"]["run"]["outputs"].clone();
    assert_eq!(seeded, loaded, "the same weights through a file");

    let file = fs::read(world.path("w.safetensors")).unwrap();
    let build = |bytes: &[u8]| {
        fs::write(world.path("bad.safetensors"), bytes).unwrap();
        world.ipub(&["build", TINY, "--weights", "bad.safetensors"])
    };
    let tensor = "encoder.layers.1.mlp.fc1.weight";
    let renamed = with_header(&file, |header| header.replacen(tensor, "another.weight", 1));
    build(&renamed).fails(1, &["bad.safetensors", tensor, "no tensor"]);
    let misshapen = with_header(&file, |header| {
        header.replacen("\"shape\":[256,128]", "\"shape\":[128,256]", 1)
    });
    build(&misshapen).fails(1, &["bad.safetensors", "[128, 256]", "[256, 128]"]);
    build(&file[..file.len() - 4]).fails(1, &["bad.safetensors"]);
    let absent = world.ipub(&["build", TINY, "--weights", "absent.safetensors"]);
    absent.fails(1, &["absent.safetensors"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_harms_nothing() {
    let world = World::new();
    let many = ["--until", "reference", "--set", "fixture.invocations=500"];
    // A limit on the size of files, in blocks of 512 bytes.
    let limited = |blocks: u32| world.build_limited("trap '' XFSZ;", blocks, &many);
    limited(0).fails(3, &["cache"]);
    limited(100).fails(3, &["cache"]);
    // The index fits, the outputs of the reference do not.
    limited(420).fails(3, &["reference: no space to write", "[cache] dir"]);
    assert_eq!(world.build(&many), ["kernel", "reference"][1..]);
    assert_eq!(world.build(&many), [""; 0]);
}

#[test]
fn a_folder_without_a_workspace_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipub"));
    command.args(["build", TINY]).current_dir(dir.path());
    Ran::of(command.output().unwrap()).fails(1, &["workspace.toml"]);
}
