//! Writing a file so that it is either absent or complete, whatever happens.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use crate::Store;
use crate::disk;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;

impl Store {
    /// Writes `bytes` to `path`: a temporary file, fsync, rename, fsync of the folder. On any error
    /// the temporary file is removed and `path` is as it was.
    pub(crate) fn write_atomic(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let fail = |source| StoreError::write(path, bytes.len() as u64, source);
        fail_point!("write.begin");
        let mut file = disk::temporary(&self.tmp(), self.lease.id()).map_err(fail)?;
        fail_point!("write.created");
        disk::write(&mut file, bytes).map_err(fail)?;
        fail_point!("write.written");
        disk::sync_file(&file).map_err(fail)?;
        fail_point!("write.synced");
        let parent = path.parent().unwrap_or(path);
        if !parent.is_dir() {
            self.make_shard(parent).map_err(fail)?;
        }
        disk::persist(file, path).map_err(fail)?;
        fail_point!("write.renamed");
        self.sync_names(parent).map_err(fail)?;
        fail_point!("write.done");
        Ok(())
    }

    fn make_shard(&self, dir: &Path) -> io::Result<()> {
        self.synced().remove(dir);
        disk::make_dir(dir.parent().unwrap_or(dir))?;
        disk::make_dir(dir)?;
        fail_point!("write.shard");
        Ok(())
    }

    /// Makes the names in `dir` last, and its own. Another process may have made it and not yet
    /// come to that, so its own name is synced once by every process that uses it.
    pub(crate) fn sync_names(&self, dir: &Path) -> io::Result<()> {
        disk::sync_dir(dir)?;
        if !self.synced().contains(dir) {
            sync_above(dir)?;
            self.synced().insert(dir.to_path_buf());
        }
        Ok(())
    }

    fn synced(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the name of a new folder last.
pub(crate) fn sync_above(dir: &Path) -> io::Result<()> {
    match dir.parent() {
        Some(above) if !above.as_os_str().is_empty() => disk::sync_dir(above),
        _ => disk::sync_dir(Path::new(".")),
    }
}
