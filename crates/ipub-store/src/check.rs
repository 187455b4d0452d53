//! Verifying all that the store holds, and repairing what can be repaired.
//!
//! Input: the store's files.
//! Output: the faults, each with its place.
//! Invariants: verifying changes nothing; repairing removes only what is damaged, after a second
//! look while nobody can put something else in its place.
//! Not here: making lost outputs again; a build does that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ipub_base::Digest;
use serde::Serialize;

use crate::Store;
use crate::blob::decode;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::generation::key_of;
use crate::record::Record;
use crate::trash::Trash;
use crate::walk;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// A blob's file does not hold its content.
    Blob {
        /// The blob.
        digest: Digest,
        /// What was found.
        why: String,
    },
    /// A record's file does not hold its record.
    Record {
        /// The key that its name states.
        key: Digest,
    },
    /// A record names a blob that is gone or of another length.
    Incomplete {
        /// The record.
        key: Digest,
        /// Its rule.
        rule: String,
        /// The output.
        output: String,
        /// The blob.
        digest: Digest,
    },
    /// The index has another record than the file, or one that has no file.
    Row {
        /// The record.
        key: Digest,
    },
    /// SQLite finds the index damaged.
    Index {
        /// What it says.
        why: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blob { digest, why } => write!(f, "blob {digest}: {why}"),
            Self::Record { key } => write!(f, "record {key}: its file is damaged"),
            Self::Incomplete {
                key,
                rule,
                output,
                digest,
            } => write!(
                f,
                "record {key} of {rule}: its {output} (blob {digest}) is gone"
            ),
            Self::Row { key } => write!(f, "record {key}: the index disagrees with its file"),
            Self::Index { why } => write!(f, "index: {why}"),
        }
    }
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Blobs hashed.
    pub blobs: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Records read.
    pub records: u64,
    /// Blobs that no record names: of failed builds, or in use by a build that runs now.
    pub unnamed_blobs: u64,
    /// What is wrong, sorted.
    pub faults: Vec<Fault>,
}

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// What was wrong.
    pub faults: Vec<Fault>,
    /// Damaged blobs removed.
    pub blobs_removed: u64,
    /// Records removed that were damaged or incomplete.
    pub records_removed: u64,
    /// Record files written anew from the index.
    pub records_restored: u64,
    /// Records in the new index.
    pub records: u64,
}

impl Store {
    /// Hashes every blob, on `threads` threads, and checks every record and the index.
    pub fn verify(&self, threads: usize) -> Result<VerifyReport> {
        self.flush()?;
        let mut report = VerifyReport::default();
        let mut faults = BTreeSet::new();
        if let Some(why) = self.index.fault() {
            faults.insert(Fault::Index { why });
        }
        let mut sizes = BTreeMap::new();
        for file in walk(&self.dir.join("blobs"))? {
            if let Some(digest) = key_of(&file.path) {
                report.blobs += 1;
                report.bytes += file.size;
                sizes.insert(digest, file.size);
            }
        }
        let digests: Vec<_> = sizes.keys().copied().collect();
        for (digest, why) in self.hash_all(&digests, threads) {
            sizes.remove(&digest);
            faults.insert(Fault::Blob { digest, why });
        }
        let mut rows = self.rows()?;
        let mut named = BTreeSet::new();
        for file in walk(&self.dir.join("records"))? {
            let Some(key) = key_of(&file.path) else {
                continue;
            };
            report.records += 1;
            let Some(text) = self.record_file(key)? else {
                continue;
            };
            let row = rows.remove(&key);
            let Some(record) = Record::from_text(&text, key) else {
                faults.insert(Fault::Record { key });
                continue;
            };
            if row.is_some_and(|row| row != text) {
                faults.insert(Fault::Row { key });
            }
            for blob in record.blobs() {
                named.insert(blob.digest);
                let is_whole = sizes
                    .get(&blob.digest)
                    .is_some_and(|&size| size == blob.stored);
                // One that was put, or put again, meanwhile is whole.
                if !is_whole && !self.has_output(blob) {
                    faults.insert(incomplete(&record, &blob.name, blob.digest));
                }
            }
        }
        faults.extend(rows.into_keys().map(|key| Fault::Row { key }));
        let unnamed = digests.iter().filter(|digest| !named.contains(digest));
        report.unnamed_blobs = unnamed.count() as u64;
        report.faults = faults.into_iter().collect();
        Ok(report)
    }

    /// The texts of all rows.
    fn rows(&self) -> Result<BTreeMap<Digest, String>> {
        let rows = self.index.records()?.into_iter();
        Ok(rows.map(|row| (row.key, row.text)).collect())
    }

    /// The blobs that are damaged, and how.
    fn hash_all(&self, digests: &[Digest], threads: usize) -> Vec<(Digest, String)> {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(&digest) = digests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let why = match fs::read(self.blob_path(digest)) {
                    Ok(frame) => decode(&frame, digest).err(),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    Err(error) => Some(error.to_string()),
                };
                if let Some(why) = why {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((digest, why));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(digests.len()) {
                scope.spawn(work);
            }
            work();
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is damaged, writes record files anew that the index still has, drops records
    /// whose blobs are gone, and builds a new index.
    pub fn repair(&self, threads: usize) -> Result<RepairReport> {
        Trash::lock(&self.dir)?.restore_all()?;
        let mut report = RepairReport {
            faults: self.verify(threads)?.faults,
            ..RepairReport::default()
        };
        // An index that is damaged is no source.
        let mut rows = match self.index.fault() {
            None => self.rows()?,
            Some(_) => BTreeMap::new(),
        };
        rows.retain(|key, text| Record::from_text(text, *key).is_some());
        for fault in &report.faults {
            match fault {
                Fault::Blob { digest, .. } => {
                    if self.drop_if_damaged(*digest)?.is_none() {
                        report.blobs_removed += 1;
                    }
                }
                Fault::Record { key } | Fault::Row { key } => {
                    if self.drop_damaged_record(*key)? {
                        match rows.get(key) {
                            Some(text) => {
                                self.write_atomic(&self.record_path(*key), text.as_bytes())?;
                                report.records_restored += 1;
                            }
                            None => report.records_removed += 1,
                        }
                    }
                }
                Fault::Incomplete { .. } | Fault::Index { .. } => {}
            }
            fail_point!("repair.step");
        }
        let why = "a repair was asked for";
        self.index.renew(why)?;
        report.records_removed += self.drop_incomplete()?;
        self.sweep_claims();
        report.records = self.index.records()?.len() as u64;
        Ok(report)
    }

    /// Removes the file of a record if it is damaged. Whether there is none now.
    fn drop_damaged_record(&self, key: Digest) -> Result<bool> {
        let trash = Trash::lock(&self.dir)?;
        let Some(hidden) = trash.hide(self.record_path(key))? else {
            return Ok(true);
        };
        let at = hidden.path();
        let bytes = fs::read(at).map_err(|source| StoreError::io("read", at, source))?;
        let text = String::from_utf8_lossy(&bytes);
        let is_sound = Record::from_text(&text, key).is_some();
        match is_sound {
            true => hidden.restore()?,
            false => hidden.remove()?,
        }
        Ok(!is_sound)
    }

    /// Drops records whose blobs are gone. Who makes the blobs again writes the record again.
    fn drop_incomplete(&self) -> Result<u64> {
        let survey = self.survey()?;
        let is_incomplete = |record: &Record| {
            let mut blobs = record.blobs().iter();
            blobs.any(|blob| !self.has_output(blob))
        };
        let trash = Trash::lock(&self.dir)?;
        let mut dropped = Vec::new();
        for held in survey.records.values() {
            let record = &held.record;
            if !is_incomplete(record) {
                continue;
            }
            match trash.hide(self.record_path(record.key))? {
                Some(hidden) if is_incomplete(record) => hidden.remove()?,
                Some(hidden) => {
                    hidden.restore()?;
                    continue;
                }
                None => {}
            }
            dropped.push(record.key);
        }
        self.index.delete_records(&dropped)?;
        Ok(dropped.len() as u64)
    }
}

fn incomplete(record: &Record, output: &str, digest: Digest) -> Fault {
    Fault::Incomplete {
        key: record.key,
        rule: record.rule.clone(),
        output: output.to_owned(),
        digest,
    }
}
