//! The operations on files that the store's protocols consist of.
//!
//! Input: paths below the store's folder.
//! Output: the change, or the operating system's error.
//! Invariants: nothing else in this crate changes files whose loss would matter; tests record these
//! operations and replay them as a power loss would leave them.
//! Not here: the order of the operations.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

#[cfg(test)]
use crate::tests::recorder::{Op, record};

/// Runs the operation, and notes it if it succeeded and a test records.
macro_rules! recorded {
    ($run:expr, $op:expr) => {{
        let value = $run?;
        #[cfg(test)]
        record(|| $op);
        Ok(value)
    }};
}

/// A new file in `tmp`, whose name begins with `w` and `owner`. It is removed when dropped.
pub(crate) fn temporary(tmp: &Path, owner: &str) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("w{owner}.");
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder.tempfile_in(tmp)
}

pub(crate) fn write(file: &mut tempfile::NamedTempFile, bytes: &[u8]) -> io::Result<()> {
    recorded!(
        file.write_all(bytes),
        Op::Write(file.path().to_path_buf(), bytes.to_vec())
    )
}

pub(crate) fn sync_file(file: &tempfile::NamedTempFile) -> io::Result<()> {
    recorded!(
        file.as_file().sync_all(),
        Op::SyncFile(file.path().to_path_buf())
    )
}

/// Gives a temporary file its name, in place of what had it.
pub(crate) fn persist(file: tempfile::NamedTempFile, to: &Path) -> io::Result<File> {
    #[cfg(test)]
    let from = file.path().to_path_buf();
    recorded!(
        file.persist(to).map_err(|error| error.error),
        Op::Rename(from, to.to_path_buf())
    )
}

/// A second name for a file; an error if the name is taken.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    recorded!(
        fs::hard_link(from, to),
        Op::Link(from.to_path_buf(), to.to_path_buf())
    )
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    recorded!(fs::remove_file(path), Op::Remove(path.to_path_buf()))
}

/// Makes a folder; that it is there already is no error.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => recorded!(made, Op::MakeDir(path.to_path_buf())),
    }
}

/// Makes the names in a folder last.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    recorded!(
        File::open(dir).and_then(|dir| dir.sync_all()),
        Op::SyncDir(dir.to_path_buf())
    )
}
