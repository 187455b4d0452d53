//! `ipub targets`: what can be built here.

use crate::exit::Outcome;
use crate::open;

pub fn targets() -> Outcome {
    for target in open::workspace()?.targets()? {
        println!(
            "{}",
            format!("{:<32} {}", target.label.to_string(), target.doc).trim_end()
        );
    }
    Ok(())
}
