//! What the store met that a user may want to know: damage that healed, records that do not hold.

use std::fmt;
use std::sync::PoisonError;

use ipub_base::Digest;
use serde::Serialize;

use crate::Store;

/// Something worth a line. None of it is an error: the store did what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum StoreNote {
    /// A blob was damaged and has been removed.
    BlobDamaged {
        /// The blob.
        digest: Digest,
        /// What was found.
        why: String,
    },
    /// A record names a blob that is gone or of another length, so it does not count.
    RecordIncomplete {
        /// The record.
        key: Digest,
        /// Its rule.
        rule: String,
        /// The output.
        output: String,
        /// The blob.
        digest: Digest,
    },
    /// A record's file is damaged, so it does not count.
    RecordDamaged {
        /// The key that its name states.
        key: Digest,
    },
    /// The index was built anew from the record files.
    IndexRebuilt {
        /// Why.
        why: String,
        /// Records found.
        records: u64,
    },
    /// The index could not be written; the record files hold what it would.
    IndexNotWritten {
        /// The error.
        why: String,
    },
}

impl fmt::Display for StoreNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlobDamaged { digest, why } => {
                write!(
                    f,
                    "blob {} was damaged ({why}) and has been removed",
                    digest.short()
                )
            }
            Self::RecordIncomplete {
                key,
                rule,
                output,
                digest,
            } => write!(
                f,
                "record {} of {rule} does not count: its {output} (blob {}) is gone",
                key.short(),
                digest.short()
            ),
            Self::RecordDamaged { key } => {
                write!(f, "record {} is damaged and does not count", key.short())
            }
            Self::IndexRebuilt { why, records } => {
                write!(f, "the index was built anew from {records} records: {why}")
            }
            Self::IndexNotWritten { why } => write!(f, "the index could not be written: {why}"),
        }
    }
}

impl Store {
    /// What was met since this was last asked.
    pub fn take_notes(&self) -> Vec<StoreNote> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = std::mem::take::<Vec<_>>(&mut notes);
        taken.extend(self.index.take_notes());
        taken
    }

    pub(crate) fn note(&self, note: StoreNote) {
        tracing::warn!(target: "ipub_store", "{note}");
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}
