//! Computes the fingerprint of each stage from the sources that it consists of.
//!
//! Input: the workspace's Rust sources and manifests, `Cargo.lock`, the compiler's version.
//! Output: `fingerprints.rs` with one hex digest and one list of crates for each stage.
//! Invariants: comments, doc comments, tests, formatting outside literals where tokens keep their
//! spacing, the folder, the profile and CPU features change no fingerprint.
//! Not here: any use of fingerprints.

#[path = "build/closure.rs"]
mod closure;
#[path = "build/tokens.rs"]
mod tokens;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use closure::Workspace;

/// Each stage and the crates of its pass. Crates that the stage's own file names are added.
const STAGES: &[(&str, &[&str])] = &[
    ("fixture", &["ipu-model"]),
    ("kernel", &["ipu-emit"]),
    ("lower", &["ipu-model"]),
    ("metrics", &[]),
    ("package", &["ipu-emit"]),
    ("place", &["ipu-place"]),
    ("plan", &["ipu-plan"]),
    ("reference", &["ipu-model"]),
    ("run", &["ipu-sim"]),
    ("time", &["ipu-sim"]),
    ("verify", &["ipu-model"]),
    ("weights", &["ipu-model"]),
];

struct Fingerprint {
    digest: String,
    crates: Vec<String>,
}

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    for path in ["build.rs", "build", "src"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let found = match here.ancestors().nth(2) {
        Some(root) if root.join("Cargo.lock").is_file() => fingerprints(root, &here),
        _ => Ok(BTreeMap::new()),
    };
    let found = found.unwrap_or_else(|why| {
        println!("cargo::warning=stages take the program's own digest as fingerprint: {why}");
        BTreeMap::new()
    });
    let mut digests = String::new();
    let mut crates = String::new();
    for (stage, fingerprint) in &found {
        let Fingerprint {
            digest,
            crates: names,
        } = fingerprint;
        writeln!(digests, "    ({stage:?}, {digest:?}),").unwrap();
        writeln!(crates, "    ({stage:?}, &{names:?}),").unwrap();
    }
    let text = format!(
        "/// Fingerprints by stage, as hex digits; empty where there are no sources.\n\
         pub const FINGERPRINTS: &[(&str, &str)] = &[\n{digests}];\n\
         /// The workspace crates in the closure of each stage.\n\
         pub const CLOSURES: &[(&str, &[&str])] = &[\n{crates}];\n"
    );
    let out = Path::new(&variable("OUT_DIR")).join("fingerprints.rs");
    std::fs::write(out, text).expect("OUT_DIR is writable");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn fingerprints(root: &Path, here: &Path) -> Result<BTreeMap<String, Fingerprint>, String> {
    let mut workspace = Workspace::open(root)?;
    let compiler = compiler()?;
    let mut found = BTreeMap::new();
    for (stage, passes) in STAGES {
        let own = workspace.stage_files(here, stage)?;
        let named = own.crates.iter().map(String::as_str);
        let crates = workspace.closure(passes.iter().copied().chain(named))?;
        let mut hasher = blake3::Hasher::new();
        let mut line = |kind: &str, name: &str, value: &str| {
            for part in [kind, name, value] {
                hasher
                    .update(&(part.len() as u64).to_le_bytes())
                    .update(part.as_bytes());
            }
        };
        line("format", "ipub.fingerprint", "1");
        line("compiler", "release", &compiler);
        line("compiler", "target", &variable("TARGET"));
        line("stage", "name", stage);
        for (path, digest) in &own.files {
            line("stage file", path, digest);
        }
        for name in &crates {
            for (path, digest) in workspace.crate_files(name)? {
                line("file", &path, &digest);
            }
        }
        for (package, facts) in workspace.outside(&crates)? {
            line("outside", &package, &facts);
        }
        let digest = hasher.finalize().to_hex().to_string();
        found.insert((*stage).to_owned(), Fingerprint { digest, crates });
    }
    for path in workspace.watched() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Ok(found)
}

/// The compiler's release and commit.
fn compiler() -> Result<String, String> {
    let output = Command::new(variable("RUSTC")).arg("-vV").output();
    let output = output.map_err(|error| format!("rustc -vV: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let wanted = |line: &&str| line.starts_with("release:") || line.starts_with("commit-hash:");
    Ok(text.lines().filter(wanted).collect::<Vec<_>>().join(" "))
}
