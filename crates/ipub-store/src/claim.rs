//! Claims: one process executes an action, others that want it wait for its record.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use ipub_base::Digest;

use crate::Store;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;

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
        self.claim_telling(key, || ())
    }

    /// As `claim`; calls `waits` once before it waits for another owner.
    pub fn claim_telling(&self, key: Digest, waits: impl FnOnce()) -> Result<Claim> {
        let path = self.dir.join("claims").join(key.hex());
        let mut waits = Some(waits);
        loop {
            let fail = |source| StoreError::write(&path, 0, source);
            fail_point!("claim.begin");
            let mut options = File::options();
            let file = options.create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(fail)?;
            fail_point!("claim.opened");
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    if let Some(waits) = waits.take() {
                        waits();
                    }
                    file.lock().map_err(fail)?;
                }
                Err(TryLockError::Error(error)) => return Err(fail(error)),
            }
            fail_point!("claim.locked");
            // The previous owner removes the file; a lock on a removed file protects nothing.
            if same_file(&file, &path).map_err(fail)? {
                return Ok(Claim { _file: file, path });
            }
        }
    }

    /// Removes the claims of dead processes: they bar nobody, and are not needed.
    pub(crate) fn sweep_claims(&self) {
        let Ok(entries) = fs::read_dir(self.dir.join("claims")) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if file.try_lock().is_ok() && same_file(&file, &path).unwrap_or(false) {
                // One that stays is removed another time.
                let _ = fs::remove_file(&path);
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        fail_point!("claim.release");
        // Removed while the lock is held. If that fails, the next owner uses the file again.
        let _ = fs::remove_file(&self.path);
        fail_point!("claim.removed");
    }
}

/// Whether `path` still names the open file.
#[cfg(unix)]
pub(crate) fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
pub(crate) fn same_file(_: &File, path: &Path) -> io::Result<bool> {
    path.try_exists()
}
