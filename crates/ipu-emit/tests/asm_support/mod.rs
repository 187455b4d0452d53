//! What the assembler tests share.
#![allow(dead_code)]

use ipu_emit::asm::{AsmError, Assembly, Options, Source, assemble};
use ipu_emit::link::{Placed, link};
use ipu_isa::Mode;
use ipu_isa::text::assemble_statement;
use std::collections::BTreeMap;

pub const NOP: u32 = 0x19e0_0000;

pub fn options(mode: Mode) -> Options {
    Options {
        mode,
        ..Options::default()
    }
}

pub fn build(text: &str) -> Assembly {
    let source = Source { name: "k.S", text };
    assemble(source, &options(Mode::Worker)).unwrap_or_else(|errors| panic!("{errors}"))
}

pub fn errors(text: &str) -> Vec<AsmError> {
    let source = Source { name: "k.S", text };
    assemble(source, &options(Mode::Worker))
        .expect_err("text is faulty")
        .0
}

/// The faults as `line:column reason`.
pub fn faults(text: &str) -> Vec<String> {
    let show = |e: &AsmError| format!("{}:{} {}", e.line, e.column, e.reason);
    errors(text).iter().map(show).collect()
}

pub fn linked(assembly: &Assembly, base: u32) -> Vec<u32> {
    let object = &assembly.object;
    let placed = Placed {
        object,
        addresses: object.addresses_from(base),
    };
    let image = link(&[placed], &BTreeMap::new(), 0x4_c000).expect("links");
    let bytes: Vec<u8> = image
        .segments
        .into_iter()
        .flat_map(|segment| segment.bytes)
        .collect();
    bytes
        .chunks(4)
        .map(|b| u32::from_le_bytes(b.try_into().expect("whole words")))
        .collect()
}

pub fn words(text: &str) -> Vec<u32> {
    linked(&build(text), 0)
}

/// Words of single statements, each with the co-issue bit if it starts with `*`.
pub fn spelled(statements: &[&str]) -> Vec<u32> {
    let word = |statement: &&str| match statement.strip_prefix('*') {
        Some(half) => assemble_statement(half, Mode::Worker).expect(half)[0] | 1 << 31,
        None => assemble_statement(statement, Mode::Worker).expect(statement)[0],
    };
    statements.iter().map(word).collect()
}

pub fn bytes(text: &str) -> Vec<u8> {
    build(text).object.sections[0].bytes.clone()
}
