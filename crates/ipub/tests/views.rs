//! What people look at: the trace of a tile, the host plan of a package.

mod world;

use std::fs;

use serde_json::Value;
use world::{Ran, TINY, World};

/// A run of the copy kernel on one tile.
fn copy(world: &World, more: &[&str]) -> Ran {
    let args = [
        "tile",
        "copy.o",
        "--entry",
        "copy_u64",
        "--load",
        "0x60000=data",
        "--load",
        "0x58800=frame",
        "--set",
        "m0=0x58800",
    ];
    world.ipub(&[&args[..], more].concat()).succeeds()
}

fn copy_run(world: &World, more: &[&str]) -> Value {
    let ran = copy(world, &[&["--json"], more].concat());
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_trace_has_a_line_for_each_issue() {
    let world = World::new();
    let kernel = "kernels/copy/copy_u64.S";
    world.ipub(&["asm", kernel, "-o", "copy.o"]).succeeds();
    fs::write(world.path("data"), [7; 64]).unwrap();
    let words = [0x60000_u32, 0x70000, 8];
    let frame: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(world.path("frame"), frame).unwrap();
    let plain = copy_run(&world, &[]);
    let traced = copy_run(&world, &["--trace", "trace.jsonl"]);
    assert_eq!(plain, traced, "a trace changes nothing");

    let text = fs::read_to_string(world.path("trace.jsonl")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |context: &str| {
        lines
            .iter()
            .filter(|line| line["context"] == context)
            .count() as u64
    };
    for worker in 0..6 {
        let issues = plain["issues"][worker].as_u64().unwrap();
        assert_eq!(of(&format!("worker {worker}")), issues, "{text}");
    }
    assert_eq!(of("supervisor"), 4);
    assert_eq!(lines[0]["context"], "supervisor");
    assert!(lines[0]["changed"]["$m1"].is_u64(), "{}", lines[0]);
    let word = "ld64step";
    assert!(
        lines
            .iter()
            .any(|line| line["instruction"].as_str().unwrap().contains(word))
    );

    copy(&world, &["--trace", "trace.txt"]);
    let text = fs::read_to_string(world.path("trace.txt")).unwrap();
    assert_eq!(text.lines().count(), lines.len());
    assert!(text.contains("supervisor  0x5c000"), "{text}");
    let args = [
        "tile",
        "copy.o",
        "--entry",
        "copy_u64",
        "--trace",
        "no/folder",
    ];
    world.ipub(&args).fails(3, &["no/folder"]);
}

#[test]
fn inspect_shows_the_host_plan() {
    let world = World::new();
    world.build(&["--until", "package"]);
    let shown = world.ipub(&["inspect", TINY, "--json"]).succeeds();
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let host = &shown["host"];
    let moved = |transfer: &Value| transfer["bytes"].as_u64().unwrap();
    let bound = |role: &str| -> u64 {
        let tensors = shown[role].as_array().unwrap();
        tensors
            .iter()
            .map(|tensor| tensor["device_bytes"].as_u64().unwrap())
            .sum()
    };
    let [parameters, inputs, outputs] = [&host["initialize"][0], &host["run"][0], &host["run"][1]];
    for (transfer, role) in [
        (parameters, "parameters"),
        (inputs, "inputs"),
        (outputs, "outputs"),
    ] {
        assert_eq!(transfer["what"], role);
        // Runs are whole words.
        assert!(
            (bound(role)..bound(role) + 2_048).contains(&moved(transfer)),
            "{transfer}"
        );
        for figure in ["batches", "programs", "packets", "endpoints"] {
            assert!(
                transfer[figure].as_u64().unwrap() > 0,
                "{figure}: {transfer}"
            );
        }
    }
    // A packet moves at most 1,024 bytes to the device, 256 to the host.
    assert!(parameters["packets"].as_u64().unwrap() >= moved(parameters) / 1_024);
    assert!(outputs["packets"].as_u64().unwrap() >= moved(outputs) / 256);
    let text = world.ipub(&["inspect", TINY]).succeeds().stdout;
    for words in ["host call", "initialize", "packets", "to host"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
