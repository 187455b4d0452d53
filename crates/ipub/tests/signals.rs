//! A process that meets the limit on file sizes, or is told to stop, ends soundly.
#![cfg(unix)]

mod world;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use world::{Ran, TINY, World};

#[test]
fn the_limit_on_file_sizes_is_an_error_and_not_an_end() {
    let world = World::new();
    let many = ["--until", "reference", "--set", "fixture.invocations=500"];
    // In blocks of 512 bytes; the signal of the limit keeps its usual effect, to kill.
    let limited = |blocks: u32| world.build_limited("", blocks, &many);
    limited(0).fails(3, &["cache"]);
    limited(420).fails(3, &["no space to write", "[cache] dir"]);
    assert!(unfinished(&world).is_empty());
    world.build(&many);
    assert_eq!(world.build(&many), [""; 0]);
}

/// Files that the store was writing.
fn unfinished(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.path("cache/tmp")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('w')).collect()
}

/// Starts a long run and waits until its stage `run` has begun.
fn running(world: &World, args: &[&str]) -> Child {
    let mut command = world.command();
    command.args(args).arg("--json");
    command.env("TMPDIR", world.path("scratch"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = |line: &str| line.contains("stage_started") && line.contains("\"run\"");
    assert!(lines.any(|line| begun(&line.unwrap())), "run has not begun");
    child
}

fn stop(child: Child, signal: &str) -> Ran {
    let process = child.id().to_string();
    let told = Command::new("kill").args([signal, &process]).status();
    assert!(told.unwrap().success());
    Ran::of(child.wait_with_output().unwrap())
}

#[test]
fn a_build_that_is_told_to_stop_keeps_what_is_finished() {
    let world = World::new();
    fs::create_dir(world.path("scratch")).unwrap();
    let long = ["build", TINY, "--set", "fixture.invocations=1000"];
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        stop(running(&world, &long), signal).fails(code, &["stopped", "store"]);
        assert!(unfinished(&world).is_empty());
    }
    // What came before `run` is not made again.
    let rest = world.build(&[]);
    for stage in ["lower", "plan", "place", "package"] {
        assert!(!rest.iter().any(|ran| ran == stage), "{stage}: {rest:?}");
    }
}

#[test]
fn a_run_on_images_that_is_told_to_stop_leaves_no_scratch() {
    let world = World::new();
    fs::create_dir(world.path("scratch")).unwrap();
    image::RgbImage::new(28, 28)
        .save(world.path("a.png"))
        .unwrap();
    let mut args = vec!["run", TINY];
    args.extend(std::iter::repeat_n(["--image", "a.png"], 400).flatten());
    stop(running(&world, &args), "-TERM").fails(143, &["stopped"]);
    assert_eq!(fs::read_dir(world.path("scratch")).unwrap().count(), 0);
}
