//! Checks of the tree and benchmarks, for the people who work on it.
//!
//! `cargo xtask tidy` holds the tree to its laws, `cargo xtask kernels` writes the table of kernel
//! cycles, `cargo xtask bench` times passes, the simulator and whole builds, `cargo xtask same`
//! builds targets in several ways and compares.

mod bench;
mod cold;
mod kernels;
mod same;
mod source;
mod target;
mod tidy;
mod tile;
mod world;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Any failure; it ends the command.
type Failure = Box<dyn Error>;

const USAGE: &str = "\
cargo xtask tidy [--shrink] [--deny WORD]... [FILE]...
    check the tree; with files, look for denied words in these files only
    --shrink   rewrite the baseline: drop what is repaired, never add
    --deny     one more word that no tracked file may hold, in any case
cargo xtask kernels [--check]
    write docs/tables/kernels.md, or only compare with it
cargo xtask bench TARGET [--runs N] [--until plan|place|emit|time|sim]
    time the passes of a target of models/BUILD.toml, such as siglip-tiny
cargo xtask bench issues [--seconds S] [--record K181|K006|K104|K196]
    simulator speed of one core on kernels back to back
cargo xtask bench cold|null TARGET [--until STAGE] [--set KEY=VALUE] [--jobs N]
    the real build in an empty store, and again with nothing to do, beside what is accepted;
    null: only the latter
cargo xtask same [TARGET]... [--until STAGE]
    digests of every stage from two folders, 1 and 2 threads, debug and release, with and without
    vector loops; any difference fails";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.split_first() {
        Some((&"tidy", rest)) => tidy::run(rest),
        Some((&"kernels", rest)) => kernels::run(rest),
        Some((&"bench", [which @ ("cold" | "null"), rest @ ..])) => cold::run(which, rest),
        Some((&"bench", rest)) => bench::run(rest),
        Some((&"same", rest)) => same::run(rest),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    tools
        .and_then(Path::parent)
        .expect("tools/xtask")
        .to_owned()
}

/// The text of a file; a failure names the file.
fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
