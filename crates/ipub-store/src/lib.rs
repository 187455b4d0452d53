//! The content-addressed store: immutable blobs by digest, action records, a SQLite index.
//!
//! Input: bytes, records, file paths.
//! Output: the same bytes and records, later; digests of unchanged files without reading them.
//! Invariants: a blob or record appears under its name only when complete and synced; a digest is
//! verified on every read; a record is found only while all its blobs are there; what a live
//! process uses is not evicted; the index is a cache of the record files and may be lost at any
//! time.
//! Not here: what a stage is, what a key means.
//!
//! Layout below the store's folder:
//!
//! ```text
//! format                  the layout's version
//! blobs/ab/cdef...zst     one zstd frame, named by the digest of its content
//! records/ab/cdef...json  one action record, named by its key
//! claims/                 locks of actions that run now
//! leases/                 what each live process uses
//! locks/                  locks of the index's renewal and of the trash
//! trash/                  files on their way out
//! tmp/                    files being written
//! index-v2.1.sqlite       key to record, last key of each rule, digests of files
//! ```

mod archive;
mod blob;
mod check;
mod claim;
mod disk;
mod error;
mod fail;
mod files;
mod gc;
mod generation;
mod index;
mod lease;
mod memo;
mod note;
mod open;
mod record;
mod survey;
mod trash;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

pub use archive::{ArchiveCount, ArchiveError};
pub use blob::BLOB_BYTES_MAX;
pub use check::{Fault, RepairReport, VerifyReport};
pub use claim::Claim;
pub use error::{Result, StoreError};
pub use files::FileFact;
pub use gc::{GcReport, Limits};
pub use index::LastKeys;
pub use memo::{MemoPack, MemoUse, PackMemo};
pub use note::StoreNote;
pub use record::{FailedOutcome, Outcome, OutputRef, Provenance, Record};
pub use survey::{AuditEntry, StoreStat};

use index::Index;
use lease::Lease;
pub(crate) use open::walk;

/// An open store. Cheap to share by reference between threads.
pub struct Store {
    dir: PathBuf,
    lease: Lease,
    index: Index,
    notes: Mutex<Vec<StoreNote>>,
    /// Folders whose own names are known to last.
    synced: Mutex<BTreeSet<PathBuf>>,
    /// Records whose use is not yet in the index.
    used: Mutex<BTreeSet<ipub_base::Digest>>,
    /// Bytes of blobs written that are not yet counted in the index.
    growth: AtomicU64,
}

impl Store {
    /// The store's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of the index.
    pub fn index_path(&self) -> PathBuf {
        self.index.path()
    }

    /// Whether no usable index was found, so that a new one was built.
    pub fn index_was_rebuilt(&self) -> bool {
        self.index.was_rebuilt()
    }
}
