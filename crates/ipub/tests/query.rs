//! Queries, what changes reach, builds of several targets, completions.

mod world;

use std::process::Command;

use serde_json::Value;
use world::{TINY, World};

#[test]
fn queries_answer_as_text_json_and_dot() {
    let world = World::new();
    let ask = |args: &[&str]| world.ipub(&[&["query"], args].concat()).succeeds().stdout;
    let recipe = "models/recipes/siglip-tiny.toml";
    let target = "//models:siglip-tiny-recipe";
    let readers = format!("rdeps(//..., {recipe})");
    assert_eq!(ask(&[&readers]), format!("{target}\n{recipe}\n"));
    assert_eq!(
        ask(&[&readers, "--output", "dot"]),
        format!(
            "digraph ipub {{\n  rankdir = LR;\n  node [shape = box];\n  n0 [label = \"{target}\"];\n  \
             n0 -> n1;\n  n1 [label = \"{recipe}\"];\n}}\n"
        )
    );
    let json: Value = serde_json::from_str(&ask(&[&readers, "--output", "json"])).unwrap();
    assert_eq!(json["nodes"][0]["name"], target);
    assert_eq!(json["nodes"][0]["reads"][0], recipe);
    assert_eq!(json["nodes"][1]["type"], "file");
    // Words of a shell are one expression.
    assert_eq!(
        ask(&[
            "attr(batch, '^2$', //models:siglip-tiny*)",
            "-//models:siglip-tiny-f16-bs2"
        ]),
        "//models:siglip-tiny-bs2\n"
    );
    world.ipub(&["query", "deps(//models:siglip-tiny"]).fails(
        1,
        &[
            "column 26: expected `)`, found the end",
            "                         ^",
        ],
    );
    let wrong = "//models:siglip-tinny";
    world
        .ipub(&["query", wrong])
        .fails(1, &["did you mean `siglip-tiny`"]);
}

#[test]
fn actions_have_keys_and_states() {
    let world = World::new();
    world.build(&["--until", "lower"]);
    let ask = |args: &[&str]| {
        world
            .ipub(&[&["query", "--actions"], args].concat())
            .succeeds()
    };
    let text = ask(&[TINY]).stdout;
    assert_eq!(text.lines().count(), 12, "{text}");
    let line = |stage: &str| {
        let name = format!("{TINY}%{stage} ");
        let line = text.lines().find(|line| line.starts_with(&name));
        line.unwrap_or_else(|| panic!("{stage}: {text}")).to_owned()
    };
    assert!(line("lower").ends_with("  hit"), "{text}");
    assert!(line("kernel").ends_with("  would run"), "{text}");
    assert!(
        line("time").ends_with("-             would run if package output changes"),
        "{text}"
    );
    let path = ask(&[&format!("somepath({TINY}%place, kernels/copy/kernel.toml)")]).stdout;
    assert_eq!(path.lines().count(), 3, "{path}");
    let json = ask(&[TINY, "--output", "json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    let lower = nodes.iter().find(|node| node["rule"] == "lower").unwrap();
    assert_eq!(lower["state"], "hit");
    assert_eq!(lower["key"].as_str().unwrap().len(), 64);
}

#[test]
fn changes_since_a_revision_reach_targets() {
    let world = World::new();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .current_dir(world.dir.path())
            .args(["-c", "user.name=t", "-c", "user.email=t@t"]);
        assert!(
            command.args(args).output().unwrap().status.success(),
            "{args:?}"
        );
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "all"]);
    let affected = || {
        world
            .ipub(&["affected", "--since", "HEAD"])
            .succeeds()
            .stdout
    };
    assert_eq!(affected(), "");
    world.edit("models/recipes/siglip-tiny.toml", "\n", "\n# edited\n");
    world.edit("models/BUILD.toml", "98304", "98305");
    let text = affected();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "//models:siglip-tiny-bs2  from package on: package time run verify metrics  \
             (attribute limits.exchange_table_bytes)",
            "//models:siglip-tiny-recipe  from plan on: plan place package time run verify \
             metrics  (models/recipes/siglip-tiny.toml)",
        ]
    );
    let json = world
        .ipub(&["affected", "--since", "HEAD", "--json"])
        .succeeds()
        .stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["targets"][1]["from"][0], "plan");
    world
        .ipub(&["affected", "--since", "no-such-revision"])
        .fails(1, &["no-such-revision", "--since"]);
}

#[test]
fn several_targets_are_built() {
    let world = World::new();
    let args = [
        "build",
        "//models:siglip-tiny*",
        "-//models:siglip-tiny-f16*",
        "--until",
        "lower",
    ];
    let ran = world.ipub(&[&args[..], &["--json"]].concat()).succeeds();
    let built: Vec<_> = ran
        .events("build_started")
        .map(|event| event["label"].clone())
        .collect();
    assert_eq!(
        built,
        [
            "//models:siglip-tiny",
            "//models:siglip-tiny-bs2",
            "//models:siglip-tiny-recipe"
        ]
    );
    // The first fails, the second is built all the same; the exit code is that of the first.
    world.edit("models/BUILD.toml", "batch = 2", "batch = -1");
    let args = ["build", "//models:siglip-tiny-bs2", TINY, "--until", "plan"];
    world.ipub(&args).fails(1, &["//models:siglip-tiny-bs2: "]);
    let ran = world.ipub(&[&args[..], &["-k", "--json"]].concat());
    assert_eq!(ran.events("build_finished").count(), 2, "{}", ran.stdout);
    ran.fails(1, &["1 of 2 targets failed: //models:siglip-tiny-bs2"]);
    world
        .ipub(&["build", "//nothing/..."])
        .fails(1, &["no target matches"]);
    world
        .ipub(&["build", "--until", "lower"])
        .fails(1, &["<TARGET>"]);
}

#[test]
fn shells_get_a_script() {
    let world = World::new();
    for (shell, words) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef ipub"),
        ("fish", "complete -c"),
    ] {
        let script = world.ipub(&["completions", shell]).succeeds().stdout;
        assert!(script.contains(words), "{shell}");
    }
}
