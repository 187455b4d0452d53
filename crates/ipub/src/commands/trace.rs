//! `ipub tile --trace`: a line for each issue, as text or JSON.
//!
//! Input: issues of the simulated tile, symbols of the program. Output: the file.
//! Invariants: lines come in the order in which contexts run (see `ipu_sim::trace`); cycles are
//! those that a program reads as `$COUNT_L`.
//! Not here: what a register held before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ipu_isa::form::COISSUE_BIT;
use ipu_isa::text::print;
use ipu_isa::{Mode, decode};
use ipu_sim::ContextId;
use ipu_sim::trace::{Issued, Sink};
use serde_json::{Map, Value, json};

use crate::exit::Outcome;
use crate::files;
use ipub_base::Diagnostic;

/// A trace that is being written.
pub struct Trace {
    path: PathBuf,
    out: Arc<Mutex<Out>>,
}

struct Out {
    file: BufWriter<File>,
    as_json: bool,
    /// Names by byte address.
    symbols: BTreeMap<u32, String>,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
}

impl Trace {
    pub fn new(
        path: &Path,
        as_json: bool,
        symbols: BTreeMap<u32, String>,
    ) -> Result<Self, Diagnostic> {
        let file = File::create(path).map_err(|error| files::unwritable(path, &error))?;
        let out = Out {
            file: BufWriter::new(file),
            as_json,
            symbols,
            failure: None,
        };
        let (path, out) = (path.to_path_buf(), Arc::new(Mutex::new(out)));
        Ok(Self { path, out })
    }

    /// Where the tile tells its issues.
    pub fn sink(&self) -> Sink {
        let out = Arc::clone(&self.out);
        Arc::new(Mutex::new(move |issued: &Issued| {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            out.line(issued);
        }))
    }

    /// Everything is in the file.
    pub fn finish(self) -> Outcome {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = out.failure.take().or_else(|| out.file.flush().err());
        failure.map_or(Ok(()), |error| Err(files::unwritable(&self.path, &error)))
    }
}

impl Out {
    fn line(&mut self, issued: &Issued) {
        if self.failure.is_some() {
            return;
        }
        let text = self.instruction(issued);
        let written = match self.as_json {
            true => writeln!(self.file, "{}", as_json(issued, &text)),
            false => writeln!(self.file, "{}", as_text(issued, &text)),
        };
        self.failure = written.err();
    }

    fn instruction(&self, issued: &Issued) -> String {
        let mode = match issued.context {
            ContextId::Supervisor => Mode::Supervisor,
            ContextId::Worker(_) => Mode::Worker,
        };
        let [first, second] = issued.words;
        match first & COISSUE_BIT {
            0 => self.half(first, mode),
            _ => format!(
                "{{ {} ; {} }}",
                self.half(first, mode),
                self.half(second, mode)
            ),
        }
    }

    fn half(&self, word: u32, mode: Mode) -> String {
        let Some(decoded) = decode(word, mode) else {
            return format!(".long {word:#010x}");
        };
        print(&decoded, &mut |target| {
            let address = target << 2;
            let name = self.symbols.get(&address).cloned();
            name.unwrap_or_else(|| format!("{address:#x}"))
        })
    }
}

/// Registers that changed, by name.
fn changed(issued: &Issued) -> impl Iterator<Item = (String, u32)> {
    let named = |file: &'static str| {
        move |(register, value): &(u8, u32)| (format!("${file}{register}"), *value)
    };
    let of_m = issued.changed_m.iter().map(named("m"));
    of_m.chain(issued.changed_a.iter().map(named("a")))
}

fn as_text(issued: &Issued, text: &str) -> String {
    let context = issued.context.to_string();
    let mut line = format!(
        "{:>10}  {context:<10}  {:#07x}  {text}",
        issued.cycle, issued.pc
    );
    for (index, (name, value)) in changed(issued).enumerate() {
        line += if index == 0 { "  # " } else { ", " };
        line += &format!("{name} = {value:#x}");
    }
    line
}

fn as_json(issued: &Issued, text: &str) -> Value {
    let changed = changed(issued).map(|(name, value)| (name, value.into()));
    let changed: Map<String, Value> = changed.collect();
    json!({
        "cycle": issued.cycle,
        "context": issued.context.to_string(),
        "pc": issued.pc,
        "instruction": text,
        "changed": changed,
    })
}
