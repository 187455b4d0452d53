//! Leases: what live processes use, so that nobody evicts it.
//!
//! Every open store has one file in `leases/`, locked for as long as it lives, to which it appends
//! the key of each record before it looks for it. Eviction hides a record first and reads the
//! leases then: either it sees the key and puts the record back, or the look comes too late to find
//! the record. A lease whose lock is free belongs to a dead process.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ipub_base::Digest;

use crate::error::{Result, StoreError};
use crate::fail::fail_point;

const KEY_BYTES: usize = 32;

/// This process's lease.
pub(crate) struct Lease {
    id: String,
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    keys: BTreeSet<Digest>,
}

/// What all live processes use.
#[derive(Debug)]
pub(crate) struct Live {
    /// Records that were looked for.
    pub(crate) keys: BTreeSet<Digest>,
    /// When the earliest of them began, in nanoseconds since 1970; now, if there is none.
    pub(crate) since: u128,
}

impl Lease {
    pub(crate) fn take(store: &Path) -> Result<Self> {
        let tmp = store.join("tmp");
        let fail = |source| StoreError::write(&tmp, 0, source);
        // It gets its name when it is locked, so that nobody takes it for a dead one.
        let prefix = format!("{}-", std::process::id());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        let file = builder.tempfile_in(&tmp).map_err(fail)?;
        let name = file.path().file_name().unwrap_or_default();
        let id = name.to_string_lossy().into_owned();
        file.as_file().lock().map_err(fail)?;
        let mut head = [0; KEY_BYTES];
        head[..16].copy_from_slice(&nanos(SystemTime::now()).to_le_bytes());
        file.as_file().write_all(&head).map_err(fail)?;
        fail_point!("lease.locked");
        let path = store.join("leases").join(&id);
        let file = file.persist(&path).map_err(|error| fail(error.error))?;
        fail_point!("lease.named");
        let keys = BTreeSet::new();
        let inner = Mutex::new(Inner { file, keys });
        Ok(Self { id, path, inner })
    }

    /// A name that no other live process has.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Notes that the record of `key` will be looked for.
    pub(crate) fn add(&self, key: Digest) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.keys.contains(&key) {
            let written = inner.file.write_all(key.as_bytes());
            // Without room for the lease there is no room for an eviction's benefit either: the
            // worst is that a record is evicted and made again.
            match written.map_err(|source| StoreError::write(&self.path, 32, source)) {
                Ok(()) => _ = inner.keys.insert(key),
                Err(StoreError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Removed while it is locked. If that fails, whoever opens the store next removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// What all live processes use.
pub(crate) fn live(store: &Path) -> Result<Live> {
    let (keys, since) = (BTreeSet::new(), nanos(SystemTime::now()));
    let mut live = Live { keys, since };
    for path in list(store)? {
        let fail = |source| StoreError::io("read", &path, source);
        let found = File::open(&path).and_then(|file| Ok((is_dead(&file)?, fs::read(&path)?)));
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
            Ok((true, _)) => {}
            Ok((false, bytes)) => {
                let mut parts = bytes.chunks_exact(KEY_BYTES);
                let begun = parts.next().and_then(|head| head[..16].try_into().ok());
                let begun = begun.map_or(0, u128::from_le_bytes);
                live.since = live.since.min(begun);
                let keys = parts.filter_map(|key| Some(Digest::from_bytes(key.try_into().ok()?)));
                live.keys.extend(keys);
            }
        }
    }
    Ok(live)
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(time: SystemTime) -> u128 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}

/// The names of the leases of dead processes.
pub(crate) fn dead(store: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    for path in list(store)? {
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if is_dead(&file).unwrap_or(false) {
            let name = path.file_name().unwrap_or_default();
            dead.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(dead)
}

/// Removes the leases of dead processes, after all is done that they ask for.
pub(crate) fn bury(store: &Path, dead: &[String]) {
    for name in dead {
        // Another process may have removed it first.
        let _ = fs::remove_file(store.join("leases").join(name));
    }
}

/// Whether no process holds the lease. The lock that tells so ends with `file`.
fn is_dead(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn list(store: &Path) -> Result<Vec<PathBuf>> {
    let dir = store.join("leases");
    let entries = fs::read_dir(&dir).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.map_err(|source| StoreError::io("list", &dir, source))?;
    Ok(entries.into_iter().map(|entry| entry.path()).collect())
}
