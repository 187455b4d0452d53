//! The store, as users of the real binary meet it.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use world::{Ran, TINY, World};

const PLACE: [&str; 5] = ["build", TINY, "--until", "place", "--json"];

fn json(ran: Ran) -> Value {
    serde_json::from_str(&ran.succeeds().stdout).unwrap()
}

fn stage_names(ran: &Ran, event: &str) -> Vec<String> {
    let names = ran.events(event);
    names
        .map(|event| event["rule"].as_str().unwrap().to_owned())
        .collect()
}

/// Every output of a build by its name, with its digest.
fn digests(ran: &Ran) -> BTreeMap<String, String> {
    let ends = ran.events("stage_ran").chain(ran.events("stage_hit"));
    let mut digests = BTreeMap::new();
    for end in ends {
        for output in end["outputs"].as_array().unwrap() {
            let name = format!("{}.{}", end["rule"], output["name"]);
            digests.insert(name, output["digest"].to_string());
        }
    }
    digests
}

fn blobs(world: &World) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for shard in fs::read_dir(world.path("cache/blobs")).unwrap() {
        let files = fs::read_dir(shard.unwrap().path()).unwrap();
        found.extend(files.map(|file| file.unwrap().path()));
    }
    found.sort();
    found
}

fn index(world: &World) -> PathBuf {
    let entries = fs::read_dir(world.path("cache")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_index = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "sqlite");
    paths.filter(is_index).max().unwrap()
}

#[test]
fn two_builders_at_once_share_the_work() {
    let world = World::new();
    let start = || {
        let mut command = world.command();
        command
            .args(PLACE)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let builders = [start(), start()];
    let ran = builders.map(|builder| Ran::of(builder.wait_with_output().unwrap()).succeeds());
    let mut started: Vec<_> = ran
        .iter()
        .flat_map(|ran| stage_names(ran, "stage_started"))
        .collect();
    let count = started.len();
    started.sort();
    started.dedup();
    assert_eq!(started.len(), count, "a stage ran twice: {started:?}");
    assert_eq!(digests(&ran[0]), digests(&ran[1]));
}

#[test]
fn random_kills_lose_nothing_that_was_reported() {
    const KILLS: u64 = 25;
    let world = World::new();
    let clean = World::new();
    let right = digests(&clean.ipub(&PLACE).succeeds());
    let mut made = BTreeSet::new();
    let mut random = 0x9e37_79b9_u64;
    for kill in 0..KILLS {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(kill);
        let mut command = world.command();
        let mut child = command
            .args(PLACE)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let child = child.as_mut().unwrap();
        std::thread::sleep(Duration::from_millis((random >> 33) % 400));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The last line may be torn.
            let Ok(event) = serde_json::from_str::<Value>(&line.unwrap()) else {
                continue;
            };
            let rule = event["rule"].as_str().unwrap_or_default().to_owned();
            match event["event"].as_str() {
                Some("stage_started") => assert!(!made.contains(&rule), "{rule} was lost"),
                Some("stage_ran") => _ = made.insert(rule),
                _ => {}
            }
        }
        if kill % 6 == 5 {
            // All again, but for what the next builds make.
            world.ipub(&["cache", "purge"]).succeeds();
            made.clear();
        }
    }
    assert_eq!(digests(&world.ipub(&PLACE).succeeds()), right);
    world.ipub(&["cache", "verify"]).succeeds();
}

#[test]
fn a_lost_or_damaged_index_or_blob_heals_by_itself() {
    let world = World::new();
    let right = digests(&world.ipub(&PLACE).succeeds());
    let again = || world.ipub(&PLACE).succeeds();
    fs::remove_file(index(&world)).unwrap();
    let ran = again();
    assert_eq!(stage_names(&ran, "stage_started"), [""; 0]);
    assert_eq!(ran.events("store_noted").count(), 1);
    let mut bytes = fs::read(index(&world)).unwrap();
    let middle = bytes.len() / 2;
    bytes[100..middle].fill(0x5a);
    fs::write(index(&world), bytes).unwrap();
    let ran = again();
    assert_eq!(stage_names(&ran, "stage_started"), [""; 0]);
    for blob in blobs(&world).iter().step_by(3) {
        let mut bytes = fs::read(blob).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(blob, bytes).unwrap();
    }
    world
        .ipub(&["cache", "verify"])
        .fails(5, &["faults", "cache repair"]);
    let repaired = json(world.ipub(&["cache", "repair", "--json"]));
    assert!(
        repaired["blobs_removed"].as_u64().unwrap() > 0,
        "{repaired}"
    );
    world.ipub(&["cache", "verify"]).succeeds();
    assert_eq!(digests(&again()), right);
    let blob = blobs(&world).pop().unwrap();
    fs::write(&blob, &fs::read(&blob).unwrap()[1..]).unwrap();
    let ran = again();
    assert_eq!(digests(&ran), right);
}

#[test]
fn what_a_live_build_uses_is_not_evicted() {
    let world = World::new();
    let mut command = world.command();
    let until = ["build", TINY, "--json", "--set", "fixture.invocations=300"];
    command
        .args(until)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut text = String::new();
    let mut read_until = |word: &str| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            text += &format!("{line}\n");
            if !word.is_empty() && line.contains("stage_ran") && line.contains(word) {
                break;
            }
        }
        text.clone()
    };
    read_until("\"package\"");
    let report = json(world.ipub(&["cache", "gc", "--max-bytes", "0", "--json"]));
    assert!(report["records_in_use"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["records"], 0, "{report}");
    let text = read_until("");
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(!text.contains("output_lost"), "{text}");
    // Nobody uses it any more.
    std::thread::sleep(Duration::from_millis(100));
    let report = json(world.ipub(&["cache", "gc", "--max-bytes", "0", "--json"]));
    assert_eq!(report["bytes_after"], 0, "{report}");
    assert_eq!(blobs(&world).len(), 0);
}

#[test]
fn limits_are_read_applied_and_told() {
    let world = World::new();
    world.edit(
        "workspace.toml",
        "[cache]",
        "[cache]\nmax_bytes = \"10 kB\"\nmax_age_days = 7",
    );
    let ran = world.ipub(&PLACE).succeeds();
    let noted: Vec<_> = ran.events("store_noted").collect();
    let warns = |event: &Value| {
        let message = event["message"].as_str().unwrap();
        event["warning"] == true && message.contains("max_bytes")
    };
    assert!(noted.iter().any(warns), "{noted:?}");
    // What the build itself uses stays all the same.
    assert_eq!(stage_names(&world.ipub(&PLACE), "stage_started"), [""; 0]);
    let stat = world.ipub(&["cache", "stat"]).succeeds().stdout;
    assert!(stat.contains("10,000") && stat.contains("7 days"), "{stat}");
    world.edit("workspace.toml", "\"10 kB\"", "\"10 q\"");
    world
        .ipub(&["cache", "stat"])
        .fails(1, &["workspace.toml:", "max_bytes", "20 GiB"]);
    world.edit("workspace.toml", "max_bytes", "max_byte");
    world
        .ipub(&["cache", "stat"])
        .fails(1, &["max_byte", "max_bytes"]);
}

#[test]
fn results_are_audited_dropped_and_made_again() {
    let world = World::new();
    world.ipub(&PLACE).succeeds();
    let entries = json(world.ipub(&["cache", "audit", "--json"]));
    let entries = entries.as_array().unwrap();
    let place = entries
        .iter()
        .find(|entry| entry["rule"] == "place")
        .unwrap();
    assert_eq!(
        (&place["label"], &place["executed"]),
        (&Value::from(TINY), &Value::from("local"))
    );
    let text = world.ipub(&["cache", "audit", "place"]).succeeds().stdout;
    assert!(text.contains(TINY) && text.contains("ipub"), "{text}");
    std::thread::sleep(Duration::from_millis(100));
    let key = place["key"].as_str().unwrap();
    world.ipub(&["cache", "purge", &key[..12]]).succeeds();
    assert_eq!(stage_names(&world.ipub(&PLACE), "stage_started"), ["place"]);
    std::thread::sleep(Duration::from_millis(100));
    world.ipub(&["cache", "purge", "plan"]).succeeds();
    // Its output comes out unchanged.
    assert_eq!(stage_names(&world.ipub(&PLACE), "stage_started"), ["plan"]);
    world
        .ipub(&["cache", "purge", "plann"])
        .fails(1, &["plann", "audit"]);
}

#[test]
fn an_archive_carries_a_build_elsewhere() {
    let (here, there) = (World::new(), World::new());
    let right = digests(&here.ipub(&PLACE).succeeds());
    here.ipub(&["cache", "export", "a.ipubcache", TINY])
        .succeeds();
    let archive = fs::read(here.path("a.ipubcache")).unwrap();
    let import = || there.ipub(&["cache", "import", "a.ipubcache"]);
    fs::write(there.path("a.ipubcache"), &archive[..archive.len() - 9]).unwrap();
    import().fails(1, &["a.ipubcache", "refused"]);
    fs::write(there.path("a.ipubcache"), &archive).unwrap();
    there
        .ipub(&["cache", "import", "a.ipubcache", "--max-bytes", "5kB"])
        .fails(1, &["5000 bytes"]);
    import().succeeds();
    let ran = there.ipub(&PLACE).succeeds();
    assert_eq!(stage_names(&ran, "stage_started"), [""; 0]);
    assert_eq!(digests(&ran), right);
    here.ipub(&["cache", "export", "b", "//models:absent"])
        .fails(1, &["nothing to export"]);
    assert!(!here.path("b").exists());
    there
        .ipub(&["cache", "import", "absent"])
        .fails(1, &["absent"]);
}

#[test]
fn clean_removes_artifacts_and_never_the_store() {
    let world = World::new();
    world.ipub(&PLACE).succeeds();
    let artifacts = world.path("artifacts/models/siglip-tiny");
    assert!(artifacts.join("recipe.toml").is_file());
    fs::write(world.path("artifacts/README.md"), "kept").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(world.path("cache"), world.path("artifacts/link")).unwrap();
    let before = blobs(&world);
    world.ipub(&["clean", "//models:other"]).succeeds();
    assert!(artifacts.is_dir());
    world.ipub(&["clean"]).succeeds();
    let left: Vec<_> = fs::read_dir(world.path("artifacts")).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(blobs(&world), before);
    assert_eq!(stage_names(&world.ipub(&PLACE), "stage_started"), [""; 0]);
    assert!(artifacts.join("recipe.toml").is_file());
    world.ipub(&["clean", TINY]).succeeds();
    assert!(!artifacts.exists());
}
