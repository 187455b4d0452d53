//! `ipub asm`: assembly to an object file.

use ipu_emit::asm::{Options, Source, assemble};
use ipub_base::{Diagnostic, Location};
use ipub_stages::object_file::write_object;

use crate::cli::Asm;
use crate::exit::Outcome;
use crate::files;

pub fn asm(args: &Asm) -> Outcome {
    let name = args.input.display().to_string();
    let text = String::from_utf8(files::read(&args.input)?)
        .map_err(|_| Diagnostic::usage(format!("{name}: the text is not UTF-8")))?;
    let mut options = Options::default();
    for define in &args.define {
        let (key, value) = define.split_once('=').unwrap_or((define, "1"));
        let value = i64::from(files::number(value)?);
        options.defines.insert(key.to_owned(), value);
    }
    let source = Source {
        name: &name,
        text: &text,
    };
    let assembly = assemble(source, &options).map_err(|errors| {
        let Some((first, rest)) = errors.0.split_first() else {
            return Diagnostic::bug("the assembler failed without a fault");
        };
        let mut message = first.reason.clone();
        if !first.statement.is_empty() {
            message += &format!("\n    {}", first.statement);
        }
        for context in &first.context {
            message += &format!("\n    in {context}");
        }
        for error in rest {
            message += &format!("\n{error}");
        }
        Diagnostic::usage(message).at(Location {
            file: first.file.clone(),
            line: first.line,
            column: first.column,
        })
    })?;
    for warning in &assembly.warnings {
        eprintln!("warning: {}", warning.0);
    }
    let bytes = write_object(&assembly.object).map_err(Diagnostic::bug)?;
    files::write(&args.output, &bytes)
}
