//! What a build tells: events, a trace, the line at its end; limits of time; other machines.

mod world;

use std::fs;

use serde_json::Value;
use world::{TINY, World};

fn lines(world: &World, path: &str) -> Vec<Value> {
    let text = fs::read_to_string(world.path(path)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[test]
fn events_and_trace_go_into_files() {
    let world = World::new();
    let args = ["build", TINY, "--until", "lower", "--until", "fixture"];
    let files = ["--events", "out/events.jsonl", "--trace", "out/trace.json"];
    let ran = world.ipub(&[&args[..], &files].concat()).succeeds();
    let ended = "finished: 0 hits, 2 misses, 0 failed; read ";
    assert!(ran.stderr.contains(ended), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
    let events = lines(&world, "out/events.jsonl");
    let names: Vec<_> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        (names[0], *names.last().unwrap()),
        ("build_started", "build_finished")
    );
    let key = events
        .iter()
        .find(|event| event["event"] == "key" && event["rule"] == "fixture");
    let key = key.unwrap();
    assert_eq!(key["needs"], serde_json::json!(["lower"]));
    assert!(key["lines"].as_array().unwrap().len() > 5, "{key}");
    let last = events.last().unwrap();
    assert!(last["bytes_written"].as_u64().unwrap() > 0, "{last}");
    assert!(last["bytes_read"].as_u64().unwrap() > 0, "{last}");

    let trace = fs::read(world.path("out/trace.json")).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let critical = events
        .iter()
        .filter(|event| event["tid"] == 0 && event["ph"] == "X");
    let critical: Vec<_> = critical
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    assert_eq!(critical, ["lower", "fixture"]);

    let again = world.ipub(&args).succeeds();
    let ended = "finished: 2 hits, 0 misses, 0 failed; read 0 B, wrote 0 B; ";
    assert!(again.stderr.contains(ended), "{}", again.stderr);
}

#[test]
fn a_build_without_hits_beside_other_results_is_told() {
    let world = World::new();
    world.ipub(&["build", TINY, "--until", "lower"]).succeeds();
    let set = ["--set", "batch=2"];
    let ran = world
        .ipub(&[&["build", TINY, "--until", "lower"], &set[..]].concat())
        .succeeds();
    assert!(
        ran.stderr.contains("warning: 0 percent of 1 stages"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_stage_over_its_limit_is_ended_and_not_stored() {
    let world = World::new();
    world.edit("rules/lower.toml", "params", "timeout_seconds = 0\nparams");
    let wrong = "`timeout_seconds` must be above 0";
    world
        .ipub(&["build", TINY])
        .fails(1, &["rules/lower.toml:3", wrong]);
    world.edit(
        "rules/lower.toml",
        "timeout_seconds = 0",
        "timeout_seconds = 1000",
    );
    world
        .ipub(&["build", TINY, "--until", "lower", "--timeout", "1000"])
        .succeeds();
    world
        .ipub(&["build", TINY, "--timeout", "0"])
        .fails(1, &["--timeout"]);
}

#[test]
fn keys_are_compared_with_those_of_another_machine() {
    let (there, here) = (World::new(), World::new());
    let until = [
        "build", TINY, "--until", "lower", "--until", "fixture", "--until", "weights",
    ];
    let ran = there.ipub(&[&until[..], &["--json"]].concat()).succeeds();
    fs::write(here.path("events.jsonl"), &ran.stdout).unwrap();
    let against = |more: &[&str]| {
        let args = ["explain", TINY, "--against", "events.jsonl"];
        here.ipub(&[&args[..], more].concat()).succeeds().stdout
    };
    // Nothing is built here: the outputs of equal keys are taken from the events.
    let text = against(&[]);
    for line in [
        "lower      same key",
        "fixture    same key",
        "kernel     no key there",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        text.contains("plan       cannot be compared before kernel is made here"),
        "{text}"
    );
    here.edit(
        "models/BUILD.toml",
        "planner.tiles = 64",
        "planner.tiles = 64\nfixture.seed = 9",
    );
    let text = against(&["fixture"]);
    assert_eq!(
        text,
        "fixture    another key: param.fixture.seed\n    there 7\n    here  9\n"
    );
    let spec = "models/specs/siglip-tiny.toml";
    let with_end = fs::read_to_string(here.path(spec)).unwrap() + "\n";
    fs::write(here.path(spec), with_end).unwrap();
    let text = against(&["lower"]);
    assert!(
        text.starts_with("lower      another key: input.spec\n    there "),
        "{text}"
    );
    assert_eq!(
        text.lines().nth(2).unwrap().len(),
        "    here  ".len() + 64,
        "{text}"
    );
    let json: Value = serde_json::from_str(&against(&["weights", "--json"])).unwrap();
    assert_eq!(json["state"], "waits");
    assert_eq!(json["waits_for"], "lower");
    fs::write(here.path("events.jsonl"), "{}\n").unwrap();
    let args = ["explain", TINY, "--against", "events.jsonl"];
    here.ipub(&args)
        .fails(1, &["events.jsonl, line 1: no event"]);
}
