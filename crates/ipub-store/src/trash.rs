//! Taking files out of the store without losing one that somebody just put there.
//!
//! A file is first hidden: it gets a name in `trash/` and loses its own. What is hidden can no
//! longer be found by a new reader, and is looked at once more; only then it is removed, or else
//! put back. Readers that find a blob not in its place look into the trash as well. What a killed
//! process left hidden is put back.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::disk;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::lease::nanos;

/// The right to hide files: one process at a time has it.
pub(crate) struct Trash {
    dir: PathBuf,
    _lock: File,
}

/// A file that is hidden.
pub(crate) struct Hidden {
    from: PathBuf,
    at: PathBuf,
}

impl Trash {
    /// Waits for the right.
    pub(crate) fn lock(store: &Path) -> Result<Self> {
        let (lock, path) = lock_file(store)?;
        lock.lock()
            .map_err(|source| StoreError::io("lock", &path, source))?;
        Ok(Self::new(store, lock))
    }

    /// The right, unless another process has it.
    pub(crate) fn try_lock(store: &Path) -> Result<Option<Self>> {
        let (lock, path) = lock_file(store)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self::new(store, lock))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(StoreError::io("lock", &path, source)),
        }
    }

    fn new(store: &Path, lock: File) -> Self {
        let dir = store.join("trash");
        Self { dir, _lock: lock }
    }

    /// Hides the file `from`; `None` if it is not there.
    pub(crate) fn hide(&self, from: PathBuf) -> Result<Option<Hidden>> {
        Ok(self.hide_all(vec![from])?.pop())
    }

    /// Hides those of the files that are there. Each has its name in the trash for good before it
    /// loses the other: a power loss in between must not take both.
    pub(crate) fn hide_all(&self, files: Vec<PathBuf>) -> Result<Vec<Hidden>> {
        let mut hidden = Vec::new();
        for from in files {
            fail_point!("trash.hide");
            let at = self.dir.join(flat_name(&from));
            let mut linked = disk::link(&from, &at);
            if linked
                .as_ref()
                .is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
            {
                // Left by a process that was killed here; the file is still in its place.
                let _ = disk::remove(&at);
                linked = disk::link(&from, &at);
            }
            match linked {
                Ok(()) => hidden.push(Hidden { from, at }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(StoreError::io("hide", &from, source)),
            }
        }
        if !hidden.is_empty() {
            let synced = disk::sync_dir(&self.dir);
            synced.map_err(|source| StoreError::io("sync", &self.dir, source))?;
        }
        fail_point!("trash.named");
        for file in &hidden {
            match disk::remove(&file.from) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("hide", &file.from, error));
                }
                _ => {}
            }
            fail_point!("trash.hidden");
        }
        Ok(hidden)
    }

    /// Puts back what killed processes left hidden.
    pub(crate) fn restore_all(&self) -> Result<()> {
        let fail = |source| StoreError::io("list", &self.dir, source);
        for entry in fs::read_dir(&self.dir).map_err(fail)? {
            let at = entry.map_err(fail)?.path();
            match real_path(&self.dir, &at) {
                Some(from) => Hidden { from, at }.restore()?,
                None => _ = disk::remove(&at),
            }
        }
        Ok(())
    }
}

impl Hidden {
    /// Where it was.
    pub(crate) fn from(&self) -> &Path {
        &self.from
    }

    /// Where it is now.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// When it was written, or put a second time, in nanoseconds since 1970.
    pub(crate) fn written(&self) -> u128 {
        let meta = fs::metadata(&self.at).and_then(|meta| meta.modified());
        // One that cannot be looked at is not removed.
        meta.map_or(u128::MAX, nanos)
    }

    /// Puts it back. Whatever has its place by now is younger and stays.
    pub(crate) fn restore(self) -> Result<()> {
        fail_point!("trash.restore");
        match disk::link(&self.at, &self.from) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StoreError::io("put back", &self.from, error));
            }
            _ => {}
        }
        if let Some(parent) = self.from.parent() {
            let synced = disk::sync_dir(parent);
            synced.map_err(|source| StoreError::io("sync", parent, source))?;
        }
        fail_point!("trash.restored");
        self.remove()
    }

    /// Removes it.
    pub(crate) fn remove(self) -> Result<()> {
        fail_point!("trash.remove");
        match disk::remove(&self.at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &self.at, error))
            }
            _ => {
                fail_point!("trash.removed");
                Ok(())
            }
        }
    }
}

/// Whether anything is hidden.
pub(crate) fn is_empty(store: &Path) -> bool {
    fs::read_dir(store.join("trash")).is_ok_and(|mut entries| entries.next().is_none())
}

/// Where a file of the store is while it is hidden.
pub(crate) fn hidden_path(store: &Path, path: &Path) -> PathBuf {
    store.join("trash").join(flat_name(path))
}

fn lock_file(store: &Path) -> Result<(File, PathBuf)> {
    let path = store.join("locks").join("trash");
    let mut options = File::options();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|source| StoreError::write(&path, 0, source))?;
    Ok((file, path))
}

/// `blobs/ab/cdef.zst` as `blobs.ab.cdef.zst`.
fn flat_name(path: &Path) -> String {
    let mut parts: Vec<_> = path
        .iter()
        .rev()
        .take(3)
        .map(|part| part.to_string_lossy())
        .collect();
    parts.reverse();
    parts.join(".")
}

fn real_path(trash: &Path, at: &Path) -> Option<PathBuf> {
    let name = at.file_name()?.to_str()?;
    let (folder, rest) = name.split_once('.')?;
    let (shard, file) = rest.split_once('.')?;
    let store = trash.parent()?;
    matches!(folder, "blobs" | "records").then(|| store.join(folder).join(shard).join(file))
}

/// The present time as files bear it.
pub(crate) fn touch(file: &File) -> io::Result<()> {
    file.set_modified(SystemTime::now())
}
