//! Objects and section addresses to bytes and symbol addresses.
//!
//! Input: objects with an address for each section, symbols that the caller defines, the memory
//! base. Output: the patched bytes of each section, and all symbol values.
//! Invariants: sections do not overlap; every relocation is in range.
//! Not here: the choice of addresses.

use crate::object::{Object, Relocation, RelocationKind, Target};
use std::collections::BTreeMap;
use thiserror::Error;

/// An object and the address of each of its sections.
#[derive(Debug, Clone)]
pub struct Placed<'a> {
    pub object: &'a Object,
    pub addresses: Vec<u32>,
}

/// Linked bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub object: usize,
    pub section: usize,
    pub address: u32,
    pub bytes: Vec<u8>,
}

/// The result of linking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// In order of object and section.
    pub segments: Vec<Segment>,
    /// Global symbols and those the caller defined.
    pub globals: BTreeMap<String, i64>,
    /// All symbols of each object.
    pub symbols: Vec<BTreeMap<String, i64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LinkError {
    #[error("object {object} has {sections} sections but {addresses} addresses")]
    AddressCount {
        object: usize,
        sections: usize,
        addresses: usize,
    },
    #[error("section `{section}` of object {object} needs alignment {align}, not {address:#x}")]
    Misaligned {
        object: usize,
        section: String,
        align: u32,
        address: u32,
    },
    #[error("section `{section}` of object {object} at {address:#x} leaves the address space")]
    OutOfSpace {
        object: usize,
        section: String,
        address: u32,
    },
    #[error("section `{first}` at {first_address:#x} overlaps `{second}` at {second_address:#x}")]
    Overlap {
        first: String,
        first_address: u32,
        second: String,
        second_address: u32,
    },
    #[error("symbol `{0}` is defined twice")]
    Duplicate(String),
    #[error("symbol `{symbol}` is not defined (section `{section}` offset {offset:#x})")]
    Undefined {
        symbol: String,
        section: String,
        offset: u32,
    },
    #[error("{kind:?} at `{section}` offset {offset:#x}: value {value:#x} is not a multiple of 4")]
    Alignment {
        kind: RelocationKind,
        section: String,
        offset: u32,
        value: i64,
    },
    #[error("{kind:?} at `{section}` offset {offset:#x}: value {value:#x} is out of range")]
    Range {
        kind: RelocationKind,
        section: String,
        offset: u32,
        value: i64,
    },
    #[error("relocation of object {object} points outside its sections")]
    Malformed { object: usize },
}

/// Link objects whose sections have addresses.
pub fn link(
    inputs: &[Placed<'_>],
    externals: &BTreeMap<String, i64>,
    memory_base: u32,
) -> Result<Linked, LinkError> {
    check_addresses(inputs)?;
    let (globals, symbols) = define(inputs, externals)?;
    let mut segments = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let first = segments.len();
        for (section, &address) in input.addresses.iter().enumerate() {
            let bytes = input.object.sections[section].bytes.clone();
            segments.push(Segment {
                object: index,
                section,
                address,
                bytes,
            });
        }
        for relocation in &input.object.relocations {
            let value = target_value(index, input, relocation, &globals)?;
            let bytes = segments
                .get_mut(first + relocation.section as usize)
                .and_then(|segment| segment.bytes.get_mut(relocation.offset as usize..))
                .filter(|bytes| bytes.len() >= 4)
                .ok_or(LinkError::Malformed { object: index })?;
            let section = || {
                input.object.sections[relocation.section as usize]
                    .name
                    .clone()
            };
            patch(&mut bytes[..4], relocation, value, memory_base, section)?;
        }
    }
    Ok(Linked {
        segments,
        globals,
        symbols,
    })
}

fn check_addresses(inputs: &[Placed<'_>]) -> Result<(), LinkError> {
    let mut spans = Vec::new();
    for (object, input) in inputs.iter().enumerate() {
        let (sections, addresses) = (&input.object.sections, &input.addresses);
        if sections.len() != addresses.len() {
            let (sections, addresses) = (sections.len(), addresses.len());
            return Err(LinkError::AddressCount {
                object,
                sections,
                addresses,
            });
        }
        for (section, &address) in sections.iter().zip(addresses) {
            let name = || section.name.clone();
            if !address.is_multiple_of(section.align.max(1)) {
                let (section, align) = (name(), section.align);
                return Err(LinkError::Misaligned {
                    object,
                    section,
                    align,
                    address,
                });
            }
            let end = u64::from(address) + section.bytes.len() as u64;
            if end > 1 << 32 {
                return Err(LinkError::OutOfSpace {
                    object,
                    section: name(),
                    address,
                });
            }
            if !section.bytes.is_empty() {
                spans.push((u64::from(address), end, &section.name));
            }
        }
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        let [(start, end, first), (next, _, second)] = pair else {
            continue;
        };
        if end > next {
            return Err(LinkError::Overlap {
                first: first.to_string(),
                first_address: *start as u32,
                second: second.to_string(),
                second_address: *next as u32,
            });
        }
    }
    Ok(())
}

type Symbols = BTreeMap<String, i64>;

fn define(
    inputs: &[Placed<'_>],
    externals: &Symbols,
) -> Result<(Symbols, Vec<Symbols>), LinkError> {
    let mut globals = externals.clone();
    let mut all = Vec::new();
    for (object, input) in inputs.iter().enumerate() {
        let mut own = BTreeMap::new();
        for symbol in &input.object.symbols {
            let base = match symbol.section {
                None => 0,
                Some(section) => i64::from(
                    *input
                        .addresses
                        .get(section as usize)
                        .ok_or(LinkError::Malformed { object })?,
                ),
            };
            let value = base + symbol.value;
            own.insert(symbol.name.clone(), value);
            if symbol.global && globals.insert(symbol.name.clone(), value).is_some() {
                return Err(LinkError::Duplicate(symbol.name.clone()));
            }
        }
        all.push(own);
    }
    Ok((globals, all))
}

fn target_value(
    object: usize,
    input: &Placed<'_>,
    relocation: &Relocation,
    globals: &Symbols,
) -> Result<i64, LinkError> {
    let malformed = LinkError::Malformed { object };
    let base = match &relocation.target {
        Target::Absolute => 0,
        Target::Section(section) => {
            i64::from(*input.addresses.get(*section as usize).ok_or(malformed)?)
        }
        Target::Symbol(symbol) => *globals.get(symbol).ok_or_else(|| LinkError::Undefined {
            symbol: symbol.clone(),
            section: input
                .object
                .sections
                .get(relocation.section as usize)
                .map_or_else(String::new, |section| section.name.clone()),
            offset: relocation.offset,
        })?,
    };
    Ok(base + relocation.addend)
}

fn patch(
    bytes: &mut [u8],
    relocation: &Relocation,
    value: i64,
    memory_base: u32,
    section: impl Fn() -> String,
) -> Result<(), LinkError> {
    let (kind, offset) = (relocation.kind, relocation.offset);
    let out_of_range = || LinkError::Range {
        kind,
        section: section(),
        offset,
        value,
    };
    let (field, bits, quarter) = match kind {
        RelocationKind::Branch19 => (value, 19, true),
        RelocationKind::Absolute20 => (value, 20, false),
        RelocationKind::Word32 => (value, 32, false),
        RelocationKind::Run16 => (value - i64::from(memory_base), 16, true),
    };
    let field = match quarter {
        true if field % 4 != 0 => {
            return Err(LinkError::Alignment {
                kind,
                section: section(),
                offset,
                value,
            });
        }
        true => field / 4,
        false => field,
    };
    // A word may also hold a negative number.
    let least = if bits == 32 { i64::from(i32::MIN) } else { 0 };
    if field < least || field >= 1 << bits {
        return Err(out_of_range());
    }
    let field = field as u32;
    let spread = match kind {
        RelocationKind::Run16 => (field & 0xf000) << 4 | field & 0xfff,
        _ => field,
    };
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) | spread;
    bytes.copy_from_slice(&word.to_le_bytes());
    Ok(())
}
