//! Why bytes are not a package.
//!
//! Input: none. Output: the error type of reader and writer, and the names of sections.
//! Invariants: every error names the section, and sizes carry the limit they break.
//! Not here: faults of a well-formed package (`check`).

use std::fmt;

use thiserror::Error;

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SectionId {
    /// Magic, version and section table.
    Header,
    /// Device and tile count.
    Program,
    /// Kind and length of each segment.
    Segments,
    Images,
    Tensors,
    Bindings,
    Host,
    Steps,
    /// Words of the segments of one group.
    Words(u32),
}

impl SectionId {
    /// The sections before the words, in file order.
    pub(crate) const FIXED: [SectionId; 7] = [
        SectionId::Program,
        SectionId::Segments,
        SectionId::Images,
        SectionId::Tensors,
        SectionId::Bindings,
        SectionId::Host,
        SectionId::Steps,
    ];

    /// What the section table holds: kind and index.
    pub(crate) const fn code(self) -> (u32, u32) {
        match self {
            SectionId::Header => (0, 0),
            SectionId::Program => (1, 0),
            SectionId::Segments => (2, 0),
            SectionId::Images => (3, 0),
            SectionId::Tensors => (4, 0),
            SectionId::Bindings => (5, 0),
            SectionId::Host => (6, 0),
            SectionId::Steps => (7, 0),
            SectionId::Words(group) => (8, group),
        }
    }
}

impl fmt::Display for SectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SectionId::Header => f.write_str("header"),
            SectionId::Program => f.write_str("program"),
            SectionId::Segments => f.write_str("segments"),
            SectionId::Images => f.write_str("images"),
            SectionId::Tensors => f.write_str("tensors"),
            SectionId::Bindings => f.write_str("bindings"),
            SectionId::Host => f.write_str("host"),
            SectionId::Steps => f.write_str("steps"),
            SectionId::Words(group) => write!(f, "words.{group}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PackageError {
    #[error("the package is cut off at byte {at}")]
    Truncated { at: u64 },
    #[error("this is not a package: it does not begin with IPUEXE")]
    BadMagic,
    #[error("the package has format version {found}; this program reads version {supported}")]
    Version { found: u32, supported: u32 },
    #[error("section {section} has {bytes} bytes, more than the limit of {limit}")]
    SizeLimit {
        section: SectionId,
        bytes: u64,
        limit: u64,
    },
    #[error("section {section} does not match its digest")]
    Digest { section: SectionId },
    #[error("section {section} is malformed: {what}")]
    Malformed {
        section: SectionId,
        what: &'static str,
    },
}
