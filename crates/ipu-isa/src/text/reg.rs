//! Register names.

use super::TextError;
use crate::form::{Broadcast, Post};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegFile {
    M,
    A,
}

/// One register, or an aligned run of two or four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg {
    pub file: RegFile,
    pub first: u8,
    pub count: u8,
}

/// What follows a register operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suffix {
    None,
    Post(Post),
    Broadcast(Broadcast),
}

impl Suffix {
    /// The suffix of this text, which follows a register name or range.
    pub(super) fn parse(text: &str) -> Option<Suffix> {
        Some(match text {
            "" => Suffix::None,
            "+=" => Suffix::Post(Post::PlusEqual),
            "++" => Suffix::Post(Post::PlusPlus),
            ">>" => Suffix::Post(Post::Shift),
            "@" => Suffix::Post(Post::At),
            ":B" => Suffix::Broadcast(Broadcast::B),
            ":BL" => Suffix::Broadcast(Broadcast::Lower),
            ":BU" => Suffix::Broadcast(Broadcast::Upper),
            _ => return None,
        })
    }
}

const M_NAMES: &[(&str, u8)] = &[
    ("bp", 8),
    ("fp", 9),
    ("lr", 10),
    ("sp", 11),
    ("mworker_base", 12),
    ("mvertex_base", 13),
    ("mzero", 15),
];

impl Reg {
    pub(super) const fn m(first: u8) -> Reg {
        Reg {
            file: RegFile::M,
            first,
            count: 1,
        }
    }

    pub(super) const fn a(first: u8) -> Reg {
        Reg {
            file: RegFile::A,
            first,
            count: 1,
        }
    }

    /// The register of this name, without `$` and without a range.
    pub(super) fn by_name(name: &str) -> Option<Reg> {
        if let Some(&(_, number)) = M_NAMES.iter().find(|(known, _)| *known == name) {
            return Some(Reg::m(number));
        }
        match name {
            "azero" => return Some(Reg::a(15)),
            "azeros" => {
                return Some(Reg {
                    file: RegFile::A,
                    first: 14,
                    count: 2,
                });
            }
            _ => {}
        }
        let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let number = parse_number(digits)?;
        // Pair and quad indices beyond the last name the zero pair and the last quad.
        match &name[..name.len() - digits.len()] {
            "m" => Some(Reg::m(number)),
            "a" => Some(Reg::a(number)),
            "ap" => Some(Reg {
                file: RegFile::A,
                first: (2 * number).min(14),
                count: 2,
            }),
            "aq" => Some(Reg {
                file: RegFile::A,
                first: (4 * number).min(12),
                count: 4,
            }),
            "mp" if number < 8 => Some(Reg {
                file: RegFile::M,
                first: 2 * number,
                count: 2,
            }),
            _ => None,
        }
    }

    /// This register as the start of a range that ends at register `last`.
    pub(super) fn range(self, last: &str) -> Result<Reg, TextError> {
        let fail = |reason: &str| Err(TextError::new(0, reason));
        let Some(last) = parse_number(last) else {
            return fail("no such register range");
        };
        if self.count != 1 || last <= self.first {
            return fail("no such register range");
        }
        let count = last - self.first + 1;
        match (self.file, count, self.first % count) {
            (_, 2, 0) | (RegFile::A, 4, 0) => Ok(Reg { count, ..self }),
            (_, 2, _) => fail("a register pair starts at an even register"),
            (RegFile::A, 4, _) => fail("a register quad starts at a multiple of four"),
            _ => fail("no such register range"),
        }
    }
}

fn parse_number(digits: &str) -> Option<u8> {
    let canonical = digits == "0" || !digits.starts_with('0');
    let all_digits = digits.bytes().all(|b| b.is_ascii_digit());
    let number: u8 = digits.parse().ok()?;
    (canonical && all_digits && number < 16).then_some(number)
}
