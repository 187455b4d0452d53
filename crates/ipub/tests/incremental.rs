//! Which stages an edit runs again, and that equal inputs have equal outputs anywhere.

mod world;

use std::fs;

use world::{STAGES, TINY, World};

#[test]
fn an_edit_runs_only_what_it_can_change() {
    let world = World::new();
    assert_eq!(world.build(&[]), STAGES);
    assert_eq!(world.build(&[]), [""; 0], "the same command");

    let threshold = world.build(&["--set", "verify.cosine_min=0.98"]);
    assert_eq!(threshold, ["verify"], "another threshold");

    let fixture = world.build(&["--set", "fixture.seed=8"]);
    let expected = ["fixture", "metrics", "reference", "run", "verify"];
    assert_eq!(fixture, expected, "other inputs");

    let limit = world.build(&["--set", "limits.exchange_table_bytes=81000"]);
    assert_eq!(limit, ["package"], "another limit that is kept");

    world.edit("kernels/gemm/gemm_f143.S", "\n", "\n// Another word.\n");
    assert_eq!(world.build(&[]), ["kernel"], "a comment in a kernel");
    world.edit(
        "kernels/gemm/kernel.toml",
        "summary = \"",
        "summary = \"Say: ",
    );
    assert_eq!(world.build(&[]), ["kernel"], "words in a contract");
}

#[test]
fn a_cast_site_leaves_what_does_not_depend_on_it() {
    let world = World::new();
    world.build(&[]);
    let flipped = world.build(&["--set", "cast.encoder.mlp_up.x=late"]);
    for stage in ["plan", "place", "package", "time", "run"] {
        assert!(
            flipped.iter().any(|ran| ran == stage),
            "{stage}: {flipped:?}"
        );
    }
    for stage in ["lower", "weights", "fixture", "reference", "kernel"] {
        assert!(
            !flipped.iter().any(|ran| ran == stage),
            "{stage}: {flipped:?}"
        );
    }
    let recipe = world.path("artifacts/models/siglip-tiny/recipe.toml");
    let recipe = fs::read_to_string(recipe).unwrap();
    assert!(
        recipe.contains("\"encoder.mlp_up.x\" = \"late\""),
        "{recipe}"
    );
}

#[test]
fn time_counts_what_run_counts() {
    let world = World::new();
    for target in [
        TINY,
        "//models:siglip-tiny-bs2",
        "//models:siglip-tiny-f16",
        "//models:siglip-tiny-f16-bs2",
    ] {
        let ran = world.ipub(&["build", target, "--json"]).succeeds();
        let cycles = |rule: &str| {
            let mut events = ran.events("stage_ran");
            let event = events.find(|event| event["rule"] == rule);
            event.unwrap()["notes"]["cycles"].as_u64().unwrap()
        };
        assert_eq!(cycles("time"), cycles("run"), "{target}");
        assert!(cycles("run") > 0, "{target}");
        let results = ran.events("results").next().unwrap()["results"].clone();
        assert_eq!(results["cycles"]["cropped"], cycles("run"), "{target}");
        let sum = |parts: &str| -> u64 {
            let parts = results["cycles"][parts].as_object().unwrap();
            parts.values().map(|part| part.as_u64().unwrap()).sum()
        };
        assert_eq!(
            (sum("by_kind"), sum("by_operation")),
            (cycles("run"), cycles("run"))
        );
    }
}

#[test]
fn folders_and_threads_change_no_digest() {
    let (one, two) = (World::new(), World::new());
    let mut command = one.command();
    command.args(["build", TINY, "--jobs", "1"]);
    command.env("RAYON_NUM_THREADS", "1");
    assert!(command.output().unwrap().status.success());
    two.build(&["--jobs", "2"]);
    let (one, two) = (one.results(), two.results());
    assert_eq!(one["digests"], two["digests"]);
    assert_eq!(one["digests"].as_object().unwrap().len(), STAGES.len());
}

#[test]
fn a_deleted_store_loses_only_time() {
    let world = World::new();
    world.build(&[]);
    let before = world.results()["digests"].clone();
    fs::remove_dir_all(world.path("cache")).unwrap();
    assert_eq!(world.build(&[]), STAGES);
    assert_eq!(world.results()["digests"], before);
}
