//! `cargo xtask same`: one target, one result, however it is built.
//!
//! Input: targets. Output: for each, a table of the digests of all stage outputs, and where
//! builds differ.
//! Invariants: each build has a copy of the workspace and a store of its own, in folders of
//! unequal depth. Threads, jobs, profile of the binary and vector loops are varied; the binary
//! without vector loops is built from a copy of the sources in which the simulator finds none.
//! Not here: what the outputs are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::world::{World, binary, label, target_dir};
use crate::{Failure, USAGE, root};

const TARGETS: [&str; 2] = ["siglip-tiny", "mlp-b1"];

/// Where the simulator asks for vectors.
const VECTORS: &str = "crates/ipu-sim/src";
const ASKED: &str = "is_x86_feature_detected!(";
/// An answer in its place: always false.
const ANSWERED: &str = "\"\".contains(";

/// One way to build.
struct Way {
    name: String,
    binary: PathBuf,
    folder: &'static str,
    threads: usize,
}

/// Digest of each stage output, by `stage output`.
type Digests = BTreeMap<String, String>;

pub fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (mut targets, mut until) = (Vec::new(), Vec::new());
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        match word {
            "--until" => until.extend(["--until", words.next().ok_or(USAGE)?]),
            _ if word.starts_with('-') => return Err(USAGE.into()),
            target => targets.push(target),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    let ways = ways()?;
    let mut differ = Vec::new();
    for target in targets {
        let label = label(target);
        let mut found = Vec::new();
        for way in &ways {
            found.push(digests(way, &label, &until)?);
        }
        let count = tell(target, &ways, &found);
        if count > 0 {
            differ.push(format!("{target}: {count} outputs"));
        }
    }
    match differ.is_empty() {
        true => Ok(()),
        false => Err(format!("builds differ: {}", differ.join(", ")).into()),
    }
}

fn ways() -> Result<Vec<Way>, Failure> {
    let target = target_dir()?;
    let mut ways = Vec::new();
    let binaries = [
        ("release", binary(&root(), true, &target)?),
        ("debug", binary(&root(), false, &target)?),
        ("release without vectors", portable(&target)?),
    ];
    for (profile, binary) in binaries {
        for (folder, threads) in [("one", 1), ("another/and/deeper", 2)] {
            ways.push(Way {
                name: format!("{profile}, folder `{folder}`, threads and jobs {threads}"),
                binary: binary.clone(),
                folder,
                threads,
            });
        }
    }
    Ok(ways)
}

/// The binary of a simulator that finds no vectors.
fn portable(target: &Path) -> Result<PathBuf, Failure> {
    let sources = sources()?;
    let mut asked = 0;
    for path in rust_files(&sources.path().join(VECTORS))? {
        let text = fs::read_to_string(&path)?;
        let count = text.matches(ASKED).count();
        if count > 0 {
            fs::write(&path, text.replace(ASKED, ANSWERED))?;
        }
        asked += count;
    }
    match asked {
        0 => Err(format!("{VECTORS} asks nowhere for vectors").into()),
        _ => binary(sources.path(), true, &target.join("portable")),
    }
}

/// A copy of the sources.
fn sources() -> Result<TempDir, Failure> {
    let mut command = Command::new("git");
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = command.current_dir(root()).args(list).output()?;
    if !listed.status.success() {
        return Err("git cannot list the sources".into());
    }
    let dir = tempfile::tempdir()?;
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root().join(name), dir.path().join(name));
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().ok_or("a file without a folder")?)?;
        fs::copy(from, to)?;
    }
    Ok(dir)
}

fn rust_files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

fn digests(way: &Way, label: &str, until: &[&str]) -> Result<Digests, Failure> {
    let world = World::new(way.folder)?;
    let jobs = way.threads.to_string();
    let arguments = ["build", label, "--json", "--jobs", &jobs];
    let arguments = [&arguments[..], until].concat();
    let ran = world.run(&way.binary, &arguments, Some(way.threads))?;
    println!("{label}: {}: {:.1} s", way.name, ran.seconds);
    let stages = ran.results()?["digests"].as_object();
    let outputs = stages.into_iter().flatten().flat_map(|(stage, outputs)| {
        let outputs = outputs.as_object().into_iter().flatten();
        outputs.map(move |(name, digest)| (format!("{stage} {name}"), text(digest)))
    });
    Ok(outputs.collect())
}

fn text(digest: &Value) -> String {
    digest.as_str().unwrap_or_default().to_owned()
}

/// The table of the first way, and every other digest; how many outputs differ.
fn tell(target: &str, ways: &[Way], found: &[Digests]) -> usize {
    let Some(first) = found.first() else {
        return 0;
    };
    println!("| {target} | digest | equal in {} builds |", ways.len());
    println!("| --- | --- | --- |");
    let mut differ = 0;
    let names: std::collections::BTreeSet<&String> = found.iter().flat_map(Digests::keys).collect();
    for name in names {
        let absent = || "absent".to_owned();
        let of = |digests: &Digests| digests.get(name).cloned().unwrap_or_else(absent);
        let expected = of(first);
        let others: Vec<(&Way, String)> = ways
            .iter()
            .zip(found.iter().map(of))
            .filter(|(_, digest)| *digest != expected)
            .collect();
        let verdict = if others.is_empty() { "yes" } else { "NO" };
        println!("| {name} | {} | {verdict} |", short(&expected));
        for (way, digest) in &others {
            println!("| | {} | {} |", short(digest), way.name);
        }
        differ += usize::from(!others.is_empty());
    }
    differ
}

fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_differ_or_are_absent_are_counted() {
        let way = |name: &str| Way {
            name: name.to_owned(),
            binary: PathBuf::new(),
            folder: "one",
            threads: 1,
        };
        let digests = |pairs: &[(&str, &str)]| -> Digests {
            let owned = |(name, digest): &(&str, &str)| ((*name).to_owned(), (*digest).to_owned());
            pairs.iter().map(owned).collect()
        };
        let ways = [way("a"), way("b")];
        let one = digests(&[("plan recipe", "12"), ("run outputs", "34")]);
        assert_eq!(tell("t", &ways, &[one.clone(), one.clone()]), 0);
        let other = digests(&[("plan recipe", "13")]);
        assert_eq!(tell("t", &ways, &[one, other]), 2);
    }

    #[test]
    fn the_simulator_asks_for_vectors_where_it_is_expected() {
        let files = rust_files(&root().join(VECTORS)).unwrap();
        let asks = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(ASKED);
        assert!(files.iter().any(asks));
    }
}
