//! A temporary workspace for the real binary.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub const TINY: &str = "//models:siglip-tiny";

/// Every stage of a target, by name.
pub const STAGES: [&str; 12] = [
    "fixture",
    "kernel",
    "lower",
    "metrics",
    "package",
    "place",
    "plan",
    "reference",
    "run",
    "time",
    "verify",
    "weights",
];

pub struct World {
    pub dir: tempfile::TempDir,
}

/// What the binary did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The root of this repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["models", "rules", "kernels"] {
            copy(&root().join(name), &dir.path().join(name));
        }
        let file = "workspace.toml";
        fs::copy(root().join(file), dir.path().join(file)).unwrap();
        Self { dir }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipub"));
        command.current_dir(self.dir.path()).env("CI", "1");
        command
    }

    pub fn ipub(&self, args: &[&str]) -> Ran {
        Ran::of(self.command().args(args).output().unwrap())
    }

    /// Builds the tiny target with a limit on the size of files, in blocks of 512 bytes, after a
    /// command of the shell.
    pub fn build_limited(&self, before: &str, blocks: u32, args: &[&str]) -> Ran {
        let (binary, args) = (env!("CARGO_BIN_EXE_ipub"), args.join(" "));
        let script = format!("{before} ulimit -f {blocks}; exec {binary} build {TINY} {args}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script])
            .current_dir(self.dir.path())
            .env("CI", "1");
        Ran::of(command.output().unwrap())
    }

    pub fn edit(&self, path: &str, old: &str, new: &str) {
        let path = self.path(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{} holds no `{old}`", path.display());
        fs::write(&path, text.replacen(old, new, 1)).unwrap();
    }

    /// Builds the tiny target and gives the stages that ran, sorted.
    pub fn build(&self, args: &[&str]) -> Vec<String> {
        let ran = self.ipub(&[&["build", TINY, "--json"], args].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let mut stages: Vec<String> = ran
            .events("stage_started")
            .map(|event| event["rule"].as_str().unwrap().to_owned())
            .collect();
        stages.sort();
        stages
    }

    pub fn results(&self) -> Value {
        let path = self.path("artifacts/models/siglip-tiny/results.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The events of one type.
    pub fn events<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Value> + 'a {
        let lines = self.stdout.lines();
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(move |event| event["event"] == name)
    }

    /// Fails with this exit code, and says all of this.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        for word in words {
            assert!(
                self.stderr.contains(word),
                "no `{word}` in:\n{}",
                self.stderr
            );
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    #[track_caller]
    pub fn succeeds(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}", self.stdout, self.stderr);
        self
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
