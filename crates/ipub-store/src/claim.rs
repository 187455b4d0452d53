//! Claims: one process executes an action, others that want it wait for its record.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ipub_base::Digest;

use crate::Store;
use crate::error::{Result, StoreError};

/// The right to execute one action. The operating system ends it with its process, so that a dead
/// owner's claim needs no repair.
pub struct Claim {
    _file: File,
    path: PathBuf,
}

impl Store {
    /// Waits for the right to execute the action `key`. After waiting, look for its record again.
    ///
    /// A thread holds one claim at most and takes no second while it holds one.
    pub fn claim(&self, key: Digest) -> Result<Claim> {
        let path = self.dir.join("claims").join(key.hex());
        loop {
            let fail = |source| StoreError::io("claim", &path, source);
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path);
            let file = file.map_err(fail)?;
            file.lock().map_err(fail)?;
            // The previous owner removes the file; a lock on a removed file protects nothing.
            if same_file(&file, &path).map_err(fail)? {
                return Ok(Claim { _file: file, path });
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while the lock is held. If that fails, the next owner uses the file again.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn same_file(_: &File, path: &Path) -> io::Result<bool> {
    path.try_exists()
}
