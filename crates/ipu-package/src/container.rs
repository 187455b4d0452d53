//! The frame of a file: magic, version, section table, digests.
//!
//! Input: sections, or the bytes of a file. Output: the bytes of a file, or verified sections.
//! Invariants: sections follow the header without gaps, in table order, to the end of the file;
//! sizes are compared with their limits before anything is allocated; the header has a digest of
//! its own, every section one over its uncompressed bytes.
//! Not here: what sections hold.
//!
//! | bytes | what |
//! | --- | --- |
//! | 6 | `IPUEXE` |
//! | 4 | format version |
//! | 4 | number of sections |
//! | 56 each | kind, index, uncompressed size (8 bytes), compressed size (8 bytes), BLAKE3 digest |
//! | 32 | BLAKE3 digest of all bytes before |
//!
//! All numbers are little-endian, of 4 bytes unless stated.

use std::ops::Range;

use crate::error::{PackageError, SectionId};
use crate::limits::{SECTIONS_MAX, SEGMENT_BYTES_MAX, section_bytes_max};
use crate::types::FORMAT;
use crate::words::{compress, decompress, join_planes, split_planes};

const MAGIC: &[u8; 6] = b"IPUEXE";
const TABLE_AT: usize = 14;
const ENTRY_BYTES: usize = 56;

/// One line of the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionEntry {
    pub id: SectionId,
    /// Uncompressed bytes.
    pub bytes: u64,
    /// Compressed bytes.
    pub stored_bytes: u64,
    /// BLAKE3 of the uncompressed bytes.
    pub digest: [u8; 32],
}

impl SectionEntry {
    /// The entry and the compressed form of a section.
    pub(crate) fn pack(id: SectionId, bytes: &[u8]) -> (Self, Vec<u8>) {
        let stored = match id {
            SectionId::Words(_) => compress(&split_planes(bytes)),
            _ => compress(bytes),
        };
        let entry = SectionEntry {
            stored_bytes: stored.len() as u64,
            ..SectionEntry::describe(id, bytes)
        };
        (entry, stored)
    }

    /// The entry of a section that is not stored.
    pub(crate) fn describe(id: SectionId, bytes: &[u8]) -> Self {
        SectionEntry {
            id,
            bytes: bytes.len() as u64,
            stored_bytes: 0,
            digest: *blake3::hash(bytes).as_bytes(),
        }
    }

    /// The verified bytes of a section.
    pub(crate) fn unpack(&self, stored: &[u8]) -> Result<Vec<u8>, PackageError> {
        let section = self.id;
        let bytes = decompress(stored, self.bytes as usize).ok_or(PackageError::Malformed {
            section,
            what: "it does not decompress to its size",
        })?;
        let bytes = match section {
            SectionId::Words(_) => join_planes(&bytes),
            _ => bytes,
        };
        if blake3::hash(&bytes).as_bytes() != &self.digest {
            return Err(PackageError::Digest { section });
        }
        Ok(bytes)
    }
}

/// The header of a file with these sections.
pub(crate) fn header(entries: &[SectionEntry]) -> Result<Vec<u8>, PackageError> {
    check_sizes(entries)?;
    let mut header = MAGIC.to_vec();
    header.extend(FORMAT.to_le_bytes());
    header.extend((entries.len() as u32).to_le_bytes());
    for entry in entries {
        let (kind, index) = entry.id.code();
        header.extend(kind.to_le_bytes());
        header.extend(index.to_le_bytes());
        header.extend(entry.bytes.to_le_bytes());
        header.extend(entry.stored_bytes.to_le_bytes());
        header.extend(entry.digest);
    }
    header.extend(blake3::hash(&header).as_bytes());
    Ok(header)
}

/// Bytes of a header with so many sections.
pub(crate) const fn header_bytes(sections: usize) -> usize {
    TABLE_AT + ENTRY_BYTES * sections + 32
}

/// The section table of a file and where each section is stored.
pub(crate) fn table(file: &[u8]) -> Result<(Vec<SectionEntry>, Vec<Range<usize>>), PackageError> {
    let (entries, end) = read_header(file)?;
    let mut at = end;
    let mut places = Vec::with_capacity(entries.len());
    for entry in &entries {
        let left = file.len() - at;
        let stored = usize::try_from(entry.stored_bytes).unwrap_or(usize::MAX);
        if stored > left {
            return Err(truncated(file));
        }
        places.push(at..at + stored);
        at += stored;
    }
    if at != file.len() {
        return Err(malformed("bytes follow the last section"));
    }
    Ok((entries, places))
}

/// The section table and the end of the header.
fn read_header(file: &[u8]) -> Result<(Vec<SectionEntry>, usize), PackageError> {
    let seen = file.len().min(MAGIC.len());
    if file[..seen] != MAGIC[..seen] {
        return Err(PackageError::BadMagic);
    }
    let found = number(file, 6)?;
    if found != FORMAT {
        return Err(PackageError::Version {
            found,
            supported: FORMAT,
        });
    }
    let count = number(file, 10)?;
    if count > SECTIONS_MAX {
        return Err(malformed("more sections than the limit"));
    }
    let end = TABLE_AT + count as usize * ENTRY_BYTES;
    let (Some(header), Some(digest)) = (file.get(..end), file.get(end..end + 32)) else {
        return Err(truncated(file));
    };
    if blake3::hash(header).as_bytes() != digest {
        return Err(PackageError::Digest {
            section: SectionId::Header,
        });
    }
    let entries: Vec<SectionEntry> = header[TABLE_AT..]
        .as_chunks::<ENTRY_BYTES>()
        .0
        .iter()
        .enumerate()
        .map(|(at, entry)| read_entry(at, entry))
        .collect::<Result<_, _>>()?;
    check_sizes(&entries)?;
    Ok((entries, end + 32))
}

fn read_entry(at: usize, entry: &[u8; ENTRY_BYTES]) -> Result<SectionEntry, PackageError> {
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
    let fixed = SectionId::FIXED.len();
    let id = match SectionId::FIXED.get(at) {
        Some(&id) => id,
        None => SectionId::Words((at - fixed) as u32),
    };
    if (number(entry, 0)?, number(entry, 4)?) != id.code() {
        return Err(malformed("a section is missing, unknown or out of order"));
    }
    Ok(SectionEntry {
        id,
        bytes: long(8),
        stored_bytes: long(16),
        digest: std::array::from_fn(|byte| entry[24 + byte]),
    })
}

fn check_sizes(entries: &[SectionEntry]) -> Result<(), PackageError> {
    if entries.len() < SectionId::FIXED.len() {
        return Err(malformed("a section is missing, unknown or out of order"));
    }
    let mut words = 0;
    for entry in entries {
        let limit = section_bytes_max(entry.id);
        check_limit(entry.id, entry.bytes, limit)?;
        // A zstd frame of bytes that do not compress grows by less than this.
        check_limit(entry.id, entry.stored_bytes, limit + limit / 128 + 512)?;
        if matches!(entry.id, SectionId::Words(_)) {
            words += entry.bytes;
            check_limit(entry.id, words, SEGMENT_BYTES_MAX)?;
        }
    }
    Ok(())
}

fn check_limit(section: SectionId, bytes: u64, limit: u64) -> Result<(), PackageError> {
    if bytes > limit {
        return Err(PackageError::SizeLimit {
            section,
            bytes,
            limit,
        });
    }
    Ok(())
}

fn number(file: &[u8], at: usize) -> Result<u32, PackageError> {
    let bytes = file.get(at..at + 4).ok_or_else(|| truncated(file))?;
    Ok(u32::from_le_bytes(std::array::from_fn(|byte| bytes[byte])))
}

fn truncated(file: &[u8]) -> PackageError {
    PackageError::Truncated {
        at: file.len() as u64,
    }
}

fn malformed(what: &'static str) -> PackageError {
    PackageError::Malformed {
        section: SectionId::Header,
        what,
    }
}
