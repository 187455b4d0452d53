//! Copies of the workspace with stores of their own, and the real `ipub` in them.
//!
//! Input: models, rules, kernels and the workspace file of this tree; a binary. Output: what a
//! command of it did, in events, and what it took.
//! Invariants: the store of this tree is neither read nor written; a copy is gone with its value.
//! Not here: what the figures must be.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Failure, root};

/// What of the tree a workspace needs.
const FOLDERS: [&str; 3] = ["models", "rules", "kernels"];

/// How often the memory of a command is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// A copy of the workspace with an empty store.
pub struct World {
    /// Removes the copy when it is dropped.
    _dir: TempDir,
    root: PathBuf,
}

/// What a command did.
pub struct Ran {
    pub seconds: f64,
    /// The most memory it held at once, where the system tells.
    pub peak_bytes: Option<u64>,
    pub events: Vec<Value>,
}

impl World {
    /// A copy `below` a temporary folder.
    pub fn new(below: &str) -> Result<World, Failure> {
        let dir = tempfile::tempdir()?;
        let copy_root = dir.path().join(below);
        for name in FOLDERS {
            copy(&root().join(name), &copy_root.join(name))?;
        }
        let text = "device = \"c600\"\n\n[cache]\ndir = \"cache\"\n";
        fs::write(copy_root.join("workspace.toml"), text)?;
        Ok(World {
            _dir: dir,
            root: copy_root,
        })
    }

    /// Bytes of all files of the store.
    pub fn store_bytes(&self) -> Result<u64, Failure> {
        bytes(&self.root.join("cache"))
    }

    /// Runs a command to its end; anything but success is a failure.
    pub fn run(
        &self,
        binary: &Path,
        arguments: &[&str],
        threads: Option<usize>,
    ) -> Result<Ran, Failure> {
        let mut command = Command::new(binary);
        command.args(arguments).current_dir(&self.root);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(threads) = threads {
            command.env("RAYON_NUM_THREADS", threads.to_string());
        }
        let clock = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        follow(child, clock, arguments)
    }
}

impl Ran {
    /// Events of one type.
    pub fn events(&self, name: &str) -> impl Iterator<Item = &Value> {
        let events = self.events.iter();
        events.filter(move |event| event["event"] == name)
    }

    /// The results of a build.
    pub fn results(&self) -> Result<&Value, Failure> {
        let results = self.events("results").next();
        let results = results.ok_or("the build told no results")?;
        Ok(&results["results"])
    }
}

/// Waits for a command, reading what it says and looking at its memory.
fn follow(mut child: Child, clock: Instant, arguments: &[&str]) -> Result<Ran, Failure> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, mut err) = out.zip(err).ok_or("a command without output")?;
    let mut peak_bytes = None;
    let (status, seconds, events, words) = std::thread::scope(|scope| {
        let events = scope.spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            let events = lines.filter_map(|line| serde_json::from_str(&line).ok());
            events.collect::<Vec<Value>>()
        });
        let words = scope.spawn(move || {
            let mut text = String::new();
            // What was not read is missing from the message of a failure only.
            let _ = err.read_to_string(&mut text);
            text
        });
        loop {
            if let Some(status) = child.try_wait()? {
                let seconds = clock.elapsed().as_secs_f64();
                let events = events.join().map_err(|_| "no events")?;
                let words = words.join().map_err(|_| "no messages")?;
                return Ok::<_, Failure>((status, seconds, events, words));
            }
            peak_bytes = peak_of(child.id()).or(peak_bytes);
            std::thread::sleep(LOOK);
        }
    })?;
    if !status.success() {
        return Err(format!("ipub {}: {status}\n{words}", arguments.join(" ")).into());
    }
    Ok(Ran {
        seconds,
        peak_bytes,
        events,
    })
}

/// The most memory that a process has held so far. It only grows, so the last look counts.
fn peak_of(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(1_024 * kib)
}

/// The binary of this tree in a profile, built first; `from` is the folder of the sources.
pub fn binary(from: &Path, release: bool, target: &Path) -> Result<PathBuf, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(from)
        .args(["build", "--quiet", "--package", "ipub", "--target-dir"]);
    command.arg(target).args(release.then_some("--release"));
    if !command.status()?.success() {
        return Err("ipub cannot be built".into());
    }
    let name = format!("ipub{}", std::env::consts::EXE_SUFFIX);
    Ok(target
        .join(if release { "release" } else { "debug" })
        .join(name))
}

/// The target folder that this program stands in.
pub fn target_dir() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let dir = program.ancestors().nth(2).ok_or("no target folder")?;
    Ok(dir.to_owned())
}

/// `//models:NAME` of a name or a label.
pub fn label(target: &str) -> String {
    match target.starts_with("//") {
        true => target.to_owned(),
        false => format!("//models:{target}"),
    }
}

pub fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (from, to) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        match from.is_dir() {
            true => copy(&from, &to)?,
            false => drop(fs::copy(from, to)?),
        }
    }
    Ok(())
}

fn bytes(dir: &Path) -> Result<u64, Failure> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        sum += match facts.is_dir() {
            true => bytes(&entry.path())?,
            false => facts.len(),
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_is_a_workspace_without_a_store() {
        let world = World::new("a/b").unwrap();
        assert!(world.root.join("models/BUILD.toml").is_file());
        assert!(world.root.join("workspace.toml").is_file());
        assert!(!world.root.join("cache").exists());
        assert_eq!(
            bytes(&world.root.join("rules")).unwrap(),
            bytes(&root().join("rules")).unwrap()
        );
        assert_eq!(label("mlp-b1"), "//models:mlp-b1");
    }
}
