//! Columns of numbers and texts: the encoding of all sections but the words.
//!
//! Input: values. Output: bytes, and back.
//! Invariants: one value, one encoding: a number is a little-endian base-128 varint of least
//! length, a column holds zigzag differences to the value before it. A count is compared with its
//! limit and with the bytes that are left before anything is allocated.
//! Not here: compression, what the columns mean.

use crate::error::{PackageError, SectionId};
use crate::limits::NAME_BYTES_MAX;

#[derive(Default)]
pub(crate) struct ColumnWriter {
    pub bytes: Vec<u8>,
}

impl ColumnWriter {
    pub fn number(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub fn column(&mut self, values: impl IntoIterator<Item = u32>) {
        let mut before = 0;
        for value in values {
            let difference = value.wrapping_sub(before) as i32;
            self.number(((difference << 1) ^ (difference >> 31)) as u32);
            before = value;
        }
    }

    pub fn texts<'a>(&mut self, texts: impl Iterator<Item = &'a str> + Clone) {
        self.column(texts.clone().map(|text| text.len() as u32));
        for text in texts {
            self.bytes.extend_from_slice(text.as_bytes());
        }
    }
}

pub(crate) struct ColumnReader<'a> {
    section: SectionId,
    rest: &'a [u8],
}

impl<'a> ColumnReader<'a> {
    pub fn new(section: SectionId, bytes: &'a [u8]) -> Self {
        ColumnReader {
            section,
            rest: bytes,
        }
    }

    pub fn malformed(&self, what: &'static str) -> PackageError {
        PackageError::Malformed {
            section: self.section,
            what,
        }
    }

    pub fn number(&mut self) -> Result<u32, PackageError> {
        let mut value = 0u32;
        for (index, &byte) in self.rest.iter().enumerate().take(5) {
            let part = u32::from(byte & 0x7f);
            if index == 4 && part > 0xf {
                return Err(self.malformed("a number exceeds 32 bits"));
            }
            value |= part << (7 * index);
            if byte < 0x80 {
                if byte == 0 && index > 0 {
                    return Err(self.malformed("a number is longer than it need be"));
                }
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(self.malformed("a number does not end"))
    }

    /// A count of things that take at least one byte each.
    pub fn count(&mut self, limit: u32, what: &'static str) -> Result<usize, PackageError> {
        let count = self.number()?;
        if count > limit {
            return Err(self.malformed(what));
        }
        Ok(count as usize)
    }

    pub fn column(&mut self, count: usize) -> Result<Vec<u32>, PackageError> {
        if count > self.rest.len() {
            return Err(self.malformed("a column is longer than its section"));
        }
        let mut values = Vec::with_capacity(count);
        let mut before = 0u32;
        for _ in 0..count {
            let coded = self.number()?;
            let difference = (coded >> 1) ^ (coded & 1).wrapping_neg();
            before = before.wrapping_add(difference);
            values.push(before);
        }
        Ok(values)
    }

    /// A column of counts and their sum, which is at most `limit`.
    pub fn counts(
        &mut self,
        count: usize,
        limit: u32,
        what: &'static str,
    ) -> Result<(Vec<u32>, usize), PackageError> {
        let counts = self.column(count)?;
        let sum: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        if sum > u64::from(limit) {
            return Err(self.malformed(what));
        }
        Ok((counts, sum as usize))
    }

    pub fn texts(&mut self, count: usize) -> Result<Vec<String>, PackageError> {
        let lengths = self.column(count)?;
        let mut texts = Vec::with_capacity(count);
        for length in lengths {
            if length > NAME_BYTES_MAX {
                return Err(self.malformed("a name is too long"));
            }
            let Some((text, rest)) = self.rest.split_at_checked(length as usize) else {
                return Err(self.malformed("a name is longer than its section"));
            };
            let text =
                std::str::from_utf8(text).map_err(|_| self.malformed("a name is not UTF-8"))?;
            texts.push(text.to_owned());
            self.rest = rest;
        }
        Ok(texts)
    }

    pub fn finish(self) -> Result<(), PackageError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(self.malformed("bytes are left over")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back() {
        let values = [0, 1, u32::MAX, 0, 0x8000_0000, 7, 7, 0x7fff_ffff, 127, 128];
        let mut writer = ColumnWriter::default();
        writer.column(values);
        writer.texts(["", "é", "abc"].into_iter());
        let mut reader = ColumnReader::new(SectionId::Steps, &writer.bytes);
        assert_eq!(reader.column(values.len()).unwrap(), values);
        assert_eq!(reader.texts(3).unwrap(), ["", "é", "abc"]);
        reader.finish().unwrap();
    }

    #[test]
    fn long_and_open_numbers_are_refused() {
        for bytes in [
            &[0x80][..],
            &[0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0x1f],
            &[0xff; 9],
            &[],
        ] {
            assert!(ColumnReader::new(SectionId::Steps, bytes).number().is_err());
        }
    }
}
