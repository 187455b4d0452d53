//! Words to instructions.
//!
//! Input: a word and the mode of the context. Output: the form and operand values, or nothing.
//! Invariants: a decoded word encodes to itself. Registers that a class excludes (odd pairs,
//! M pairs above `$m10:11`, quads off a multiple of four) do not decode.
//! Not here: pairing of bundle words, which needs two words (see [`crate::form::COISSUE_BIT`]).

use crate::form::{COISSUE_BIT, Class, Form, FormId, Mode, OPERANDS_MAX, Operands};
use crate::table::FORMS;
use std::sync::OnceLock;

/// One decoded word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    pub form: FormId,
    /// Bit 31: the word is half of a bundle. False for `sendpicp`, whose bit 31 is fixed.
    pub coissue: bool,
    /// Operand values in text order. `sendpicp` has its inline word in the last two when
    /// [`Decoded::with_inline`] filled them.
    pub ops: Operands,
}

impl Decoded {
    pub fn form(&self) -> &'static Form {
        self.form.form()
    }

    /// Fill the operands held by the inline word of a two-word instruction:
    /// the 14-bit source selection and the 18-bit pointer value.
    pub fn with_inline(mut self, inline: u32) -> Decoded {
        if self.form().words() == 2 {
            self.ops[4] = (inline >> 18) as i32;
            self.ops[5] = (inline & 0x3_ffff) as i32;
        }
        self
    }

    /// The inline word of a two-word instruction, from its last two operands.
    pub fn inline_word(&self) -> Option<u32> {
        (self.form().words() == 2)
            .then(|| ((self.ops[4] as u32) << 18) | (self.ops[5] as u32 & 0x3_ffff))
    }
}

/// Bucket of a word: bits 30:24 and 11:8 separate all large families.
fn bucket(word: u32) -> usize {
    ((word >> 20) & 0x7f0 | (word >> 8) & 0xf) as usize
}

const BUCKET_MASK: u32 = 0x7f00_0f00;
const BUCKETS: usize = 1 << 11;

fn index() -> &'static [Vec<FormId>] {
    static INDEX: OnceLock<Vec<Vec<FormId>>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut index = vec![Vec::new(); BUCKETS];
        for (number, entry) in index.iter_mut().enumerate() {
            let word = ((number as u32 & 0x7f0) << 20) | ((number as u32 & 0xf) << 8);
            entry.extend(FormId::all().filter(|id| {
                let form = &FORMS[id.index()];
                (word ^ form.value) & form.mask & BUCKET_MASK == 0
            }));
        }
        index
    })
}

fn class_allows(class: Class, value: i32) -> bool {
    match class {
        Class::APair => value % 2 == 0,
        Class::MPair | Class::MPairPost(_) => value % 2 == 0 && value <= 10,
        Class::AQuad => value % 4 == 0,
        _ => true,
    }
}

/// Decode one word in `mode`.
pub fn decode(word: u32, mode: Mode) -> Option<Decoded> {
    for &id in &index()[bucket(word)] {
        let form = id.form();
        if !form.matches(word) || !form.mode.contains(mode) {
            continue;
        }
        let mut ops = [0; OPERANDS_MAX];
        for (slot, operand) in ops.iter_mut().zip(form.operands) {
            *slot = operand.extract(word);
            if !class_allows(operand.class, *slot) {
                return None;
            }
        }
        let coissue = form.can_coissue && word & COISSUE_BIT != 0;
        return Some(Decoded {
            form: id,
            coissue,
            ops,
        });
    }
    None
}
