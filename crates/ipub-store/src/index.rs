//! The SQLite index: a cache of the record files and of file digests.
//!
//! Nothing is lost with it but time. Damage that SQLite reports leads to a new index, built from
//! the record files; damage that SQLite does not see is caught by the check in each record.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipub_base::Digest;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction, params};

use crate::error::{Result, StoreError};
use crate::record::Record;
use crate::walk;

/// Changes with the tables below; another number means another index.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE records (key BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE last_keys (
    label TEXT NOT NULL, rule TEXT NOT NULL, key BLOB NOT NULL, previous BLOB,
    PRIMARY KEY (label, rule)) WITHOUT ROWID;
CREATE TABLE files (
    path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
    inode INTEGER NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID;
";

/// The latest keys of one rule for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastKeys {
    /// The key of the latest build.
    pub key: Digest,
    /// The latest key that differs from it.
    pub previous: Option<Digest>,
}

pub(crate) struct Index {
    dir: PathBuf,
    connection: Mutex<Connection>,
    rebuilt: AtomicBool,
}

impl Index {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let (connection, rebuilt) = match connect(dir) {
            Ok(Some(connection)) => (connection, false),
            Ok(None) => (rebuild(dir)?, true),
            Err(error) if is_damage(&error) => (rebuild(dir)?, true),
            Err(error) => return Err(failure(dir, error)),
        };
        let rebuilt = AtomicBool::new(rebuilt);
        Ok(Self {
            dir: dir.to_path_buf(),
            connection: Mutex::new(connection),
            rebuilt,
        })
    }

    pub(crate) fn was_rebuilt(&self) -> bool {
        self.rebuilt.load(Ordering::Relaxed)
    }

    /// Runs `body`; if SQLite finds the index damaged, builds a new one and runs it once more.
    pub(crate) fn with<T>(
        &self,
        mut body: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut connection = self.lock();
        match body(&mut connection) {
            Err(error) if is_damage(&error) => {
                *connection = rebuild(&self.dir)?;
                self.rebuilt.store(true, Ordering::Relaxed);
                body(&mut connection).map_err(|error| failure(&self.dir, error))
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
            transaction.commit()?;
            Ok(value)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_text(&self, key: Digest) -> Result<Option<String>> {
        self.with(|connection| {
            let mut select =
                connection.prepare_cached("SELECT text FROM records WHERE key = ?1")?;
            let text = select.query_row([key.as_bytes()], |row| row.get_ref(0).map(lossy));
            text.optional()
        })
    }

    pub(crate) fn insert_record(&self, record: &Record, text: &str) -> Result<()> {
        self.write(|transaction| insert(transaction, record.key, text))
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
            self.index.set_last_keys(label, &changed)
        }
    }
}

fn set_last_key(
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

fn insert(transaction: &Transaction<'_>, key: Digest, text: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2)")?
        .execute(params![key.as_bytes(), text])
        .map(drop)
}

fn lossy(value: rusqlite::types::ValueRef<'_>) -> String {
    let bytes = value.as_bytes().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Opens the index; `None` if there is none, or one of another version.
fn connect(dir: &Path) -> rusqlite::Result<Option<Connection>> {
    let path = index_path(dir);
    if !path.is_file() {
        return Ok(None);
    }
    let connection = Connection::open(&path)?;
    configure(&connection)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((version == VERSION).then_some(connection))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Puts a new index, made from the record files, in the place of whatever is there.
fn rebuild(dir: &Path) -> Result<Connection> {
    let path = index_path(dir);
    let lock_path = dir.join("claims").join("index");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path);
    let lock = lock.map_err(|source| StoreError::write(&lock_path, 0, source))?;
    lock.lock()
        .map_err(|source| StoreError::io("lock", &lock_path, source))?;
    // Another process may have rebuilt it while we waited.
    if let Ok(Some(connection)) = connect(dir)
        && is_sound(&connection)
    {
        return Ok(connection);
    }
    for suffix in ["", "-wal", "-shm"] {
        let file = dir.join(format!("index.sqlite{suffix}"));
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &file, error));
            }
            _ => {}
        }
    }
    let mut records = Vec::new();
    for (file, _) in walk(&dir.join("records"))? {
        let text = fs::read(&file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (Ok(text), Some(key)) = (text, key_of(&file)) else {
            continue;
        };
        if let Some(record) = Record::from_text(&text, key) {
            records.push((record.provenance.made_unix_ms, key, record, text));
        }
    }
    // The latest record of a rule and target is written last, so that it is the last key.
    records.sort_by_key(|(made, key, ..)| (*made, *key));
    let fill = || {
        let mut connection = Connection::open(&path)?;
        configure(&connection)?;
        let transaction = connection.transaction()?;
        transaction.execute_batch(SCHEMA)?;
        for (_, key, record, text) in &records {
            insert(&transaction, *key, text)?;
            set_last_key(&transaction, &record.label, &record.rule, *key)?;
        }
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
        Ok(connection)
    };
    fill().map_err(|error| failure(dir, error))
}

fn is_sound(connection: &Connection) -> bool {
    let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    check.is_ok_and(|answer| answer == "ok")
}

/// The key that the name of a record file states.
fn key_of(file: &Path) -> Option<Digest> {
    let shard = file.parent()?.file_name()?.to_str()?;
    Digest::from_str(&format!("{shard}{}", file.file_stem()?.to_str()?)).ok()
}

fn index_path(dir: &Path) -> PathBuf {
    dir.join("index.sqlite")
}

/// Whether the error says that the index itself is unusable.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(error, message) => match error.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // A missing table or column: the schema was lost, with the version number intact.
            ErrorCode::Unknown => message
                .as_deref()
                .is_some_and(|text| text.starts_with("no such")),
            _ => false,
        },
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::SqlInputError { .. } => true,
        _ => false,
    }
}

fn failure(dir: &Path, source: rusqlite::Error) -> StoreError {
    let path = index_path(dir);
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
