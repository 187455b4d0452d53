//! The content-addressed store: immutable blobs by digest, action records, a SQLite index.
//!
//! Input: bytes, records, file paths.
//! Output: the same bytes and records, later; digests of unchanged files without reading them.
//! Invariants: a blob or record appears under its name only when complete and synced; a digest is
//! verified on every read; a record is found only while all its blobs are there; the index is a
//! cache of the record files and may be lost at any time.
//! Not here: what a stage is, what a key means.
//!
//! Layout below the store's folder:
//!
//! ```text
//! blobs/ab/cdef...zst     one zstd frame, named by the digest of its content
//! records/ab/cdef...json  one action record, named by its key
//! claims/                 locks of actions that run now
//! tmp/                    files being written
//! index.sqlite            key to record, last key of each rule, digests of files
//! ```

mod blob;
mod claim;
mod error;
mod files;
mod index;
mod memo;
mod record;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

pub use blob::BLOB_BYTES_MAX;
pub use claim::Claim;
pub use error::{Result, StoreError};
pub use files::FileFact;
pub use index::LastKeys;
pub use memo::{MemoPack, MemoUse, PackMemo};
pub use record::{FailedOutcome, Outcome, OutputRef, Provenance, Record};

use index::Index;

/// An open store. Cheap to share by reference between threads.
pub struct Store {
    dir: PathBuf,
    index: Index,
}

/// What the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreStat {
    /// Number of blobs.
    pub blobs: u64,
    /// Bytes of all blobs as stored.
    pub blob_bytes: u64,
    /// Number of record files.
    pub records: u64,
}

impl Store {
    /// Opens the store in `dir`, creating what is not there. A missing, foreign or damaged index
    /// is rebuilt from the record files.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        for name in ["blobs", "records", "claims", "tmp"] {
            let path = dir.join(name);
            fs::create_dir_all(&path).map_err(|source| StoreError::io("create", &path, source))?;
        }
        let index = Index::open(&dir)?;
        let store = Self { dir, index };
        store.sweep_tmp();
        Ok(store)
    }

    /// The store's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this `open` found no usable index and built a new one.
    pub fn index_was_rebuilt(&self) -> bool {
        self.index.was_rebuilt()
    }

    /// Counts what the store holds, by walking its folders.
    pub fn stat(&self) -> Result<StoreStat> {
        let mut stat = StoreStat::default();
        for entry in walk(&self.dir.join("blobs"))? {
            stat.blobs += 1;
            stat.blob_bytes += entry.1;
        }
        stat.records = walk(&self.dir.join("records"))?.len() as u64;
        Ok(stat)
    }

    /// Removes files that a killed process left half-written a day or more ago.
    fn sweep_tmp(&self) {
        const AGE_SECONDS_MIN: u64 = 24 * 3600;
        let Ok(entries) = fs::read_dir(self.dir.join("tmp")) else {
            return;
        };
        for entry in entries.flatten() {
            let age = entry
                .metadata()
                .ok()
                .and_then(|meta| meta.modified().ok()?.elapsed().ok());
            if age.is_some_and(|age| age.as_secs() >= AGE_SECONDS_MIN) {
                // Another process may have removed it first.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The files two levels below `dir`, sorted, each with its size.
fn walk(dir: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let list = |dir: &Path| {
        let read =
            fs::read_dir(dir).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
        read.map_err(|source| StoreError::io("list", dir, source))
    };
    let mut files = Vec::new();
    for shard in list(dir)? {
        if !shard.path().is_dir() {
            continue;
        }
        for entry in list(&shard.path())? {
            let size = entry.metadata().map_or(0, |meta| meta.len());
            files.push((entry.path(), size));
        }
    }
    files.sort();
    Ok(files)
}
