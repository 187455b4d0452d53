//! Command line, terminal, exit codes; one file a command.

mod cli;
mod commands;
mod exit;
mod files;
mod open;
mod patterns;
mod recipes;
mod record;
mod results;
mod screen;
mod signals;
mod timeline;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    signals::install();
    let filter = tracing_subscriber::EnvFilter::try_from_env("IPUB_LOG");
    if let Ok(filter) = filter {
        let log = tracing_subscriber::fmt().with_env_filter(filter);
        log.with_writer(std::io::stderr).init();
    }
    match cli::Cli::try_parse_from(patterns::arguments(std::env::args_os())) {
        Ok(cli) => {
            let outcome = commands::dispatch(cli);
            signals::hold_if_ending();
            exit::finish(outcome)
        }
        Err(error) => exit::command_line(&error),
    }
}
