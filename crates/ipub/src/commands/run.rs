//! `ipub run`: a target on the user's inputs.

use ipub_stages::Array;

use super::build::{carry_out, failure, show};
use crate::cli::Run;
use crate::exit::Outcome;
use crate::{files, open};
use ipub_base::Diagnostic;

pub fn run(args: &Run) -> Outcome {
    let engine = open::engine()?;
    let mut request = open::request(&args.target)?;
    request
        .sets
        .push(open::set_file("fixture.file", &args.input)?);
    request.until = vec!["run".to_owned()];
    request.jobs = usize::from(args.how.jobs);
    let (build, document) = carry_out(&engine, &request, args.how.json, None)?;
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
