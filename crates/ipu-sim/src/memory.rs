//! The memory of one tile with a definedness bit for each 32-bit word.
//!
//! Input: byte addresses of the tile. Output: values and whether they are defined.
//! Invariants: storage is allocated zeroed, so pages that no one writes cost nothing; a word is
//! defined once something wrote it.
//! Not here: which accesses an instruction makes (see `exec::memory`).

use ipu_target::memory::{REGION_BOUNDARY, SRAM_BASE, SRAM_BYTES, element_of};

use crate::fault::{Exec, FaultKind};

const WORDS: usize = (SRAM_BYTES / 4) as usize;

/// Tile memory.
#[derive(Clone, PartialEq)]
pub struct Memory {
    words: Vec<u32>,
    defined: Vec<u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            words: vec![0; WORDS],
            defined: vec![0; WORDS / 64],
        }
    }
}

/// Index of the first word of an access, once checked.
#[inline(always)]
fn index(address: u32, bytes: u32) -> Exec<usize> {
    let offset = address.wrapping_sub(SRAM_BASE);
    if offset > SRAM_BYTES - bytes || offset & (bytes - 1) != 0 {
        return Err(refuse(address, bytes));
    }
    Ok((offset / 4) as usize)
}

#[cold]
fn refuse(address: u32, bytes: u32) -> Box<FaultKind> {
    Box::new(if address.is_multiple_of(bytes) {
        FaultKind::OutOfRange { address, bytes }
    } else {
        FaultKind::Misaligned { address, bytes }
    })
}

impl Memory {
    /// Load 8, 16 or 32 bits (`bytes` 1, 2, 4), zero-extended. True when undefined.
    #[inline(always)]
    pub fn load(&self, address: u32, bytes: u32) -> Exec<(u32, bool)> {
        let at = index(address, bytes)?;
        let shift = (address & 3 & !(bytes - 1)) * 8;
        let mask = u32::MAX >> (32 - 8 * bytes);
        Ok(((self.words[at] >> shift) & mask, !self.is_defined(at)))
    }

    /// Load 64 bits; the flags say which word is undefined (bit 0 the lower).
    #[inline(always)]
    pub fn load64(&self, address: u32) -> Exec<(u64, u32)> {
        let at = index(address, 8)?;
        let pair: &[u32; 2] = self.words[at..at + 2].try_into().expect("two words");
        let value = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        let undefined = !(self.defined[at / 64] >> (at % 64)) as u32 & 3;
        Ok((value, undefined))
    }

    /// Load 64 bits from an address that was checked before.
    #[inline(always)]
    pub fn load64_checked(&self, address: u32) -> u64 {
        let at = (address.wrapping_sub(SRAM_BASE) / 4) as usize;
        let pair: &[u32; 2] = self.words[at..at + 2].try_into().expect("two words");
        u64::from(pair[0]) | u64::from(pair[1]) << 32
    }

    /// Store 64 defined bits to an address that was checked before.
    #[inline(always)]
    pub fn store64_checked(&mut self, address: u32, value: u64) {
        let at = (address.wrapping_sub(SRAM_BASE) / 4) as usize;
        self.words[at..at + 2].copy_from_slice(&[value as u32, (value >> 32) as u32]);
        self.defined[at / 64] |= 3 << (at % 64);
    }

    /// Store 64 bits to an address that was checked before and leave its definedness to the caller.
    #[inline(always)]
    pub fn put64_checked(&mut self, address: u32, value: u64) {
        let at = (address.wrapping_sub(SRAM_BASE) / 4) as usize;
        self.words[at..at + 2].copy_from_slice(&[value as u32, (value >> 32) as u32]);
    }

    /// Whether the eight words from an address that was checked before are defined.
    #[inline(always)]
    pub fn row_is_defined_checked(&self, address: u32) -> bool {
        let at = (address.wrapping_sub(SRAM_BASE) / 4) as usize;
        let mut bits = self.defined[at / 64] >> (at % 64);
        if at % 64 > 56 {
            bits |= self.defined[at / 64 + 1] << (64 - at % 64);
        }
        bits & 0xff == 0xff
    }

    /// Load four words of 64 bits from an address that was checked before.
    #[inline(always)]
    pub fn row_checked(&self, address: u32) -> [u64; 4] {
        let at = (address.wrapping_sub(SRAM_BASE) / 4) as usize;
        let row: &[u32; 8] = self.words[at..at + 8].try_into().expect("eight words");
        std::array::from_fn(|i| u64::from(row[2 * i]) | u64::from(row[2 * i + 1]) << 32)
    }

    /// Store four words of 64 bits to an address that was checked before and leave their definedness
    /// to the caller.
    #[inline(always)]
    pub fn put_row_checked(&mut self, address: u32, row: [u64; 4]) {
        let at = (address.wrapping_sub(SRAM_BASE) / 4) as usize;
        let words: &mut [u32; 8] = (&mut self.words[at..at + 8])
            .try_into()
            .expect("eight words");
        for (i, word) in row.into_iter().enumerate() {
            words[2 * i] = word as u32;
            words[2 * i + 1] = (word >> 32) as u32;
        }
    }

    /// Mark words defined from an address that was checked before.
    pub fn define_checked(&mut self, address: u32, count: usize) {
        self.define((address.wrapping_sub(SRAM_BASE) / 4) as usize, count);
    }

    /// Check a 128-bit access, which needs interleaved memory.
    #[inline(always)]
    pub fn check128(&self, address: u32) -> Exec<()> {
        index(address, 16)?;
        if address < REGION_BOUNDARY {
            return Err(Box::new(FaultKind::NotInterleaved { address }));
        }
        Ok(())
    }

    #[inline(always)]
    pub fn store(&mut self, address: u32, value: u32, undefined: bool) -> Exec<()> {
        let at = index(address, 4)?;
        self.words[at] = value;
        let bit = 1u64 << (at % 64);
        let slot = &mut self.defined[at / 64];
        *slot = if undefined { *slot & !bit } else { *slot | bit };
        Ok(())
    }

    #[inline(always)]
    pub fn store64(&mut self, address: u32, value: u64, undefined: u32) -> Exec<()> {
        let at = index(address, 8)?;
        self.words[at..at + 2].copy_from_slice(&[value as u32, (value >> 32) as u32]);
        let slot = &mut self.defined[at / 64];
        *slot = *slot & !(3 << (at % 64)) | u64::from(!undefined & 3) << (at % 64);
        Ok(())
    }

    #[inline(always)]
    fn is_defined(&self, at: usize) -> bool {
        self.defined[at / 64] >> (at % 64) & 1 != 0
    }

    /// A range of whole words, for transfers that the host or the exchange makes.
    pub fn words(&self, address: u32, count: u32) -> Exec<&[u32]> {
        let at = self.range(address, count)?;
        Ok(&self.words[at..at + count as usize])
    }

    /// First undefined byte address of a range of whole words.
    pub fn first_undefined(&self, address: u32, count: u32) -> Exec<Option<u32>> {
        let at = self.range(address, count)?;
        for (slot, mask) in masks(at, count as usize) {
            let undefined = !self.defined[slot] & mask;
            if undefined != 0 {
                let i = 64 * slot as u32 + undefined.trailing_zeros();
                return Ok(Some(SRAM_BASE + 4 * i));
            }
        }
        Ok(None)
    }

    /// Write whole words and mark them defined.
    pub fn write_words(&mut self, address: u32, words: &[u32]) -> Exec<()> {
        let at = self.range(address, words.len() as u32)?;
        self.words[at..at + words.len()].copy_from_slice(words);
        self.define(at, words.len());
        Ok(())
    }

    /// Copy whole words, which are defined and overlap with none that are written.
    pub fn copy_words(&mut self, source: u32, destination: u32, count: u32) -> Exec<()> {
        let from = self.range(source, count)?;
        let to = self.range(destination, count)?;
        self.words.copy_within(from..from + count as usize, to);
        self.define(to, count as usize);
        Ok(())
    }

    /// Write bytes from a word boundary; a last partial word keeps its other bytes.
    pub fn write_bytes(&mut self, address: u32, bytes: &[u8]) -> Exec<()> {
        let count = bytes.len().div_ceil(4);
        let at = self.range(address, count as u32)?;
        for (word, chunk) in self.words[at..at + count].iter_mut().zip(bytes.chunks(4)) {
            let mut four = word.to_le_bytes();
            four[..chunk.len()].copy_from_slice(chunk);
            *word = u32::from_le_bytes(four);
        }
        self.define(at, count);
        Ok(())
    }

    /// Forget that words were written.
    pub fn poison(&mut self, address: u32, count: u32) -> Exec<()> {
        let at = self.range(address, count)?;
        for (slot, mask) in masks(at, count as usize) {
            self.defined[slot] &= !mask;
        }
        Ok(())
    }

    fn define(&mut self, at: usize, count: usize) {
        for (slot, mask) in masks(at, count) {
            self.defined[slot] |= mask;
        }
    }

    fn range(&self, address: u32, count: u32) -> Exec<usize> {
        let offset = address.wrapping_sub(SRAM_BASE);
        if !address.is_multiple_of(4) {
            return Err(Box::new(FaultKind::Misaligned { address, bytes: 4 }));
        }
        if offset > SRAM_BYTES || count > (SRAM_BYTES - offset) / 4 {
            let bytes = count.saturating_mul(4);
            return Err(Box::new(FaultKind::OutOfRange { address, bytes }));
        }
        Ok((offset / 4) as usize)
    }
}

/// The definedness bits of a range of words: slots, and which bits of each.
fn masks(at: usize, count: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = at + count;
    (at / 64..end.div_ceil(64)).map(move |slot| {
        let from = at.saturating_sub(64 * slot);
        let to = (end - 64 * slot).min(64);
        let below = |bits: usize| {
            if bits == 64 {
                u64::MAX
            } else {
                (1 << bits) - 1
            }
        };
        (slot, below(to) & !below(from))
    })
}

/// Refuse two simultaneous data accesses that need the same port. An element of region 0 has one
/// port; an interleaved pair of region 1 has one for even and one for odd 8-byte words.
#[inline(always)]
pub fn check_conflict(first: u32, second: u32) -> Exec<()> {
    if element_of(first) == element_of(second)
        && (first < REGION_BOUNDARY || (first ^ second) & 8 == 0)
    {
        return Err(Box::new(FaultKind::Conflict { first, second }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definedness_follows_writes() {
        let mut memory = Memory::default();
        assert_eq!(memory.load64(0x60000).unwrap(), (0, 3));
        memory.store(0x60004, 7, false).unwrap();
        assert_eq!(memory.load64(0x60000).unwrap(), (7 << 32, 1));
        memory.write_bytes(0x60000, &[1, 2, 3]).unwrap();
        assert_eq!(memory.load(0x60002, 1).unwrap(), (3, false));
        assert_eq!(memory.load(0x60006, 2).unwrap(), (0, false));
        assert_eq!(memory.first_undefined(0x60000, 3).unwrap(), Some(0x60008));
        memory.poison(0x60000, 1).unwrap();
        assert_eq!(memory.first_undefined(0x60000, 1).unwrap(), Some(0x60000));
        memory.write_words(0x70000, &[5; 1000]).unwrap();
        assert_eq!(memory.first_undefined(0x70000, 1000).unwrap(), None);
        assert_eq!(
            memory.first_undefined(0x6fffc, 1001).unwrap(),
            Some(0x6fffc)
        );
    }

    #[test]
    fn bad_addresses() {
        let memory = Memory::default();
        let kind = |result: Exec<(u64, u32)>| *result.unwrap_err();
        assert!(matches!(
            kind(memory.load64(0x60004)),
            FaultKind::Misaligned { .. }
        ));
        assert!(matches!(
            kind(memory.load64(0xe8000)),
            FaultKind::OutOfRange { .. }
        ));
        assert!(memory.load64(0xe7ff8).is_ok());
        assert!(memory.load(0x4bffc, 4).is_err());
        assert!(memory.check128(0x7fff0).is_err());
        assert!(memory.check128(0x80010).is_ok());
    }

    #[test]
    fn elements_and_ports() {
        assert!(check_conflict(0x60000, 0x60008).is_err());
        assert!(check_conflict(0x60000, 0x64000).is_ok());
        assert!(check_conflict(0x80000, 0x80008).is_ok());
        assert!(check_conflict(0x80000, 0x87ff0).is_err());
        assert!(check_conflict(0x80000, 0x88000).is_ok());
    }
}
