//! Store errors. All are environment failures: none says anything about a build's content.

use std::io;
use std::path::{Path, PathBuf};

use ipub_base::{Diagnostic, Digest};

/// A result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, or a quota or the file size limit was reached. Nothing was left behind.
    #[error("no space to write {bytes} bytes at {}: {source}", path.display())]
    NoSpace {
        /// The file that was being written.
        path: PathBuf,
        /// How many bytes it was to hold.
        bytes: u64,
        /// The operating system's word.
        source: io::Error,
    },
    /// Another failure of the file system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The blob is not in the store.
    #[error("blob {digest} is not in the store")]
    Missing {
        /// The blob.
        digest: Digest,
    },
    /// The blob was there but is damaged. It has been removed.
    #[error("blob {digest} at {} was damaged ({why}) and has been removed", path.display())]
    Corrupt {
        /// The blob.
        digest: Digest,
        /// Its file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The blob is larger than any blob may be.
    #[error("a blob of {bytes} bytes is above the limit of {limit} bytes")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The store has a layout that this program does not know.
    #[error("{}: the layout `{found}` is not known to this version of ipub", path.display())]
    Format {
        /// The file that states the layout.
        path: PathBuf,
        /// What it states.
        found: String,
    },
    /// The index failed in a way that a rebuild does not heal.
    #[error("the index {} failed: {source}", path.display())]
    Index {
        /// Its file.
        path: PathBuf,
        /// SQLite's word.
        source: rusqlite::Error,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }

    /// An error of writing `bytes` bytes to `path`.
    pub(crate) fn write(path: &Path, bytes: u64, source: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::NoSpace {
                path: path.to_path_buf(),
                bytes,
                source,
            },
            _ => Self::io("write", path, source),
        }
    }

    /// Whether the failure means that one blob must be made again.
    pub fn lost_blob(&self) -> Option<Digest> {
        match self {
            Self::Missing { digest } | Self::Corrupt { digest, .. } => Some(*digest),
            _ => None,
        }
    }
}

impl From<StoreError> for Diagnostic {
    fn from(error: StoreError) -> Self {
        let diagnostic = Diagnostic::environment(error.to_string());
        match error {
            StoreError::NoSpace { .. } => diagnostic.help(
                "free some space, or set `[cache] dir` in workspace.toml to a larger disk; \
                 what was stored before is intact",
            ),
            StoreError::Format { .. } => diagnostic.help(
                "use the newer ipub, or set `[cache] dir` in workspace.toml to another folder",
            ),
            _ => diagnostic,
        }
    }
}
