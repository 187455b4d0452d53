//! `ipub build`: make a target and write its artifacts.

use std::path::{Path, PathBuf};

use ipub_base::Diagnostic;
use ipub_engine::{Artifact, BuildResult, Engine, Label, Request, expand_patterns};
use serde_json::{Value, json};

use crate::cli::Build;
use crate::exit::Outcome;
use crate::record::{Recorded, Recorder};
use crate::screen::Screen;
use crate::{files, open, patterns, recipes, results};

/// Artifacts that are outputs as they are: rule, output, file.
const ARTIFACTS: [(&str, &str, &str); 5] = [
    ("package", "package", "model.ipuexe"),
    ("place", "recipe", "recipe.toml"),
    ("place", "memory", "memory.json"),
    ("run", "outputs", "outputs.npy"),
    ("metrics", "metrics", "metrics.json"),
];

pub fn build(args: &Build) -> Outcome {
    let engine = open::engine()?;
    let labels = expand_patterns(engine.workspace(), &patterns::given(&args.targets))?;
    let recorder = Recorder::new(&args.how)?;
    let outcome = build_all(&engine, args, labels, &recorder);
    // A failed build is the first to be told.
    let recorded = recorder.finish();
    outcome.and(recorded)
}

fn build_all(engine: &Engine, args: &Build, labels: Vec<Label>, recorder: &Recorder) -> Outcome {
    let several = labels.len() > 1;
    let mut failed = Vec::new();
    let total = labels.len();
    for (index, label) in labels.into_iter().enumerate() {
        if several && !args.how.json {
            eprintln!("[{}/{total}] {label}", index + 1);
        }
        let name = label.to_string();
        let outcome = build_one(engine, args, label, recorder);
        let Err(mut error) = outcome else { continue };
        if !several || !args.keep_going {
            if several {
                error.message = format!("{name}: {}", error.message);
            }
            return Err(error);
        }
        eprintln!("failed: {name}: {error}");
        failed.push((name, error));
    }
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(" ");
    let message = format!("{} of {total} targets failed: {names}", failed.len());
    // The first failure decides what sort it is.
    let (_, first) = failed.swap_remove(0);
    Err(Diagnostic::new(first.kind, message))
}

fn build_one(engine: &Engine, args: &Build, label: Label, recorder: &Recorder) -> Outcome {
    let mut request = open::request_of(label, &args.changes)?;
    request.until.clone_from(&args.until);
    request.jobs = usize::from(args.how.jobs);
    request.keep_going = args.keep_going;
    request.timeout_seconds = args.how.timeout;
    let dir = artifact_dir(&engine.workspace().root, &request.label);
    request.artifacts = ARTIFACTS
        .iter()
        .map(|(rule, output, file)| Artifact {
            rule: (*rule).to_owned(),
            output: (*output).to_owned(),
            path: dir.join(file),
        })
        .collect();
    let (build, document) = carry_out(engine, &request, args.how.json, Some(&dir), recorder)?;
    show(&build, &document, args.how.json);
    failure(&build)
}

/// The folder of a target's artifacts.
fn artifact_dir(root: &Path, label: &Label) -> PathBuf {
    root.join("artifacts")
        .join(&label.package)
        .join(&label.name)
}

/// Builds with progress; with `dir`, writes `results.json` and `run.log` there.
pub fn carry_out(
    engine: &Engine,
    request: &Request,
    json: bool,
    dir: Option<&Path>,
    recorder: &Recorder,
) -> Result<(BuildResult, Value), Diagnostic> {
    let target = engine.workspace().target(&request.label, &request.sets)?;
    let screen = Screen::new(json);
    let screen = &screen;
    let built = engine.build(request, &Recorded { recorder, screen });
    let log = screen.take_log();
    let build = built?;
    for notice in recipes::notices(engine, &target, &build) {
        eprintln!("notice: {notice}");
    }
    let document = results::document(engine, &target, &build)?;
    if let Some(dir) = dir {
        let text = serde_json::to_string_pretty(&document)
            .map_err(|error| Diagnostic::bug(error.to_string()))?;
        let written = files::write_if_new(&dir.join("results.json"), (text + "\n").as_bytes())
            .and_then(|()| files::write(&dir.join("run.log"), log.as_bytes()));
        // A failure of a stage is the first to be told; a full disk, say, causes both.
        if build.failure().is_none() {
            written?;
        }
    }
    Ok((build, document))
}

/// The results on standard output.
pub fn show(build: &BuildResult, document: &Value, json: bool) {
    if json {
        println!("{}", json!({ "event": "results", "results": document }));
    } else {
        print!("{}", results::table(build, document));
    }
}

/// The failure of a build, as the command's own.
pub fn failure(build: &BuildResult) -> Outcome {
    match build.failure() {
        None => Ok(()),
        Some((rule, failure)) => {
            let mut diagnostic = failure.diagnostic();
            diagnostic.message = format!("{rule}: {}", diagnostic.message);
            Err(diagnostic)
        }
    }
}

/// Builds until `until` and gives the bytes of outputs, named by rule and output.
pub fn outputs<const N: usize>(
    engine: &Engine,
    request: &mut Request,
    wanted: [(&str, &str); N],
) -> Result<[Vec<u8>; N], Diagnostic> {
    request.until = wanted.iter().map(|(rule, _)| (*rule).to_owned()).collect();
    let (build, _) = carry_out(engine, request, false, None, &Recorder::default())?;
    failure(&build)?;
    let mut found = [const { Vec::new() }; N];
    for (bytes, (rule, output)) in found.iter_mut().zip(wanted) {
        let made = build.stage(rule).and_then(|stage| stage.output(output));
        let made = made.ok_or_else(|| Diagnostic::bug(format!("{rule} made no {output}")))?;
        *bytes = engine.store().get_blob(made.digest)?;
    }
    Ok(found)
}
