//! `cargo xtask bench cold` and `bench null`: the real command in an empty store, and again.
//!
//! Input: a target. Output: a table of what the build took, each figure beside what is accepted.
//! Invariants: a build is measured in a fresh copy of the workspace; a figure above its bound
//! fails the command, after the whole table is told.
//! Not here: times of single passes (`bench`).

use std::path::PathBuf;

use serde_json::Value;

use crate::world::{Ran, World, binary, label, target_dir};
use crate::{Failure, USAGE, root};

const MINUTE: f64 = 60.0;
const KIB: f64 = 1_024.0;
const MIB: f64 = KIB * KIB;

/// Accepted of every target.
const PEAK_MIB_MAX: f64 = 16.0 * KIB;
const STORE_BYTES_MAX: f64 = KIB * MIB;
const PACKAGE_BYTES_MAX: f64 = 64.0 * MIB;
const NULL_SECONDS_MAX: f64 = 0.5;
/// Accepted for one image, and for two.
const TABLE_BYTES_MAX: [f64; 2] = [80.0 * KIB, 96.0 * KIB];
/// Accepted of the full tower: the beginning of its name, seconds in all, seconds of planning.
const SECONDS_MAX: [(&str, f64, f64); 2] = [
    ("siglip27-bs1", 12.0 * MINUTE, 3.0 * MINUTE),
    ("siglip27-bs2", 25.0 * MINUTE, 6.0 * MINUTE),
];

/// Stages that make a package of a graph.
const PLANNING: [&str; 3] = ["plan", "place", "package"];
/// Builds with nothing to do.
const NULL_BUILDS: usize = 10;

/// A measured figure.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    most: Option<f64>,
}

impl Figure {
    /// A value of this figure: seconds to the millisecond, all else whole.
    fn shown(&self, value: f64) -> String {
        let decimals = if self.unit == "s" { 3 } else { 0 };
        format!("{value:.decimals$} {}", self.unit)
    }
}

/// A build that is measured.
struct Bench {
    world: World,
    binary: PathBuf,
    arguments: Vec<String>,
    name: String,
}

pub fn run(which: &str, arguments: &[&str]) -> Result<(), Failure> {
    let (target, options) = arguments.split_first().ok_or(USAGE)?;
    let bench = Bench::new(target, options)?;
    let cold = bench.build()?;
    let mut figures = match which {
        "cold" => bench.cold(&cold)?,
        _ => Vec::new(),
    };
    figures.push(bench.null()?);
    tell(&bench.name, &figures)
}

impl Bench {
    fn new(target: &str, options: &[&str]) -> Result<Bench, Failure> {
        let label = label(target);
        let name = label.rsplit(':').next().unwrap_or(&label).to_owned();
        let mut arguments = vec!["build".to_owned(), label, "--json".to_owned()];
        for pair in options.chunks(2) {
            match pair {
                [option @ ("--until" | "--set" | "--jobs"), value] => {
                    arguments.extend([*option, *value].map(str::to_owned));
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(Bench {
            world: World::new("workspace")?,
            binary: binary(&root(), true, &target_dir()?)?,
            arguments,
            name,
        })
    }

    fn build(&self) -> Result<Ran, Failure> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.world.run(&self.binary, &arguments, None)
    }

    fn cold(&self, ran: &Ran) -> Result<Vec<Figure>, Failure> {
        let results = ran.results()?;
        let bound = SECONDS_MAX
            .iter()
            .find(|(name, ..)| self.name.starts_with(name));
        let figure = |name: &str, value, unit, most| Figure {
            name: name.to_owned(),
            value,
            unit,
            most,
        };
        let mut figures = vec![figure("wall", ran.seconds, "s", bound.map(|bound| bound.1))];
        let stages = results["build"]["seconds"].as_object();
        for (stage, seconds) in stages.into_iter().flatten() {
            let seconds = seconds.as_f64().unwrap_or(f64::NAN);
            figures.push(figure(&format!("stage {stage}"), seconds, "s", None));
        }
        let planning = PLANNING.map(|stage| results["build"]["seconds"][stage].as_f64());
        if planning.iter().all(Option::is_some) {
            let sum = planning.into_iter().flatten().sum();
            let name = PLANNING.join(" + ");
            figures.push(figure(&name, sum, "s", bound.map(|bound| bound.2)));
        }
        if let Some(bytes) = ran.peak_bytes {
            let peak = bytes as f64 / MIB;
            figures.push(figure("peak memory", peak, "MiB", Some(PEAK_MIB_MAX)));
        }
        let growth = self.world.store_bytes()? as f64;
        let most = Some(STORE_BYTES_MAX);
        figures.push(figure("store growth", growth, "bytes", most));
        if let Some(bytes) = results["package"]["file_bytes"].as_f64() {
            let most = Some(PACKAGE_BYTES_MAX);
            figures.push(figure("model.ipuexe", bytes, "bytes", most));
        }
        if let Some(bytes) = results["exchange"]["table_bytes_max"].as_f64() {
            let most = Some(table_bytes_max(results));
            figures.push(figure("exchange table", bytes, "bytes", most));
        }
        Ok(figures)
    }

    /// The same command again, several times: the median of its seconds.
    fn null(&self) -> Result<Figure, Failure> {
        let mut seconds = Vec::new();
        for _ in 0..NULL_BUILDS {
            let ran = self.build()?;
            if let Some(event) = ran.events("stage_started").next() {
                return Err(format!("the same command again ran {}", event["rule"]).into());
            }
            seconds.push(ran.seconds);
        }
        seconds.sort_by(f64::total_cmp);
        let middle = NULL_BUILDS / 2;
        Ok(Figure {
            name: format!("null build, median of {NULL_BUILDS}"),
            value: (seconds[middle - 1] + seconds[middle]) / 2.0,
            unit: "s",
            most: Some(NULL_SECONDS_MAX),
        })
    }
}

fn table_bytes_max(results: &Value) -> f64 {
    let batch = results["batch"].as_u64().unwrap_or(1);
    TABLE_BYTES_MAX[usize::from(batch > 1)]
}

/// The table; a failure names the figures above their bounds.
fn tell(name: &str, figures: &[Figure]) -> Result<(), Failure> {
    println!("| {name} | measured | accepted | |");
    println!("| --- | ---: | ---: | --- |");
    let mut missed = Vec::new();
    for figure in figures {
        let (accepted, verdict) = match figure.most {
            None => (String::new(), ""),
            Some(most) if figure.value <= most => (figure.shown(most), "kept"),
            Some(most) => {
                missed.push(figure.name.as_str());
                (figure.shown(most), "missed")
            }
        };
        let (name, value) = (&figure.name, figure.shown(figure.value));
        println!("| {name} | {value} | {accepted} | {verdict} |");
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("above what is accepted: {}", missed.join(", ")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_above_its_bound_fails() {
        let figure = |value| Figure {
            name: "wall".to_owned(),
            value,
            unit: "s",
            most: Some(1.0),
        };
        assert!(tell("a", &[figure(1.0)]).is_ok());
        let error = tell("a", &[figure(1.0), figure(1.5)]).unwrap_err();
        assert!(error.to_string().contains("wall"));
    }

    #[test]
    fn options_come_in_pairs() {
        assert!(run("cold", &[]).is_err());
        assert!(Bench::new("siglip-tiny", &["--until"]).is_err());
        assert!(Bench::new("siglip-tiny", &["--jib", "2"]).is_err());
    }
}
