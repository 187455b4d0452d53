//! The SQLite index: a cache of the record files and of file digests.
//!
//! Input: records, keys, digests of files.
//! Output: the same, later and fast.
//! Invariants: nothing is lost with it but time; an index that cannot be opened, fails SQLite's
//! check or turns out damaged is set aside and a new one is built from the record files; damage
//! that SQLite does not see is caught by the check in each record and in each file's row.
//! Not here: how the files are written (`generation.rs`); what a record means.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipub_base::Digest;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction, params};

use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::generation::{self, Generation};
use crate::note::StoreNote;

/// The latest keys of one rule for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastKeys {
    /// The key of the latest build.
    pub key: Digest,
    /// The latest key that differs from it.
    pub previous: Option<Digest>,
}

/// A record as the index has it.
pub(crate) struct Row {
    pub(crate) key: Digest,
    pub(crate) text: String,
    /// When it was last used, in milliseconds since 1970.
    pub(crate) used: u64,
}

/// A number that the index keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// Bytes of all blobs, or more.
    StoredBytes,
    /// When the limits were last applied, in milliseconds since 1970.
    CollectedMs,
}

pub(crate) struct Index {
    dir: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    generation: Generation,
    /// Why it was built anew, and from how many records, until somebody asks.
    rebuilt: Vec<StoreNote>,
    was_rebuilt: bool,
}

impl Inner {
    fn renew(&mut self, dir: &Path, why: &str) -> Result<()> {
        let (generation, note) = generation::rebuild(dir, Some(self.generation.number), why)?;
        self.was_rebuilt |= generation.is_new;
        self.generation = generation;
        self.rebuilt.extend(note);
        Ok(())
    }
}

impl Index {
    /// Opens the index; with `check`, only after SQLite has looked at all of it.
    pub(crate) fn open(dir: &Path, check: bool) -> Result<Self> {
        let (generation, rebuilt) = generation::open(dir, check)?;
        let inner = Inner {
            was_rebuilt: generation.is_new,
            generation,
            rebuilt: rebuilt.into_iter().collect(),
        };
        Ok(Self {
            dir: dir.to_path_buf(),
            inner: Mutex::new(inner),
        })
    }

    pub(crate) fn was_rebuilt(&self) -> bool {
        self.lock().was_rebuilt
    }

    pub(crate) fn take_notes(&self) -> Vec<StoreNote> {
        std::mem::take(&mut self.lock().rebuilt)
    }

    /// The file that is in use.
    pub(crate) fn path(&self) -> PathBuf {
        generation::path(&self.dir, self.lock().generation.number)
    }

    /// Sets the index aside and builds a new one.
    pub(crate) fn renew(&self, why: &str) -> Result<()> {
        self.lock().renew(&self.dir, why)
    }

    /// What SQLite finds wrong with the index.
    pub(crate) fn fault(&self) -> Option<String> {
        generation::fault(&self.lock().generation.connection)
    }

    /// Runs `body`; if SQLite finds the index damaged, builds a new one and runs it once more.
    pub(crate) fn with<T>(
        &self,
        mut body: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut inner = self.lock();
        match body(&mut inner.generation.connection) {
            Err(error) if is_damage(&error) => {
                inner.renew(&self.dir, &error.to_string())?;
                body(&mut inner.generation.connection).map_err(|error| failure(&self.dir, error))
            }
            result => result.map_err(|error| failure(&self.dir, error)),
        }
    }

    /// Runs `body` in one writing transaction.
    pub(crate) fn write<T>(
        &self,
        mut body: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.with(|connection| {
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let value = body(&transaction)?;
            fail_point!("index.written");
            transaction.commit()?;
            fail_point!("index.committed");
            Ok(value)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, key: Digest) -> Result<Option<Row>> {
        self.with(|connection| {
            let mut select =
                connection.prepare_cached("SELECT key, text, used FROM records WHERE key = ?1")?;
            select.query_row([key.as_bytes()], row).optional()
        })
    }

    pub(crate) fn records(&self) -> Result<Vec<Row>> {
        self.with(|connection| {
            let mut select = connection.prepare("SELECT key, text, used FROM records")?;
            select.query_map([], row)?.collect()
        })
    }

    pub(crate) fn insert_record(&self, key: Digest, text: &str, used: u64) -> Result<()> {
        self.write(|transaction| insert(transaction, key, text, used))
    }

    pub(crate) fn delete_records(&self, keys: &[Digest]) -> Result<()> {
        self.write(|transaction| {
            let mut delete = transaction.prepare_cached("DELETE FROM records WHERE key = ?1")?;
            for key in keys {
                delete.execute([key.as_bytes()])?;
            }
            Ok(())
        })
    }

    /// Notes that records were used, and how much the store grew.
    pub(crate) fn note_use(&self, keys: &[Digest], used: u64, growth: u64) -> Result<()> {
        self.write(|transaction| {
            let mut update = transaction
                .prepare_cached("UPDATE records SET used = ?2 WHERE key = ?1 AND used < ?2")?;
            for key in keys {
                update.execute(params![key.as_bytes(), used as i64])?;
            }
            transaction
                .prepare_cached("UPDATE counts SET value = value + ?2 WHERE name = ?1")?
                .execute(params![Count::StoredBytes as i64, growth as i64])
                .map(drop)
        })
    }

    pub(crate) fn count(&self, count: Count) -> Result<u64> {
        self.with(|connection| {
            let mut select =
                connection.prepare_cached("SELECT value FROM counts WHERE name = ?1")?;
            let value = select.query_row([count as i64], |row| row.get::<_, i64>(0));
            Ok(value.optional()?.unwrap_or(0) as u64)
        })
    }

    pub(crate) fn set_count(&self, count: Count, value: u64) -> Result<()> {
        self.write(|transaction| set_count(transaction, count, value))
    }

    pub(crate) fn last_keys(&self, label: &str, rule: &str) -> Result<Option<LastKeys>> {
        self.with(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT key, previous FROM last_keys WHERE label = ?1 AND rule = ?2",
            )?;
            let keys = select.query_row([label, rule], |row| {
                let previous: Option<[u8; 32]> = row.get(1)?;
                Ok(LastKeys {
                    key: Digest::from_bytes(row.get(0)?),
                    previous: previous.map(Digest::from_bytes),
                })
            });
            keys.optional()
        })
    }

    /// The latest key of each rule of a target.
    pub(crate) fn keys_of(&self, label: &str) -> Result<Vec<Digest>> {
        self.with(|connection| {
            let mut select =
                connection.prepare("SELECT key FROM last_keys WHERE label = ?1 ORDER BY rule")?;
            let keys = select.query_map([label], |row| Ok(Digest::from_bytes(row.get(0)?)))?;
            keys.collect()
        })
    }

    pub(crate) fn set_last_keys(&self, label: &str, keys: &[(String, Digest)]) -> Result<()> {
        self.write(|transaction| {
            for (rule, key) in keys {
                set_last_key(transaction, label, rule, *key)?;
            }
            Ok(())
        })
    }
}

impl crate::Store {
    /// The latest keys of `rule` for the target `label`.
    pub fn last_keys(&self, label: &str, rule: &str) -> Result<Option<LastKeys>> {
        self.index.last_keys(label, rule)
    }

    /// Notes which key each rule of the target `label` has now; keys that are noted already cost
    /// only a look.
    pub fn note_last_keys(&self, label: &str, keys: &[(String, Digest)]) -> Result<()> {
        let mut changed = Vec::new();
        for (rule, key) in keys {
            if self
                .last_keys(label, rule)?
                .is_none_or(|last| last.key != *key)
            {
                changed.push((rule.clone(), *key));
            }
        }
        if changed.is_empty() {
            Ok(())
        } else {
            self.soft(self.index.set_last_keys(label, &changed))
        }
    }

    /// The index need not be written: a full disk there is no failure.
    pub(crate) fn soft(&self, written: Result<()>) -> Result<()> {
        let is_soft = |source: &rusqlite::Error| {
            use ErrorCode::{CannotOpen, DatabaseBusy, ReadOnly, SystemIoFailure};
            matches!(
                source.sqlite_error_code(),
                Some(CannotOpen | DatabaseBusy | ReadOnly | SystemIoFailure)
            )
        };
        match written {
            Err(error @ StoreError::NoSpace { .. }) => {
                let why = error.to_string();
                self.note(StoreNote::IndexNotWritten { why });
                Ok(())
            }
            Err(StoreError::Index { source, .. }) if is_soft(&source) => {
                let why = source.to_string();
                self.note(StoreNote::IndexNotWritten { why });
                Ok(())
            }
            written => written,
        }
    }
}

pub(crate) fn set_last_key(
    transaction: &Transaction<'_>,
    label: &str,
    rule: &str,
    key: Digest,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO last_keys VALUES (?1, ?2, ?3, NULL) ON CONFLICT (label, rule) DO
             UPDATE SET previous = key, key = excluded.key WHERE key != excluded.key",
        )?
        .execute(params![label, rule, key.as_bytes()])
        .map(drop)
}

pub(crate) fn insert(
    transaction: &Transaction<'_>,
    key: Digest,
    text: &str,
    used: u64,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3)")?
        .execute(params![key.as_bytes(), text, used as i64])
        .map(drop)
}

pub(crate) fn set_count(
    transaction: &Transaction<'_>,
    count: Count,
    value: u64,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO counts VALUES (?1, ?2)")?
        .execute(params![count as i64, value as i64])
        .map(drop)
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    // A damaged text is no text; its check tells.
    let text = row.get_ref(1)?.as_bytes().unwrap_or_default();
    Ok(Row {
        key: Digest::from_bytes(row.get(0)?),
        text: String::from_utf8_lossy(text).into_owned(),
        used: row.get::<_, i64>(2)?.max(0) as u64,
    })
}

/// Whether the error says that the index itself is unusable.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(error, _) => match error.code {
            // Every statement is fixed: one that is no longer valid means that the schema was lost.
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown => true,
            _ => false,
        },
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::SqlInputError { .. } => true,
        _ => false,
    }
}

pub(crate) fn failure(dir: &Path, source: rusqlite::Error) -> StoreError {
    let path = dir.to_path_buf();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            let source = std::io::Error::new(std::io::ErrorKind::StorageFull, source.to_string());
            StoreError::NoSpace {
                path,
                bytes: 0,
                source,
            }
        }
        _ => StoreError::Index { path, source },
    }
}
