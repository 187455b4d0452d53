//! The command line's words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Builds, runs and checks vision-transformer packages for the Graphcore C600, on a simulated one.
#[derive(Debug, Parser)]
#[command(name = "ipub", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build, run and verify targets
    Build(Build),
    /// Ask which targets, stages and source files depend on which
    Query(Query),
    /// Which targets the changes since a revision reach, and from which stage on
    Affected(Affected),
    /// Tell why stages of a target would run, line by line of their keys
    Explain(Explain),
    /// Run a target on your own inputs
    Run(Run),
    /// Show what a package holds, and how it was made
    Inspect(Inspect),
    /// Assemble IPU21 assembly
    Asm(Asm),
    /// Disassemble an object file
    Disasm(Disasm),
    /// Run an assembled program on one simulated tile
    Tile(Tile),
    /// Weights of a target
    Weights {
        #[command(subcommand)]
        command: Weights,
    },
    /// Inputs and reference outputs of a target
    Fixture {
        #[command(subcommand)]
        command: Fixture,
    },
    /// Run one stage from a folder of inputs
    Stage(Stage),
    /// The planning decisions of a target, as a file to edit
    Recipe {
        #[command(subcommand)]
        command: Recipe,
    },
    /// Build a target with every combination of the values given, and compare them
    Sweep(Sweep),
    /// List the targets of the workspace
    Targets,
    /// Check this machine and workspace
    Doctor {
        /// List the machine details that had to be assumed
        #[arg(long)]
        assumptions: bool,
    },
    /// The local store
    Cache {
        #[command(subcommand)]
        command: Cache,
    },
    /// Print a script by which a shell completes this command line
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Remove artifacts; the store stays, so that a build brings them back
    Clean(Clean),
}

/// A target and changes to its attributes.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Such as //models:siglip-tiny
    pub target: String,
    #[command(flatten)]
    pub changes: Changes,
}

/// Changes to attributes of a target.
#[derive(Debug, Args)]
pub struct Changes {
    /// Override an attribute for this build
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// A safetensors file in Hugging Face naming, instead of random weights
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Refuse a recipe that was made for another context, instead of rebasing it for --set
    #[arg(long)]
    pub strict_recipe: bool,
}

/// How a build is carried out and shown.
#[derive(Debug, Args)]
pub struct HowArgs {
    /// Stages at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: u16,
    /// Typed events and results as JSON lines on standard output
    #[arg(long)]
    pub json: bool,
    /// Typed events as JSON lines into a file
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// A trace for chrome://tracing or Perfetto, with the critical path
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// End a stage that runs longer, in place of `timeout_seconds` of its rule
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Build {
    /// Labels and patterns, such as //models:siglip-tiny //models:mlp-* //models/... //... -//models:x
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
    #[command(flatten)]
    pub changes: Changes,
    /// Make this stage and what it needs, and stop
    #[arg(long, value_name = "STAGE")]
    pub until: Vec<String>,
    /// After a failure, go on with what does not need it
    #[arg(short, long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub how: HowArgs,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One a line
    Text,
    /// One document
    Json,
    /// A graph for Graphviz
    Dot,
}

#[derive(Debug, Args)]
#[command(after_help = "\
EXPRESSION is a pattern (//..., //models:*, a label), a file, or one of
  deps(X[, DEPTH])  rdeps(UNIVERSE, X[, DEPTH])  allpaths(A, B)  somepath(A, B)
  kind(REGEX, X)    attr(NAME, REGEX, X)
joined by + - ^ (union, except, intersect), from left to right. Quote a REGEX that holds signs.")]
pub struct Query {
    /// Such as 'rdeps(//..., models/specs/siglip-tiny.toml) - //models:siglip-tiny'
    #[arg(required = true, value_name = "EXPRESSION")]
    pub words: Vec<String>,
    /// How the answer is printed
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
    /// Stages too, each with its key and what a build would do
    #[arg(long)]
    pub actions: bool,
}

#[derive(Debug, Args)]
pub struct Affected {
    /// A revision of git
    #[arg(long, value_name = "REV")]
    pub since: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    pub target: TargetArgs,
    /// All stages if absent
    pub stage: Option<String>,
    /// Compare with a build elsewhere: the file of its `--events`, or what its `--json` printed
    #[arg(long, value_name = "EVENTS.jsonl")]
    pub against: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub target: TargetArgs,
    /// One or more inputs, one after another, as npy
    #[arg(
        long,
        value_name = "FILE.npy",
        conflicts_with = "images",
        required_unless_present = "images"
    )]
    pub input: Option<PathBuf>,
    /// A PNG or JPEG image; several times for several images
    #[arg(long = "image", value_name = "FILE")]
    pub images: Vec<PathBuf>,
    /// Where outputs go, as npy
    #[arg(short, long, value_name = "OUT.npy")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub how: HowArgs,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// A package file, or a target that was built
    pub what: String,
    /// Override an attribute of the target
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Asm {
    /// Assembly, as after a C preprocessor
    pub input: PathBuf,
    /// The object file
    #[arg(short, long)]
    pub output: PathBuf,
    /// Define a number
    #[arg(short = 'D', value_name = "NAME=NUMBER")]
    pub define: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Disasm {
    /// An object file of `ipub asm`
    pub file: PathBuf,
}

/// Who runs the program of `ipub tile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Who {
    /// The entry is a kernel: frame in $m0, returns by `br $m10`
    Supervisor,
    /// All six workers begin at the entry, with the vertex base that $m0 is set to
    Worker,
}

#[derive(Debug, Args)]
pub struct Tile {
    /// An object file of `ipub asm`
    pub object: PathBuf,
    /// Where it begins
    #[arg(long, value_name = "SYMBOL")]
    pub entry: String,
    /// Who runs it
    #[arg(long = "as", value_enum, default_value = "supervisor")]
    pub who: Who,
    /// Address of the code
    #[arg(long, value_name = "ADDRESS", default_value = "0x5c000")]
    pub base: String,
    /// A supervisor register, such as m0=0x58800
    #[arg(long = "set", value_name = "REGISTER=NUMBER")]
    pub sets: Vec<String>,
    /// Write a file's bytes into memory
    #[arg(long, value_name = "ADDRESS=FILE")]
    pub load: Vec<String>,
    /// Write memory into a file afterwards
    #[arg(long, value_name = "ADDRESS+LENGTH=FILE")]
    pub dump: Vec<String>,
    /// Write a line for each issue into a file: cycle, context, address, instruction, registers
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// As JSON; of a trace, JSON lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Weights {
    /// Write a target's weights as safetensors, in Hugging Face names
    Export {
        #[command(flatten)]
        target: TargetArgs,
        /// The file
        #[arg(short, long)]
        output: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum Fixture {
    /// Write a target's inputs and reference outputs as npy files
    Export {
        #[command(flatten)]
        target: TargetArgs,
        /// The folder
        #[arg(short, long)]
        output: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct Stage {
    /// The stage, such as place
    pub name: String,
    /// The folder of its inputs
    #[arg(long = "in", value_name = "DIR")]
    pub input: PathBuf,
    /// The folder for its outputs
    #[arg(long = "out", value_name = "DIR", required_unless_present = "from")]
    pub output: Option<PathBuf>,
    /// First fill the folder of inputs from this target
    #[arg(long, value_name = "TARGET")]
    pub from: Option<String>,
    /// Override an attribute of that target
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "from")]
    pub sets: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Cache {
    /// What the store holds
    Stat {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Hash every blob and check every record and the index; exit 5 if something is damaged
    Verify {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what is damaged and build a new index; lost results are made again by a build
    Repair {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Evict what was not used for longest; what a running build uses stays
    Gc(Gc),
    /// Who made what: every record with its origin
    Audit {
        /// Only this stage, or this target
        #[arg(value_name = "STAGE or TARGET")]
        what: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Drop the results of a stage or key, or all; what a running build uses stays
    Purge {
        /// A stage such as place, or a key or its first 8 digits; everything if absent
        #[arg(value_name = "STAGE or KEY")]
        what: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write results into one file, for another store
    Export {
        /// The archive
        file: PathBuf,
        /// The latest builds of these; everything if absent
        #[arg(value_name = "TARGET")]
        targets: Vec<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Read results from a file of `ipub cache export`; a damaged one is refused
    Import {
        /// The archive
        file: PathBuf,
        /// The content of its blobs may have this size at most [default: the store's limit]
        #[arg(long, value_name = "SIZE", value_parser = ipub_engine::limits::bytes)]
        max_bytes: Option<u64>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct Gc {
    /// What may stay, such as 5GB [default: `[cache] max_bytes` of workspace.toml]
    #[arg(long, value_name = "SIZE", value_parser = ipub_engine::limits::bytes)]
    pub max_bytes: Option<u64>,
    /// Days since the last use [default: `[cache] max_age_days` of workspace.toml]
    #[arg(long, value_name = "DAYS")]
    pub max_age: Option<u64>,
    /// Only tell what would go
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Clean {
    /// The artifacts of these targets; all if absent
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Recipe {
    /// Print the recipe that a target is built by
    Show {
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Write the recipe that a target is built by as a file
    Save {
        #[command(flatten)]
        target: TargetArgs,
        /// The file; recipes/NAME.toml beside the target's BUILD.toml if absent
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the file if it is there
        #[arg(long)]
        force: bool,
    },
    /// Carry a recipe file over to the graph, policy and contracts of now
    Rebase {
        /// A recipe file, or a target that has one
        what: String,
        /// The target that a file is for, if none or several use it
        #[arg(long = "for", value_name = "TARGET")]
        target: Option<String>,
    },
    /// Compare two recipes by the names of their decisions
    Diff {
        /// A recipe file or a target
        a: String,
        /// Another one
        b: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a recipe file, and tell which stages a build by it would run
    Check {
        /// A recipe file, or a target that has one
        what: String,
        /// The target that a file is for, if none or several use it
        #[arg(long = "for", value_name = "TARGET")]
        target: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// How far each build of a sweep goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepUntil {
    /// Simulated cycles, without data
    Time,
    /// Outputs against the reference too
    Verify,
}

#[derive(Debug, Args)]
pub struct Sweep {
    /// Such as //models:siglip-tiny
    pub target: String,
    /// An attribute or decision, and the values to try
    #[arg(long = "set", value_name = "KEY=VALUE,VALUE", required = true)]
    pub sets: Vec<String>,
    /// How far each build goes
    #[arg(long, value_enum, default_value = "time")]
    pub until: SweepUntil,
    /// Build more than 256 combinations
    #[arg(long)]
    pub yes: bool,
    /// Refuse a recipe that was made for another context
    #[arg(long)]
    pub strict_recipe: bool,
    /// Stages at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: u16,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
