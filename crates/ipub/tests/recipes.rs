//! Recipes as files: what an edit of one runs again, and what is told of it.

mod world;

use std::fs;

use serde_json::Value;
use world::{Ran, TINY, World};

const TARGET: &str = "//models:siglip-tiny-recipe";
const FILE: &str = "models/recipes/siglip-tiny.toml";

/// A world whose recipe file is the planner's own.
fn saved() -> World {
    let world = World::new();
    world.ipub(&["recipe", "save", TINY, "--force"]).succeeds();
    world
}

/// Builds the target with the recipe and gives the stages that ran, sorted.
#[track_caller]
fn built(world: &World, args: &[&str]) -> Vec<String> {
    let ran = world.ipub(&[&["build", TARGET, "--json"], args].concat());
    let ran = ran.succeeds();
    let started = ran.events("stage_started");
    let mut stages: Vec<String> = started
        .map(|event| event["rule"].as_str().unwrap().to_owned())
        .collect();
    stages.sort();
    stages
}

/// Line and column of `text` in the recipe file, behind its name.
fn place(world: &World, text: &str) -> String {
    let file = fs::read_to_string(world.path(FILE)).unwrap();
    let line = file.lines().position(|line| line.starts_with(text));
    format!("{FILE}:{}:1", line.unwrap() + 1)
}

/// Changes the first digits of a digest in the recipe file; gives both digests.
fn age(world: &World, component: &str) -> (String, String) {
    let text = fs::read_to_string(world.path(FILE)).unwrap();
    let line = text.lines().find(|line| line.starts_with(component));
    let now = line.unwrap().split('"').nth(1).unwrap().to_owned();
    let old = format!("0000000{}", &now[7..]);
    world.edit(FILE, &now, &old);
    (old, now)
}

fn json(ran: Ran) -> Value {
    serde_json::from_str(&ran.succeeds().stdout).unwrap()
}

#[test]
fn an_edit_of_the_file_runs_only_what_it_can_change() {
    let world = saved();
    world.build(&[]);
    // The file is the only candidate; the planner had others after it.
    let own = built(&world, &[]);
    assert_eq!(
        own,
        ["metrics", "place", "plan"],
        "the planner's own decisions"
    );
    assert_eq!(built(&world, &[]), [""; 0], "the same command");

    let remark = "[cast]\n# A remark.\n\n";
    world.edit(FILE, "[cast]\n", remark);
    assert_eq!(built(&world, &[]), ["plan"], "a remark and an empty line");

    let early = "\"encoder.mlp_up.x\" = \"early\"";
    world.edit(FILE, early, "\"encoder.mlp_up.x\"   =   \"late\"");
    let check = json(world.ipub(&["recipe", "check", TARGET, "--json"]));
    let state = |stage: &str| {
        let stages = check["stages"].as_array().unwrap();
        let found = stages.iter().find(|found| found["stage"] == stage).unwrap();
        let text = |name: &str| found[name].as_str().unwrap().to_owned();
        (text("state"), text("why"))
    };
    for stage in ["lower", "kernel", "weights", "fixture", "reference"] {
        assert_eq!(state(stage).0, "hit", "{stage}");
    }
    let plan = ("would run".to_owned(), "because of input.recipe".to_owned());
    assert_eq!(state("plan"), plan);
    assert_eq!(state("place").1, "if plan output changes");
    assert_eq!(state("time").1, "if package output changes");

    // The outputs come out the same, so `verify` need not judge them again.
    let expected = ["metrics", "package", "place", "plan", "run", "time"];
    assert_eq!(built(&world, &[]), expected, "one cast site");
    world.edit(FILE, "\"encoder.mlp_up.x\"   =   \"late\"", early);
    let back = built(&world, &[]);
    let verified = [
        "plan", "place", "package", "time", "run", "verify", "metrics",
    ];
    assert!(
        back.iter().all(|stage| verified.contains(&&**stage)),
        "{back:?}"
    );
}

#[test]
fn another_context_is_refused_and_rebased() {
    let world = saved();
    for component in ["graph", "target", "policy"] {
        let (old, now) = age(&world, component);
        let command = format!("ipub recipe rebase {FILE}");
        let words = [component, &old, &now, &command, FILE];
        world.ipub(&["build", TARGET]).fails(1, &words);
        let strict = [
            "build",
            TARGET,
            "--set",
            "cast.kv.x=late",
            "--strict-recipe",
        ];
        world.ipub(&strict).fails(1, &words);
        let other = ["build", TARGET, "--set", "verify.cosine_min=0.98"];
        world.ipub(&other).fails(1, &words);

        let set = world.ipub(&["build", TARGET, "--set", "cast.kv.x=late"]);
        let told = format!("notice: {FILE}: rebased to another {component}");
        let set = set.succeeds();
        assert!(set.stderr.contains(&told), "{}", set.stderr);
        assert!(!set.stderr.contains("dropped"), "{}", set.stderr);

        let rebased = world.ipub(&["recipe", "rebase", FILE]).succeeds().stdout;
        assert!(
            rebased.contains(&format!("context.{component}: ")),
            "{rebased}"
        );
        assert!(rebased.contains(&format!("wrote {FILE}")), "{rebased}");
        world.ipub(&["recipe", "check", FILE]).succeeds();
    }
    let again = world.ipub(&["recipe", "rebase", TARGET]).succeeds().stdout;
    assert!(again.contains("is as it should be"), "{again}");
}

#[test]
fn a_contract_is_context_and_a_kernel_only_a_notice() {
    let world = saved();
    world.edit(
        "kernels/gemm/kernel.toml",
        "over_read = 24",
        "over_read = 32",
    );
    let refused = world.ipub(&["build", TARGET]);
    refused.fails(
        1,
        &["contracts.gemm", "file ", "now ", "ipub recipe rebase"],
    );
    world.ipub(&["recipe", "rebase", TARGET]).succeeds();
    built(&world, &[]);

    let label = "layernorm_f16:\n";
    let kernel = "kernels/layernorm/layernorm_f16.S";
    world.edit(kernel, label, &format!("{label}    nop\n"));
    let changed = world.ipub(&["build", TARGET]).succeeds().stderr;
    let notice = format!("notice: {FILE}: kernels of layernorm changed");
    assert!(changed.contains(&notice), "{changed}");
    world.ipub(&["recipe", "rebase", TARGET]).succeeds();
    let after = world.ipub(&["build", TARGET]).succeeds().stderr;
    assert!(!after.contains("notice"), "{after}");
}

#[test]
fn settings_drop_and_fill_in_decisions() {
    let world = saved();
    let few = world.ipub(&["build", TARGET, "--set", "planner.tiles=32"]);
    let few = few.succeeds().stderr;
    let dropped = "dropped gemm.encoder.mlp_down: grid 1x8x8 needs 64 tiles";
    assert!(few.contains(dropped), "{few}");
    assert!(few.contains("filled in gemm.encoder.mlp_down = {"), "{few}");
    let f16 = [
        "build",
        TARGET,
        "--until",
        "place",
        "--set",
        "precision.dense=f16",
    ];
    let f16 = world.ipub(&f16).succeeds().stderr;
    let dropped = "dropped cast.encoder.qkv.x: there is no such cast site";
    assert!(f16.contains(dropped), "{f16}");

    // The file keeps its remarks, and what still applies.
    let line = "\"encoder.mlp_up.x\" = \"early\"";
    world.edit(FILE, line, "# Why.\n\"encoder.mlp_up.x\" = \"late\" # So.");
    world.edit(FILE, "\"1x24x1\"", "\"1x99x1\"");
    let illegal = world.ipub(&["recipe", "check", FILE]);
    illegal.fails(1, &[&place(&world, "\"encoder.qkv\""), "99 tiles"]);
    let rebased = world.ipub(&["recipe", "rebase", FILE]).succeeds().stdout;
    assert!(
        rebased.contains("dropped gemm.encoder.qkv: grid 1x99x1"),
        "{rebased}"
    );
    let text = fs::read_to_string(world.path(FILE)).unwrap();
    assert!(
        text.contains("\n# Why.\n\"encoder.mlp_up.x\" = \"late\" # So.\n"),
        "{text}"
    );
    built(&world, &[]);
}

#[test]
fn names_must_be_those_of_the_graph() {
    let world = saved();
    world.edit(FILE, "\"map.kv.x\"", "\"map.kw.x\"");
    let unknown = place(&world, "\"map.kw.x\"");
    let words = [
        &*unknown,
        "no `map.kw.x`",
        "did you mean map.kv.x",
        "lacks `map.kv.x`",
    ];
    world.ipub(&["build", TARGET]).fails(1, &words);
    world.ipub(&["recipe", "check", FILE]).fails(1, &words);
    world.edit(FILE, "\"map.kw.x\" = \"early\"\n", "");
    let missing = place(&world, "[cast]").replace(":1", ":");
    world
        .ipub(&["build", TARGET])
        .fails(1, &[&missing, "lacks `map.kv.x`"]);
    world.ipub(&["recipe", "rebase", FILE]).succeeds();
    built(&world, &[]);

    world.edit(FILE, "\"1x24x1\"", "\"1x24\"");
    world
        .ipub(&["build", TARGET])
        .fails(1, &[FILE, "ROWSxCOLUMNSxINNER"]);
    fs::remove_file(world.path(FILE)).unwrap();
    world.ipub(&["build", TARGET]).fails(1, &[FILE, "no file"]);
}

#[test]
fn recipes_are_shown_saved_and_compared() {
    let world = World::new();
    let shown = world.ipub(&["recipe", "show", TINY]).succeeds().stdout;
    let there = world.ipub(&["recipe", "save", TINY]);
    there.fails(1, &[FILE, "--force"]);
    world
        .ipub(&["recipe", "save", TINY, "-o", "own.toml"])
        .succeeds();
    assert_eq!(fs::read_to_string(world.path("own.toml")).unwrap(), shown);
    let same = world.ipub(&["recipe", "diff", TINY, "own.toml"]).succeeds();
    assert_eq!(same.stdout, "no difference\n");

    world.edit("own.toml", "\"1x24x1\"", "\"4x8x1\"");
    let diff = world.ipub(&["recipe", "diff", TINY, "own.toml"]).succeeds();
    assert_eq!(diff.stdout, "gemm.encoder.qkv.grid  1x24x1 -> 4x8x1\n");
    let diff = json(world.ipub(&["recipe", "diff", TINY, "own.toml", "--json"]));
    assert_eq!(diff["changes"][0]["name"], "gemm.encoder.qkv.grid");
    assert_eq!(diff["changes"].as_array().unwrap().len(), 1);

    world
        .ipub(&["recipe", "check", "own.toml"])
        .fails(1, &["no target", "--for"]);
    let check = ["recipe", "check", "own.toml", "--for", TINY];
    assert!(
        world
            .ipub(&check)
            .succeeds()
            .stdout
            .contains("complete and legal")
    );
    world
        .ipub(&["recipe", "rebase", TINY])
        .fails(1, &["no recipe", "recipe save"]);
}

#[test]
fn the_recipe_that_is_shipped_is_current() {
    let world = World::new();
    world.ipub(&["recipe", "check", TARGET]).succeeds();
    let diff = world
        .ipub(&["recipe", "diff", TINY, TARGET])
        .succeeds()
        .stdout;
    assert_eq!(diff, "cast.encoder.mlp_up.x  early -> late\n");
}

#[test]
fn a_sweep_builds_every_combination() {
    let world = World::new();
    let args = [
        "sweep",
        TINY,
        "--set",
        "gemm.encoder.mlp_down.grid=1x4x4,8x8x23",
        "--set",
        "cast.kv.x=early,late",
    ];
    let table = world.ipub(&args).succeeds().stdout;
    for words in [
        "simulated cycles",
        "cast.map.kv.x",
        "(base)",
        "needs 1472 tiles",
    ] {
        assert!(table.contains(words), "{words} in:\n{table}");
    }
    assert_eq!(table.lines().count(), 2 + 1 + 4, "{table}");
    let again = world.ipub(&[&args[..], &["--json"]].concat()).succeeds();
    for stage in ["lower", "place", "package", "time"] {
        let ran = again.stderr.lines().any(|line| line.starts_with(stage));
        assert!(!ran, "{stage} ran again:\n{}", again.stderr);
    }
    let sweep = json(again);
    let variants = sweep["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 4);
    assert!(sweep["base"]["simulated_cycles"].is_u64());
    let last = &variants[3];
    assert_eq!(last["settings"]["cast.map.kv.x"], "late");
    assert_eq!(last["failure"]["stage"], "plan");
    assert!(variants[0]["change_percent"].as_f64().unwrap() > 0.0);

    let verify = ["--set", "cast.kv.x=late", "--until", "verify"];
    let verify = world.ipub(&[&["sweep", TINY], &verify[..]].concat());
    let verify = verify.succeeds().stdout;
    assert!(
        verify.contains("cosine") && verify.contains("0.99"),
        "{verify}"
    );
}

#[test]
fn wrong_sweeps_are_told_before_they_cost_anything() {
    let world = World::new();
    let sweep = |set: &str| world.ipub(&["sweep", TINY, "--set", set]);
    let two = ["encoder.mlp_up.x", "encoder.qkv.x"];
    sweep("cast.x=early").fails(1, &two);
    sweep("cast.kw.x=early").fails(1, &["cast.kw.x", "did you mean `cast.map.kv.x`"]);
    sweep("precision.dense=f16,f15").fails(1, &["f15"]);
    let many: Vec<_> = (0..257).map(|seed| seed.to_string()).collect();
    let many = format!("fixture.seed={}", many.join(","));
    sweep(&many).fails(1, &["257", "256", "--yes"]);
    let both = ["--set", "cast.kv.x=late", "--set", "cast.map.kv.x=late"];
    let both = world.ipub(&[&["build", TINY], &both[..]].concat());
    both.fails(1, &["cast.kv.x", "cast.map.kv.x"]);
}
