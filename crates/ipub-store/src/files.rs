//! Digests of source files, without reading those that have not changed.
//!
//! A file whose size, times and inode are as noted is taken as unchanged, unless it was written so
//! shortly before it was read that a later write could bear the same time: such a digest is not
//! noted, and the file is read again next time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ipub_base::{Digest, Hasher};
use rusqlite::{OptionalExtension as _, params};

use crate::Store;
use crate::error::{Result, StoreError};

/// Longer than one tick of any clock that stamps files.
const TICK: Duration = Duration::from_millis(20);

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFact {
    /// Its content.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// Whether its content was read for this answer.
    pub hashed: bool,
}

/// What a file's metadata says; equal stamps mean equal content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    mtime: i64,
    ctime: i64,
    inode: i64,
}

impl Store {
    /// The facts of many files, in one look at the index; `None` where there is no such file.
    pub fn files(&self, paths: &[PathBuf]) -> Result<Vec<Option<FileFact>>> {
        let stamps = paths
            .iter()
            .map(|path| stamp(path))
            .collect::<Result<Vec<_>>>()?;
        let noted = self.index.with(|connection| {
            let transaction = connection.transaction()?;
            let mut select = transaction.prepare_cached(
                "SELECT size, mtime, ctime, inode, digest, seal FROM files WHERE path = ?1",
            )?;
            let look = |path: &PathBuf| {
                let row = select.query_row([path_bytes(path)], |row| {
                    let stamp = Stamp {
                        size: row.get::<_, i64>(0)? as u64,
                        mtime: row.get(1)?,
                        ctime: row.get(2)?,
                        inode: row.get(3)?,
                    };
                    let digest = Digest::from_bytes(row.get(4)?);
                    let is_sound = seal(path, stamp, digest) == row.get::<_, i64>(5)?;
                    Ok(is_sound.then_some((stamp, digest)))
                });
                row.optional().map(Option::flatten)
            };
            paths.iter().map(look).collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let mut facts = Vec::with_capacity(paths.len());
        let mut notes = Vec::new();
        for ((path, stamp), noted) in paths.iter().zip(stamps).zip(noted) {
            facts.push(match (stamp, noted) {
                (None, _) => None,
                (Some(now), Some((then, digest))) if now == then => Some(FileFact {
                    digest,
                    size: now.size,
                    hashed: false,
                }),
                (Some(_), _) => read_fact(path, &mut notes)?,
            });
        }
        self.note_files(&notes)?;
        Ok(facts)
    }

    /// Notes the digest of a file that was just written with known content, so that it need not
    /// be read. For files that nobody else writes.
    pub fn note_written(&self, files: &[(PathBuf, Digest)]) -> Result<()> {
        let mut notes = Vec::new();
        for (path, digest) in files {
            notes.extend(stamp(path)?.map(|stamp| (path.clone(), stamp, *digest)));
        }
        self.note_files(&notes)
    }

    fn note_files(&self, notes: &[(PathBuf, Stamp, Digest)]) -> Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let written = self.index.write(|transaction| {
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO files VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            for (path, stamp, digest) in notes {
                let seal = seal(path, *stamp, *digest);
                let path = path_bytes(path);
                let Stamp {
                    size,
                    mtime,
                    ctime,
                    inode,
                } = *stamp;
                let digest = digest.as_bytes();
                let row = params![path, size as i64, mtime, ctime, inode, digest, seal];
                insert.execute(row)?;
            }
            Ok(())
        });
        self.soft(written)
    }
}

fn read_fact(path: &Path, notes: &mut Vec<(PathBuf, Stamp, Digest)>) -> Result<Option<FileFact>> {
    const CHUNK_BYTES: usize = 1 << 20;
    let fail = |source| StoreError::io("read", path, source);
    let before = SystemTime::now();
    let Some(first) = stamp(path)? else {
        return Ok(None);
    };
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let (mut hasher, mut size) = (Hasher::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES.min(first.size as usize + 1)];
    loop {
        match io::Read::read(&mut file, &mut chunk).map_err(fail)? {
            0 => break,
            count => {
                hasher.update(&chunk[..count]);
                size += count as u64;
            }
        }
    }
    let digest = hasher.finish();
    if stamp(path)? == Some(first) && is_settled(first, before) {
        notes.push((path.to_path_buf(), first, digest));
    }
    Ok(Some(FileFact {
        digest,
        size,
        hashed: true,
    }))
}

/// Whether a write at or after `now` must change the stamp.
fn is_settled(stamp: Stamp, now: SystemTime) -> bool {
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let limit = now.saturating_sub(TICK).as_nanos() as i64;
    stamp.mtime < limit && stamp.ctime < limit
}

fn stamp(path: &Path) -> Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some(stamp_of(&meta))),
        Ok(_) => Ok(None),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(StoreError::io("look at", path, error)),
    }
}

#[cfg(unix)]
fn stamp_of(meta: &fs::Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let nanos = |seconds: i64, nanos: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
    Stamp {
        size: meta.len(),
        mtime: nanos(meta.mtime(), meta.mtime_nsec()),
        ctime: nanos(meta.ctime(), meta.ctime_nsec()),
        inode: meta.ino() as i64,
    }
}

#[cfg(not(unix))]
fn stamp_of(meta: &fs::Metadata) -> Stamp {
    let since = |time: io::Result<SystemTime>| {
        let time = time
            .ok()
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        time.map_or(i64::MAX, |time| time.as_nanos() as i64)
    };
    Stamp {
        size: meta.len(),
        mtime: since(meta.modified()),
        ctime: since(meta.created()),
        inode: 0,
    }
}

/// Tells a row that was written from one whose bits have changed: nothing else would.
fn seal(path: &Path, stamp: Stamp, digest: Digest) -> i64 {
    let mut hasher = Hasher::new();
    for number in [stamp.size as i64, stamp.mtime, stamp.ctime, stamp.inode] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(digest.as_bytes()).update(path_bytes(path));
    let mut head = [0; 8];
    head.copy_from_slice(&hasher.finish().as_bytes()[..8]);
    i64::from_le_bytes(head)
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
