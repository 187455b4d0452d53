//! A small two-pass assembler for tests: one statement a line, `name:` labels, `@name` for a
//! branch target, `=name` for a byte address, `.worker`, `.supervisor`, `.align`, `.word`.
#![allow(dead_code)]

use std::collections::BTreeMap;

use ipu_isa::Mode;
use ipu_isa::text::assemble_statement;
use ipu_sim::TileRun;

pub const CODE: u32 = 0x5c000;
pub const FRAME: u32 = 0x58800;

pub struct Code {
    pub words: Vec<u32>,
    pub labels: BTreeMap<String, u32>,
}

fn substitute(line: &str, labels: &BTreeMap<String, u32>) -> String {
    let mut text = line.to_owned();
    for (name, address) in labels.iter().rev() {
        text = text.replace(&format!("@{name}"), &format!("{}", address / 4));
        text = text.replace(&format!("={name}"), &format!("{address}"));
    }
    assert!(!text.contains(['@', '=']) || text.contains("+="), "{text}");
    text
}

pub fn assemble(base: u32, source: &str) -> Code {
    let mut labels = BTreeMap::new();
    for name in source.lines().filter_map(|l| l.trim().strip_suffix(':')) {
        labels.insert(name.to_owned(), base);
    }
    let mut words = Vec::new();
    for _ in 0..2 {
        words.clear();
        let mut mode = Mode::Supervisor;
        for line in source.lines().map(|l| l.split('#').next().unwrap().trim()) {
            if let Some(name) = line.strip_suffix(':') {
                let here = base + 4 * words.len() as u32;
                labels.insert(name.to_owned(), here);
            } else if line == ".worker" {
                mode = Mode::Worker;
            } else if line == ".supervisor" {
                mode = Mode::Supervisor;
            } else if line == ".align" {
                while !(base as usize + 4 * words.len()).is_multiple_of(8) {
                    words.push(0x19e0_0000);
                }
            } else if let Some(word) = line.strip_prefix(".word ") {
                words.push(u32::from_str_radix(word, 16).unwrap());
            } else if !line.is_empty() {
                let text = substitute(line, &labels);
                let one = |text: &str| {
                    let encoded = assemble_statement(text, mode);
                    encoded.unwrap_or_else(|e| panic!("{text}: {e:?}"))
                };
                if let Some(inner) = text.strip_prefix('{') {
                    let (main, aux) = inner.trim_end_matches('}').split_once(';').unwrap();
                    words.push(one(main.trim())[0] | 1 << 31);
                    words.push(one(aux.trim())[0] | 1 << 31);
                } else {
                    words.extend(one(&text));
                }
            }
        }
    }
    Code { words, labels }
}

/// A tile with the program at `CODE` and no data.
pub fn tile(source: &str) -> (TileRun, BTreeMap<String, u32>) {
    let code = assemble(CODE, source);
    let run = TileRun::new(&[(CODE, code.words)]).unwrap();
    (run, code.labels)
}

/// The usual supervisor part in front of a worker.
pub fn kernel(worker: &str) -> String {
    format!(
        ".supervisor\nmain:\nsetzi $m1, =body\nrunall $m1, $m0, 0\nsync 2\nbr $m10\n\
         .worker\n.align\nbody:\n{worker}"
    )
}

/// Run a worker program with one active worker: others exit at once. `$m0` is the frame address.
pub fn single_worker(program: &str) -> String {
    kernel(&format!(
        "get $m1, 1\nand $m1, $m1, 7\nbrnz $m1, @stop\nmov $m0, $m13\n{program}\nstop:\nexitz $m15\n"
    ))
}
