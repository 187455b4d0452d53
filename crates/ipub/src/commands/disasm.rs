//! `ipub disasm`: an object file to text that assembles to the same words.

use std::collections::BTreeMap;

use ipu_emit::asm::disassemble;
use ipu_emit::object::Object;
use ipu_isa::Mode;
use ipub_base::Diagnostic;
use ipub_stages::object_file::read_object;

use crate::cli::Disasm;
use crate::exit::Outcome;
use crate::files;

pub fn disasm(args: &Disasm) -> Outcome {
    let bytes = files::read(&args.file)?;
    let object = read_object(&bytes)
        .map_err(|why| Diagnostic::usage(format!("{}: {why}", args.file.display())))?;
    for index in 0..object.sections.len() {
        section(&object, index);
    }
    Ok(())
}

fn section(object: &Object, index: usize) {
    let section = &object.sections[index];
    println!(".section {}", section.name);
    println!(".p2align {}", section.align.max(1).trailing_zeros());
    let of_section = |symbol: &&ipu_emit::object::Symbol| symbol.section == Some(index as u32);
    let symbols: BTreeMap<u32, String> = object
        .symbols
        .iter()
        .filter(of_section)
        .map(|symbol| (symbol.value as u32, symbol.name.clone()))
        .collect();
    let mut at = 0;
    for span in &section.code {
        data(&section.bytes[at..span.start as usize]);
        let bytes = &section.bytes[span.start as usize..span.end as usize];
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        for line in disassemble(&words, span.start, span.mode, &symbols) {
            println!("{line}");
        }
        at = span.end as usize;
    }
    data(&section.bytes[at..]);
    for relocation in &object.relocations {
        if relocation.section == index as u32 {
            let (offset, addend) = (relocation.offset, relocation.addend);
            let (kind, target) = (relocation.kind, &relocation.target);
            println!("# {offset:#x}: {kind:?} {target:?} + {addend}");
        }
    }
    if section.code.is_empty() && section.bytes.is_empty() {
        println!(".{}", Mode::Worker.name());
    }
}

fn data(bytes: &[u8]) {
    for byte in bytes {
        println!("    .byte {byte:#04x}");
    }
}
