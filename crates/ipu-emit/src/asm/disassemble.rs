//! Words to text that assembles to the same words.
//!
//! Input: words, the address of the first, the mode of the code, symbol addresses. Output: lines.
//! Invariants: linked at the same address, the lines give the words again. A branch to a word
//! inside the text goes to a label, another to the number of its field.
//! Words that are no instruction in either mode are written as data.

use ipu_isa::text::print;
use ipu_isa::{Class, Decoded, Mode, Slot, decode};
use std::collections::{BTreeMap, BTreeSet};

/// Text of a run of words. `symbols` gives names by byte address.
pub fn disassemble(
    words: &[u32],
    base: u32,
    mode: Mode,
    symbols: &BTreeMap<u32, String>,
) -> Vec<String> {
    let pieces = split(words, mode);
    let names = targets(words, base, &pieces, symbols);
    // Checks that hold for source text do not hold for any words: bodies may be cut off.
    let mut lines = vec![".allow_invalid_repeat".to_string()];
    let mut current = None;
    for (index, piece) in &pieces {
        let address = base + 4 * *index as u32;
        if let Some(name) = names.get(&address) {
            lines.push(format!("{name}:"));
        }
        let (needed, body) = match piece {
            Piece::Data(word) => (current, format!(".long {word:#010x}")),
            Piece::Solo(insn, mode) => (Some(*mode), text(insn, &names)),
            Piece::Bundle(main, aux) => (
                Some(Mode::Worker),
                format!("{{ {} ; {} }}", text(main, &names), text(aux, &names)),
            ),
        };
        if let Some(mode) = needed
            && needed != current
        {
            current = needed;
            lines.push(format!(".{}", mode.name()));
        }
        lines.push(format!("    {body}"));
    }
    lines
}

#[derive(Debug)]
enum Piece {
    Data(u32),
    Solo(Decoded, Mode),
    Bundle(Decoded, Decoded),
}

fn split(words: &[u32], mode: Mode) -> Vec<(usize, Piece)> {
    let mut pieces = Vec::new();
    let mut index = 0;
    while let Some(&word) = words.get(index) {
        let next = words.get(index + 1).copied();
        let piece = piece(word, next, mode);
        let length = match &piece {
            Piece::Bundle(..) => 2,
            Piece::Solo(insn, _) => insn.form().words(),
            Piece::Data(_) => 1,
        };
        pieces.push((index, piece));
        index += length;
    }
    pieces
}

/// The piece that starts with `word`.
fn piece(word: u32, next: Option<u32>, mode: Mode) -> Piece {
    for mode in [mode, mode.other()] {
        let Some(insn) = decode(word, mode) else {
            continue;
        };
        if insn.form().words() == 2 {
            match next {
                Some(inline) => return Piece::Solo(insn.with_inline(inline), mode),
                None => continue,
            }
        }
        if !insn.coissue {
            return Piece::Solo(insn, mode);
        }
        if let Some(aux) = next.and_then(|next| decode(next, Mode::Worker))
            && is_bundle(&insn, &aux)
        {
            return Piece::Bundle(insn, aux);
        }
    }
    Piece::Data(word)
}

/// Whether two words make a bundle that the assembler accepts.
fn is_bundle(main: &Decoded, aux: &Decoded) -> bool {
    let slots = main.form().slot == Slot::Main && aux.form().slot == Slot::Aux;
    let (am, aa) = main.form().written(&main.ops);
    let (bm, ba) = aux.form().written(&aux.ops);
    let worker = main.form().mode.contains(Mode::Worker);
    slots && worker && aux.coissue && am & bm == 0 && aa & ba == 0
}

/// Names of the addresses that the text defines: given symbols, and targets of branches.
fn targets(
    words: &[u32],
    base: u32,
    pieces: &[(usize, Piece)],
    symbols: &BTreeMap<u32, String>,
) -> BTreeMap<u32, String> {
    let starts: BTreeSet<u32> = pieces
        .iter()
        .map(|(index, _)| base + 4 * *index as u32)
        .collect();
    let mut names = BTreeMap::new();
    for (&address, name) in symbols.range(base..base + 4 * words.len() as u32) {
        if starts.contains(&address) {
            names.insert(address, name.clone());
        }
    }
    for (_, piece) in pieces {
        let insn = match piece {
            Piece::Solo(insn, _) | Piece::Bundle(insn, _) => insn,
            Piece::Data(_) => continue,
        };
        for (operand, &value) in insn.form().operands.iter().zip(&insn.ops) {
            let address = (value as u32) << 2;
            let in_field = matches!(operand.class, Class::Br19 | Class::Call20) && value < 1 << 19;
            if in_field && starts.contains(&address) {
                names
                    .entry(address)
                    .or_insert_with(|| format!(".L{address:x}"));
            }
        }
    }
    names
}

fn text(insn: &Decoded, names: &BTreeMap<u32, String>) -> String {
    let mut target = |word: u32| match names.get(&(word << 2)) {
        Some(name) if word < 1 << 19 => name.clone(),
        _ => word.to_string(),
    };
    print(insn, &mut target)
}
