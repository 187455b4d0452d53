//! Exit codes and the last words of a failing command. Nothing else decides them, but for a process
//! that is told to stop (`signals`).

use std::process::ExitCode;

use ipub_base::{Diagnostic, DiagnosticKind};

/// What a command ends with.
pub type Outcome = Result<(), Diagnostic>;

/// The exit code of an error.
pub const fn code(kind: DiagnosticKind) -> u8 {
    match kind {
        DiagnosticKind::Usage => 1,
        DiagnosticKind::Infeasible => 2,
        DiagnosticKind::Environment => 3,
        DiagnosticKind::Rejected => 4,
        DiagnosticKind::Verification => 5,
        DiagnosticKind::DeviceFault => 6,
        DiagnosticKind::Bug => 70,
    }
}

/// Tells the error, if any, and gives the exit code.
pub fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let word = match error.kind {
                DiagnosticKind::Usage => "error".to_owned(),
                kind => format!("error ({})", kind.name()),
            };
            eprintln!("{word}: {error}");
            if error.kind == DiagnosticKind::Bug {
                eprintln!("this is a bug of ipub: please report it with the command and this text");
            }
            ExitCode::from(code(error.kind))
        }
    }
}

/// A wrong command line, or a call for help.
pub fn command_line(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to fail differently.
    let _ = error.print();
    match error.use_stderr() {
        true => ExitCode::from(code(DiagnosticKind::Usage)),
        false => ExitCode::SUCCESS,
    }
}
