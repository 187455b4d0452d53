//! Commands, one file each.

mod affected;
mod asm;
pub mod build;
mod cache;
mod clean;
mod completions;
mod disasm;
mod doctor;
mod explain;
mod fixture;
mod host_plan;
mod images;
mod inspect;
mod query;
mod recipe;
mod run;
mod stage;
mod sweep;
mod targets;
mod tile;
mod trace;
mod weights;

use crate::cli::{Cli, Command, Fixture, Weights};
use crate::exit::Outcome;

/// Carries out the command.
pub fn dispatch(cli: Cli) -> Outcome {
    match cli.command {
        Command::Build(args) => build::build(&args),
        Command::Query(args) => query::query(&args),
        Command::Affected(args) => affected::affected(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Run(args) => run::run(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Asm(args) => asm::asm(&args),
        Command::Disasm(args) => disasm::disasm(&args),
        Command::Tile(args) => tile::tile(&args),
        Command::Weights {
            command: Weights::Export { target, output },
        } => weights::export(&target, &output),
        Command::Fixture {
            command: Fixture::Export { target, output },
        } => fixture::export(&target, &output),
        Command::Stage(args) => stage::stage(&args),
        Command::Recipe { command } => recipe::recipe(&command),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Targets => targets::targets(),
        Command::Doctor { assumptions } => doctor::doctor(assumptions),
        Command::Cache { command } => cache::cache(&command),
        Command::Completions { shell } => completions::completions(shell),
        Command::Clean(args) => clean::clean(&args),
    }
}
