//! `ipub tile`: an assembled program on one simulated tile.

use std::collections::BTreeMap;
use std::path::Path;

use ipu_emit::link::{Placed, link};
use ipu_emit::object::Object;
use ipu_sim::{CallResult, DeviceFault, FaultKind, TileRun};
use ipu_target::memory::SRAM_BASE;
use ipub_base::{Diagnostic, DiagnosticKind};
use ipub_stages::object_file::read_object;
use serde_json::json;

use super::trace::Trace;
use crate::cli::{Tile, Who};
use crate::exit::Outcome;
use crate::files::{self, number};

pub fn tile(args: &Tile) -> Outcome {
    let bytes = files::read(&args.object)?;
    let object = read_object(&bytes)
        .map_err(|why| Diagnostic::usage(format!("{}: {why}", args.object.display())))?;
    let Program {
        code,
        entry,
        symbols,
    } = linked(args, &object)?;
    let mut tile = TileRun::new(&code).map_err(|kind| access("the code", &kind))?;
    load(args, &mut tile)?;
    for set in &args.sets {
        set_register(args, &mut tile, set)?;
    }
    let trace = args.trace.as_deref();
    let trace = trace.map(|path| Trace::new(path, args.json, symbols));
    let trace = trace.transpose()?;
    if let Some(trace) = &trace {
        tile.trace(trace.sink());
    }
    let result = match args.who {
        Who::Supervisor => tile.call(entry),
        Who::Worker => tile.call_worker(entry),
    };
    // A trace up to the fault is worth most.
    let written = trace.map_or(Ok(()), Trace::finish);
    let result = result.map_err(|fault| device_fault(&fault))?;
    written?;
    dump(args, &tile)?;
    show(args, &result);
    Ok(())
}

struct Program {
    code: Vec<(u32, Vec<u32>)>,
    entry: u32,
    /// Names by address.
    symbols: BTreeMap<u32, String>,
}

fn linked(args: &Tile, object: &Object) -> Result<Program, Diagnostic> {
    let addresses = object.addresses_from(number(&args.base)?);
    let placed = Placed { object, addresses };
    let refuse = |why: String| Diagnostic::usage(format!("{}: {why}", args.object.display()));
    let linked = link(&[placed], &Default::default(), SRAM_BASE)
        .map_err(|error| refuse(error.to_string()))?;
    let Some(&entry) = linked.symbols[0].get(&args.entry) else {
        let names: Vec<_> = linked.symbols[0].keys().map(String::as_str).collect();
        let error = refuse(format!("there is no symbol `{}`", args.entry));
        return Err(error.help(format!("symbols are {}", names.join(", "))));
    };
    let code = linked.segments.into_iter().map(|segment| {
        let mut bytes = segment.bytes;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let words = bytes.chunks_exact(4);
        let words = words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        (segment.address, words.collect())
    });
    let names = linked.symbols[0].iter();
    Ok(Program {
        code: code.collect(),
        entry: entry as u32,
        symbols: names.map(|(name, at)| (*at as u32, name.clone())).collect(),
    })
}

fn load(args: &Tile, tile: &mut TileRun) -> Outcome {
    for load in &args.load {
        let (address, path) = pair(load, "--load ADDRESS=FILE")?;
        let bytes = files::read(Path::new(path))?;
        let address = number(address)?;
        tile.write(address, &bytes)
            .map_err(|kind| access(&format!("--load {load}"), &kind))?;
    }
    Ok(())
}

/// `$m0` is the frame that the call passes; other registers are set as they are.
fn set_register(args: &Tile, tile: &mut TileRun, set: &str) -> Outcome {
    let (register, value) = pair(set, "--set REGISTER=NUMBER")?;
    let value = number(value)?;
    let index = register.trim_start_matches('$').strip_prefix('m');
    let index = index.and_then(|digits| digits.parse::<u8>().ok());
    match index {
        Some(0) => {
            let frame = format!("--set {set}");
            tile.frame(value, &[])
                .map_err(|kind| access(&frame, &kind))?;
        }
        Some(10) => {
            let message = "`$m10` is the link of the call and cannot be set";
            return Err(Diagnostic::usage(message));
        }
        Some(index @ 1..=15) if args.who == Who::Supervisor => {
            tile.set_m(index, value);
        }
        _ => {
            let message = format!("--set {set}: `{register}` cannot be set");
            let help = "registers are m0 (the frame) and, for a supervisor, m1 to m15 but m10";
            return Err(Diagnostic::usage(message).help(help));
        }
    }
    Ok(())
}

fn dump(args: &Tile, tile: &TileRun) -> Outcome {
    for dump in &args.dump {
        let usage = "--dump ADDRESS+LENGTH=FILE";
        let (range, path) = pair(dump, usage)?;
        let Some((address, length)) = range.split_once('+') else {
            return Err(Diagnostic::usage(format!("`{dump}` is not {usage}")));
        };
        let (address, length) = (number(address)?, number(length)?);
        let words = tile
            .peek_words(address, length.div_ceil(4))
            .map_err(|kind| access(&format!("--dump {dump}"), &kind))?;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length as usize);
        files::write(Path::new(path), &bytes)?;
        if !tile.is_defined(address, length.div_ceil(4)) {
            eprintln!("warning: --dump {dump}: it holds words that nothing wrote");
        }
    }
    Ok(())
}

fn pair<'a>(text: &'a str, usage: &str) -> Result<(&'a str, &'a str), Diagnostic> {
    let parts = text.split_once('=');
    parts.ok_or_else(|| Diagnostic::usage(format!("`{text}` is not {usage}")))
}

fn show(args: &Tile, result: &CallResult) {
    if args.json {
        let launches = &result.launches;
        let (cycles, issues) = (result.cycles, &result.issues);
        println!(
            "{}",
            json!({ "cycles": cycles, "issues": issues, "launches": launches })
        );
    } else {
        println!("simulated cycles {}", result.cycles);
        println!("worker issues    {:?}", result.issues);
    }
}

fn access(what: &str, kind: &FaultKind) -> Diagnostic {
    Diagnostic::usage(format!("{what}: {kind}"))
}

fn device_fault(fault: &DeviceFault) -> Diagnostic {
    Diagnostic::new(DiagnosticKind::DeviceFault, fault.to_string())
}
