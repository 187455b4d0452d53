//! `ipub explain`: what a build would do, and why.

use std::path::Path;

use ipub_base::Diagnostic;
use ipub_engine::{Engine, Recorded, Request};

use crate::cli::Explain;
use crate::exit::Outcome;
use crate::{files, open};

pub fn explain(args: &Explain) -> Outcome {
    let engine = open::engine()?;
    let request = open::request(&args.target)?;
    if let Some(file) = &args.against {
        return against(args, &engine, &request, file);
    }
    let stages: Vec<String> = match &args.stage {
        Some(stage) => vec![stage.clone()],
        None => {
            let target = engine.workspace().target(&request.label, &request.sets)?;
            let rules = engine.workspace().rules.values();
            let rules = rules.filter(|rule| rule.goal && rule.applies_to(&target.kind));
            rules.map(|rule| rule.name.clone()).collect()
        }
    };
    for stage in stages {
        let explanation = engine.explain(&request.label, &request.sets, &stage)?;
        if args.json {
            println!(
                "{}",
                serde_json::to_string(&explanation).unwrap_or_default()
            );
        } else {
            println!("{explanation}");
        }
    }
    Ok(())
}

/// What differs from a build elsewhere.
fn against(args: &Explain, engine: &Engine, request: &Request, file: &Path) -> Outcome {
    let text = String::from_utf8(files::read(file)?);
    let name = file.display().to_string();
    let text = text.map_err(|_| Diagnostic::usage(format!("{name}: the file is not UTF-8")))?;
    let recorded = Recorded::parse(&name, &text, &request.label)?;
    let mut stages = engine.against(&request.label, &request.sets, &recorded)?;
    if let Some(wanted) = &args.stage {
        stages.retain(|stage| stage.rule == *wanted);
        if stages.is_empty() {
            let message = format!("{} has no stage `{wanted}`", request.label);
            return Err(Diagnostic::usage(message));
        }
    }
    for stage in stages {
        match args.json {
            true => {
                let text = serde_json::to_string(&stage).unwrap_or_default();
                files::print(&(text + "\n"));
            }
            false => files::print(&format!("{stage}\n")),
        }
    }
    Ok(())
}
