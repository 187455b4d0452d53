//! `ipub stage`: one stage from a folder of inputs to a folder of outputs.

use ipub_base::Diagnostic;
use ipub_engine::{Request, nearest, run_stage_dir};

use crate::cli::Stage;
use crate::exit::Outcome;
use crate::open;
use crate::screen::Screen;

pub fn stage(args: &Stage) -> Outcome {
    if let Some(target) = &args.from {
        let engine = open::engine()?;
        let mut request = Request::new(target.parse()?);
        request.sets.clone_from(&args.sets);
        let screen = Screen::new(false);
        engine.export_stage_dir(&request, &args.name, &args.input, &screen)?;
        screen.take_log();
    }
    let Some(output) = &args.output else {
        return Ok(());
    };
    let stages = ipub_stages::stages();
    let Some(stage) = stages.iter().find(|stage| stage.name() == args.name) else {
        let names: Vec<_> = stages.iter().map(|stage| stage.name()).collect();
        let near = nearest(&args.name, names.iter().copied());
        let help = match near.is_empty() {
            true => format!("stages are {}", names.join(", ")),
            false => format!("did you mean {}?", near.join(" or ")),
        };
        let message = format!("unknown stage `{}`", args.name);
        return Err(Diagnostic::usage(message).help(help));
    };
    let quiet = |_: &str, _: u64, _: u64| {};
    let result = run_stage_dir(stage.as_ref(), &args.input, output, &quiet)?;
    let result = result.map_err(|failure| failure.diagnostic())?;
    for made in &result.outputs {
        println!("{:<12} {:>12} bytes  {}", made.name, made.size, made.digest);
    }
    Ok(())
}
