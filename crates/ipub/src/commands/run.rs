//! `ipub run`: a target on the user's inputs.

use ipub_base::Diagnostic;
use ipub_stages::Array;
use tempfile::TempDir;

use super::build::{carry_out, failure, show};
use super::images;
use crate::cli::Run;
use crate::exit::Outcome;
use crate::record::Recorder;
use crate::{files, open, signals};

/// The inputs in a scratch folder.
const INPUTS: &str = "images.npy";

pub fn run(args: &Run) -> Outcome {
    let engine = open::engine()?;
    let mut request = open::request(&args.target)?;
    // Made from images, it is kept until the run is over.
    let made;
    let input = match &args.input {
        Some(input) => input.clone(),
        None => {
            let array = images::inputs(&engine, &request, &args.images)?;
            made = scratch(&array)?;
            made.path().join(INPUTS)
        }
    };
    request.sets.push(open::set_file("fixture.file", &input)?);
    request.until = vec!["run".to_owned()];
    request.jobs = usize::from(args.how.jobs);
    request.timeout_seconds = args.how.timeout;
    let recorder = Recorder::new(&args.how)?;
    let (build, document) = carry_out(&engine, &request, args.how.json, None, &recorder)?;
    recorder.finish()?;
    show(&build, &document, args.how.json);
    failure(&build)?;
    let Some(outputs) = build.stage("run").and_then(|stage| stage.output("outputs")) else {
        return Err(Diagnostic::bug("run made no outputs"));
    };
    let bytes = engine.store().get_blob(outputs.digest)?;
    match &args.output {
        Some(path) => files::write(path, &bytes),
        None => {
            let array = Array::from_npy(&bytes).map_err(|e| Diagnostic::bug(e.to_string()))?;
            if !args.how.json {
                println!(
                    "  outputs                {:?}; write them with -o",
                    array.shape
                );
            }
            Ok(())
        }
    }
}

/// A folder with the inputs, that is gone when it is dropped.
fn scratch(inputs: &Array) -> Result<TempDir, Diagnostic> {
    let bytes = inputs.to_npy();
    let bytes = bytes.map_err(|error| Diagnostic::bug(error.to_string()))?;
    let dir = tempfile::Builder::new().prefix("ipub-images-").tempdir();
    let dir =
        dir.map_err(|error| Diagnostic::environment(format!("no folder for the images: {error}")))?;
    signals::scratch(dir.path());
    files::write(&dir.path().join(INPUTS), &bytes)?;
    Ok(dir)
}
