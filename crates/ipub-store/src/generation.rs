//! The files of the index: which one is used, and how a new one takes its place.
//!
//! `index-v2.7.sqlite` is the seventh generation of layout 2. A new generation is made aside,
//! synced and renamed to the next number, so that a process which still has the old one open harms
//! neither: SQLite removes and locks its helper files by name. The generation before is kept as it
//! was set aside until the next one comes; older ones are removed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use ipub_base::Digest;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::disk;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::index::{Count, failure, insert, set_count, set_last_key};
use crate::lease::nanos;
use crate::note::StoreNote;
use crate::record::Record;
use crate::walk;

/// Changes with the tables below. Each layout has its own files, so that programs of different age
/// can share a store.
const PREFIX: &str = "index-v2.";

/// The owner of an index that is being made.
const BEGUN: &str = "index";

const SCHEMA: &str = "
CREATE TABLE records (
    key BLOB PRIMARY KEY, text TEXT NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE last_keys (
    label TEXT NOT NULL, rule TEXT NOT NULL, key BLOB NOT NULL, previous BLOB,
    PRIMARY KEY (label, rule)) WITHOUT ROWID;
CREATE TABLE files (
    path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
    inode INTEGER NOT NULL, digest BLOB NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counts (name INTEGER PRIMARY KEY, value INTEGER NOT NULL);
";

/// An open index.
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    /// Whether it was built for this.
    pub(crate) is_new: bool,
}

/// The file of a generation.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number}.sqlite"))
}

/// Opens the newest generation, or makes one, and then tells so.
pub(crate) fn open(dir: &Path, check: bool) -> Result<(Generation, Option<StoreNote>)> {
    let Some(number) = newest(dir)? else {
        return rebuild(dir, None, "there was none");
    };
    let why = match connect(dir, number) {
        Ok(connection) => match check.then(|| fault(&connection)).flatten() {
            None => {
                let is_new = false;
                let generation = Generation {
                    number,
                    connection,
                    is_new,
                };
                return Ok((generation, None));
            }
            Some(fault) => fault,
        },
        // It may be sound, and opened later.
        Err(error) if is_passing(&error) => return Err(failure(dir, error)),
        Err(error) => error.to_string(),
    };
    rebuild(dir, Some(number), &why)
}

/// Puts a new index, made from the record files, in the place of generation `old`.
pub(crate) fn rebuild(
    dir: &Path,
    old: Option<u64>,
    why: &str,
) -> Result<(Generation, Option<StoreNote>)> {
    let lock_path = dir.join("locks").join("index");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path);
    let lock = lock.map_err(|source| StoreError::write(&lock_path, 0, source))?;
    lock.lock()
        .map_err(|source| StoreError::io("lock", &lock_path, source))?;
    fail_point!("index.rebuild");
    let newest = newest(dir)?;
    // Another process may have built it while we waited.
    if let Some(number) = newest.filter(|newest| old.is_none_or(|old| *newest > old))
        && let Ok(connection) = connect(dir, number)
        && fault(&connection).is_none()
    {
        let is_new = false;
        let generation = Generation {
            number,
            connection,
            is_new,
        };
        return Ok((generation, None));
    }
    // A helper file that was left without its index must not meet another one.
    let last = generations(dir, true)?.into_iter().max();
    let number = last.map_or(1, |last| last + 1);
    let records = fill(dir, &path(dir, number))?;
    fail_point!("index.renamed");
    remove_older(dir, number);
    let connection = connect(dir, number).map_err(|error| failure(dir, error))?;
    // The first index of an empty store is no news.
    let note = (records > 0 || old.is_some()).then(|| StoreNote::IndexRebuilt {
        why: why.to_owned(),
        records,
    });
    let is_new = true;
    let generation = Generation {
        number,
        connection,
        is_new,
    };
    Ok((generation, note))
}

/// Makes an index from the record files; gives their number.
fn fill(dir: &Path, path: &Path) -> Result<u64> {
    let fail = |source| StoreError::write(path, 0, source);
    let tmp = dir.join("tmp");
    remove_begun(&tmp);
    let file = disk::temporary(&tmp, BEGUN).map_err(fail)?;
    let mut records = Vec::new();
    for found in walk(&dir.join("records"))? {
        let text = fs::read(&found.path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (Ok(text), Some(key)) = (text, key_of(&found.path)) else {
            continue;
        };
        if let Some(record) = Record::from_text(&text, key) {
            let used = (found.written / 1_000_000) as u64;
            records.push((record.provenance.made_unix_ms, key, record, text, used));
        }
    }
    // The latest record of a rule and target is written last, so that it is the last key.
    records.sort_by_key(|(made, key, ..)| (*made, *key));
    let stored: u64 = walk(&dir.join("blobs"))?.iter().map(|blob| blob.size).sum();
    let fill = || {
        let mut connection = Connection::open(file.path())?;
        // Nobody sees it before it is complete and synced.
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        let transaction = connection.transaction()?;
        transaction.execute_batch(SCHEMA)?;
        for (_, key, record, text, used) in &records {
            insert(&transaction, *key, text, *used)?;
            set_last_key(&transaction, &record.label, &record.rule, *key)?;
        }
        set_count(&transaction, Count::StoredBytes, stored)?;
        set_count(&transaction, Count::CollectedMs, now_ms())?;
        transaction.commit()?;
        connection.close().map_err(|(_, error)| error)
    };
    fill().map_err(|error| failure(dir, error))?;
    fail_point!("index.filled");
    disk::sync_file(&file).map_err(fail)?;
    disk::persist(file, path).map_err(fail)?;
    disk::sync_dir(dir).map_err(fail)?;
    Ok(records.len() as u64)
}

/// What SQLite finds wrong with an index.
pub(crate) fn fault(connection: &Connection) -> Option<String> {
    let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match check {
        Ok(answer) if answer == "ok" => {}
        Ok(answer) => return Some(answer),
        Err(error) => return Some(error.to_string()),
    }
    // A file without tables is sound to SQLite.
    let tables = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN
         ('records', 'last_keys', 'files', 'counts')",
        [],
        |row| row.get::<_, i64>(0),
    );
    match tables {
        Ok(4) => None,
        Ok(_) => Some("tables are missing".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

fn is_passing(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory)
    )
}

fn connect(dir: &Path, number: u64) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path(dir, number), flags)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn newest(dir: &Path) -> Result<Option<u64>> {
    Ok(generations(dir, false)?.into_iter().max())
}

/// The numbers of all indexes, or of all that have an index or a helper file of SQLite.
fn generations(dir: &Path, helpers: bool) -> Result<Vec<u64>> {
    let fail = |source| StoreError::io("list", dir, source);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let parts = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some((number, rest)) = parts.and_then(|parts| parts.split_once('.'))
            && (rest == "sqlite" || (helpers && rest.starts_with("sqlite-")))
        {
            numbers.extend(number.parse::<u64>().ok());
        }
    }
    Ok(numbers)
}

/// Removes all but generation `number` and the one before it. What stays is only in the way.
fn remove_older(dir: &Path, number: u64) {
    for old in generations(dir, true).unwrap_or_default() {
        if old + 1 < number {
            for suffix in ["", "-wal", "-shm"] {
                let mut name = path(dir, old).into_os_string();
                name.push(suffix);
                let _ = fs::remove_file(name);
            }
        }
    }
}

/// Removes what killed processes began: the lock on the renewal is held.
fn remove_begun(tmp: &Path) {
    for entry in fs::read_dir(tmp).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix('w'));
        if owner.is_some_and(|owner| owner.starts_with(BEGUN)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The key that the name of a record file states.
pub(crate) fn key_of(file: &Path) -> Option<Digest> {
    let shard = file.parent()?.file_name()?.to_str()?;
    Digest::from_str(&format!("{shard}{}", file.file_stem()?.to_str()?)).ok()
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    (nanos(std::time::SystemTime::now()) / 1_000_000) as u64
}
