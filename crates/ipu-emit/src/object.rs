//! The relocatable object that the assembler makes and the linker reads.
//!
//! Invariants: symbols are sorted by name, relocations by section and offset, code spans are
//! disjoint and rising. Nothing in an object depends on comments, spacing or file names of its
//! source, so equal programs have equal objects.
//! Not here: line tables, which stand beside the object in [`crate::asm::Assembly`].

use ipu_isa::Mode;
use serde::{Deserialize, Serialize};

/// A unit of linking.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
    pub relocations: Vec<Relocation>,
}

/// A run of bytes that keeps together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    pub name: String,
    /// Required alignment in bytes, a power of two.
    pub align: u32,
    pub bytes: Vec<u8>,
    /// Where the bytes are instructions, and of which mode.
    pub code: Vec<CodeSpan>,
}

/// Instructions of one mode at the offsets `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSpan {
    pub start: u32,
    pub end: u32,
    pub mode: Mode,
}

/// A named place or number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    pub name: String,
    /// Section index; `None` for a number.
    pub section: Option<u32>,
    /// Offset in the section, or the number.
    pub value: i64,
    /// Whether other objects see it.
    pub global: bool,
}

/// A field to fill when addresses are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocation {
    pub section: u32,
    pub offset: u32,
    pub kind: RelocationKind,
    pub target: Target,
    pub addend: i64,
}

/// How the value enters the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelocationKind {
    /// Byte address over four in bits 18:0, of branches and calls.
    Branch19,
    /// Byte address in bits 19:0, of `setzi`.
    Absolute20,
    /// Byte address as a whole word.
    Word32,
    /// Byte offset from the memory base over four, split over bits 19:16 and 11:0, of `run`
    /// and `runall`.
    Run16,
}

/// What a relocation points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A section of the same object.
    Section(u32),
    /// A symbol of another object.
    Symbol(String),
    /// The addend alone.
    Absolute,
}

impl Object {
    /// Index of the section of this name.
    pub fn section_index(&self, name: &str) -> Option<usize> {
        self.sections
            .iter()
            .position(|section| section.name == name)
    }

    /// The symbol of this name.
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        let index = self
            .symbols
            .binary_search_by(|symbol| symbol.name.as_str().cmp(name))
            .ok()?;
        Some(&self.symbols[index])
    }

    /// The sections at rising addresses from `base`, each at its alignment.
    pub fn addresses_from(&self, base: u32) -> Vec<u32> {
        let mut next = base;
        let place = |section: &Section| {
            let address = next.next_multiple_of(section.align.max(1));
            next = address + section.bytes.len() as u32;
            address
        };
        self.sections.iter().map(place).collect()
    }
}
