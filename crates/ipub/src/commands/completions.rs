//! `ipub completions`: a script for a shell.

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::exit::Outcome;
use crate::files;

pub fn completions(shell: clap_complete::Shell) -> Outcome {
    // Written at once: a pipe that closes early is no failure.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ipub", &mut script);
    files::print(&String::from_utf8_lossy(&script));
    Ok(())
}
