//! Writing a file so that it is either absent or complete, whatever happens.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::error::{Result, StoreError};

/// Writes `bytes` to `path`: a temporary file in `tmp`, fsync, rename, fsync of the folder. On any
/// error the temporary file is removed and `path` is as it was.
pub(crate) fn write_atomic(tmp: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |source| StoreError::write(path, bytes.len() as u64, source);
    let mut file = temporary(tmp).map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    let parent = path.parent().unwrap_or(tmp);
    if !parent.is_dir() {
        fs::create_dir_all(parent).map_err(fail)?;
        if let Some(above) = parent.parent() {
            sync_dir(above).map_err(fail)?;
        }
    }
    file.persist(path).map_err(|error| fail(error.error))?;
    sync_dir(parent).map_err(fail)
}

fn temporary(tmp: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("w");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder.tempfile_in(tmp)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
