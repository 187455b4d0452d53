//! Opening and closing a store: its folders, and what dead processes left.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ipub_base::Digest;

use crate::Store;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::generation::now_ms;
use crate::index::Index;
use crate::lease::{self, Lease, nanos};
use crate::trash::{self, Trash};
use crate::{disk, write};

const FORMAT: &str = "ipub store 2\n";
const DIRS: [&str; 7] = [
    "blobs", "records", "claims", "leases", "locks", "trash", "tmp",
];
/// A use within this time of the one that is noted is not noted.
const USE_MS_MIN: u64 = 60_000;

impl Store {
    /// Opens the store in `dir`, creating what is not there. A missing, foreign or damaged index
    /// is rebuilt from the record files; what killed processes left is removed or put back.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        let format = dir.join("format");
        let is_new = match fs::read(&format) {
            Ok(text) if text == FORMAT.as_bytes() => false,
            Ok(text) if text.starts_with(b"ipub store ") => {
                return Err(StoreError::Format {
                    found: String::from_utf8_lossy(&text).trim_end().to_owned(),
                    path: format,
                });
            }
            // What is torn is written again.
            _ => true,
        };
        if is_new || DIRS.iter().any(|name| !dir.join(name).is_dir()) {
            make_dirs(&dir)?;
        }
        let dead = lease::dead(&dir)?;
        fail_point!("open.looked");
        let lease = Lease::take(&dir)?;
        if !trash::is_empty(&dir) {
            Trash::lock(&dir)?.restore_all()?;
        }
        sweep_tmp(&dir, &dead);
        let index = Index::open(&dir, !dead.is_empty())?;
        let store = Self {
            dir,
            lease,
            index,
            notes: Mutex::default(),
            synced: Mutex::default(),
            used: Mutex::default(),
            growth: AtomicU64::new(0),
        };
        if is_new {
            store.write_atomic(&format, FORMAT.as_bytes())?;
        }
        if !dead.is_empty() {
            store.sweep_claims();
            store.recount()?;
            lease::bury(&store.dir, &dead);
        }
        fail_point!("open.done");
        Ok(store)
    }

    pub(crate) fn note_growth(&self, bytes: u64) {
        self.growth.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the record of `key` is used; `noted` is when that was noted last.
    pub(crate) fn note_use(&self, key: Digest, noted: u64) {
        if now_ms().saturating_sub(noted) >= USE_MS_MIN {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.insert(key);
        }
    }

    /// Writes into the index what was used, in one transaction.
    pub fn flush(&self) -> Result<()> {
        let used = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take::<BTreeSet<_>>(&mut used)
        };
        let growth = self.growth.swap(0, Ordering::Relaxed);
        if used.is_empty() && growth == 0 {
            return Ok(());
        }
        let keys: Vec<_> = used.into_iter().collect();
        self.soft(self.index.note_use(&keys, now_ms(), growth))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Only the order of eviction depends on it.
        let _ = self.flush();
    }
}

fn make_dirs(dir: &Path) -> Result<()> {
    let fail = |source| StoreError::write(dir, 0, source);
    fs::create_dir_all(dir).map_err(fail)?;
    for name in DIRS {
        disk::make_dir(&dir.join(name)).map_err(fail)?;
    }
    disk::sync_dir(dir).map_err(fail)?;
    write::sync_above(dir).map_err(fail)
}

/// Removes half-written files: those of processes found dead, and what is older than a day.
fn sweep_tmp(dir: &Path, dead: &[String]) {
    const AGE_SECONDS_MIN: u64 = 24 * 3600;
    let Ok(entries) = fs::read_dir(dir.join("tmp")) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix('w'));
        let is_dead = owner.is_some_and(|owner| dead.iter().any(|id| owner.starts_with(id)));
        let age = entry
            .metadata()
            .ok()
            .and_then(|meta| meta.modified().ok()?.elapsed().ok());
        if is_dead || age.is_some_and(|age| age.as_secs() >= AGE_SECONDS_MIN) {
            // Another process may have removed it first.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file of the store.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    /// When it was written, in nanoseconds since 1970.
    pub(crate) written: u128,
}

/// The files two levels below `dir`, sorted.
pub(crate) fn walk(dir: &Path) -> Result<Vec<Found>> {
    let list = |dir: &Path| {
        let read = fs::read_dir(dir).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        read.map_err(|source| StoreError::io("list", dir, source))
    };
    let mut files = Vec::new();
    for shard in list(dir)? {
        if !shard.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        for entry in list(&shard.path())? {
            // A file that went away meanwhile is not there.
            let Ok(meta) = entry.metadata() else {
                continue;
            };
            files.push(Found {
                path: entry.path(),
                size: meta.len(),
                written: meta.modified().map_or(0, nanos),
            });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
