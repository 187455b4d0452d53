//! `ipub explain`: what a build would do, and why.

use crate::cli::Explain;
use crate::exit::Outcome;
use crate::open;

pub fn explain(args: &Explain) -> Outcome {
    let engine = open::engine()?;
    let request = open::request(&args.target)?;
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
