//! Looking at all that the store holds: counts, and who made what.

use std::collections::BTreeMap;
use std::fs;
use std::str::FromStr as _;
use std::sync::atomic::Ordering;

use ipub_base::Digest;
use serde::Serialize;

use crate::Store;
use crate::error::Result;
use crate::generation::key_of;
use crate::index::Count;
use crate::record::{Outcome, Record};
use crate::walk;

/// What the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStat {
    /// Number of blobs.
    pub blobs: u64,
    /// Bytes of all blobs as stored.
    pub blob_bytes: u64,
    /// Number of record files.
    pub records: u64,
    /// Bytes of all record files.
    pub record_bytes: u64,
    /// Bytes of the index and its helper files.
    pub index_bytes: u64,
    /// Stores that are open now, this one included.
    pub open: u64,
}

/// One record, as an audit shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// The key.
    pub key: Digest,
    /// The rule.
    pub rule: String,
    /// The target for which it ran first.
    pub label: String,
    /// `ok`, or the kind of failure.
    pub outcome: String,
    /// When it was made, in milliseconds since 1970.
    pub made_unix_ms: u64,
    /// When it was last used, in milliseconds since 1970, to the minute.
    pub used_unix_ms: u64,
    /// The program that made it.
    pub tool: String,
    /// Where it was executed.
    pub executed: String,
    /// Microseconds that it took.
    pub wall_micros: u64,
    /// Bytes of content of its outputs.
    pub bytes: u64,
    /// Bytes of its outputs as stored.
    pub stored: u64,
}

/// A record that the store holds, as text, row or both.
pub(crate) struct Held {
    pub(crate) record: Record,
    pub(crate) used_ms: u64,
    pub(crate) file_bytes: u64,
    /// When its file was written, in nanoseconds since 1970.
    pub(crate) written: u128,
}

/// A blob's file.
#[derive(Clone, Copy)]
pub(crate) struct BlobFile {
    pub(crate) size: u64,
    pub(crate) written: u128,
}

/// All that the store holds.
pub(crate) struct Survey {
    pub(crate) records: BTreeMap<Digest, Held>,
    pub(crate) blobs: BTreeMap<Digest, BlobFile>,
}

impl Survey {
    /// Bytes of all blobs.
    pub(crate) fn blob_bytes(&self) -> u64 {
        self.blobs.values().map(|blob| blob.size).sum()
    }
}

impl Store {
    /// Counts what the store holds, by walking its folders.
    pub fn stat(&self) -> Result<StoreStat> {
        let mut stat = StoreStat::default();
        for blob in walk(&self.dir.join("blobs"))? {
            stat.blobs += 1;
            stat.blob_bytes += blob.size;
        }
        for record in walk(&self.dir.join("records"))? {
            stat.records += 1;
            stat.record_bytes += record.size;
        }
        for suffix in ["", "-wal", "-shm"] {
            let mut name = self.index_path().into_os_string();
            name.push(suffix);
            stat.index_bytes += fs::metadata(name).map_or(0, |meta| meta.len());
        }
        let dead = crate::lease::dead(&self.dir)?.len() as u64;
        let leases = fs::read_dir(self.dir.join("leases")).map_or(0, |entries| entries.count());
        stat.open = (leases as u64).saturating_sub(dead);
        Ok(stat)
    }

    /// All records, the youngest last.
    pub fn audit(&self) -> Result<Vec<AuditEntry>> {
        let survey = self.survey()?;
        let mut entries: Vec<_> = survey.records.into_values().map(audit_entry).collect();
        entries.sort_by_key(|entry| (entry.made_unix_ms, entry.key));
        Ok(entries)
    }

    /// Reads every record and looks at every file.
    pub(crate) fn survey(&self) -> Result<Survey> {
        self.flush()?;
        let mut rows = BTreeMap::new();
        for row in self.index.records()? {
            if let Some(record) = Record::from_text(&row.text, row.key) {
                rows.insert(row.key, (record, row.used));
            }
        }
        let mut records = BTreeMap::new();
        for file in walk(&self.dir.join("records"))? {
            let Some(key) = key_of(&file.path) else {
                continue;
            };
            let found = match rows.remove(&key) {
                Some(row) => Some(row),
                None => {
                    let text = self.record_file(key)?.unwrap_or_default();
                    let used_ms = (file.written / 1_000_000) as u64;
                    Record::from_text(&text, key).map(|record| (record, used_ms))
                }
            };
            // A file that holds no record is for `verify` to tell.
            if let Some((record, used_ms)) = found {
                let held = Held {
                    record,
                    used_ms,
                    file_bytes: file.size,
                    written: file.written,
                };
                records.insert(key, held);
            }
        }
        // Rows whose files somebody removed are records as well.
        for (key, (record, used_ms)) in rows {
            let held = Held {
                record,
                used_ms,
                file_bytes: 0,
                written: 0,
            };
            records.insert(key, held);
        }
        let blobs = walk(&self.dir.join("blobs"))?.into_iter();
        let blobs = blobs.filter_map(|file| {
            let (size, written) = (file.size, file.written);
            Some((key_of(&file.path)?, BlobFile { size, written }))
        });
        Ok(Survey {
            records,
            blobs: blobs.collect(),
        })
    }

    /// Counts the bytes of all blobs anew.
    pub(crate) fn recount(&self) -> Result<u64> {
        self.growth.store(0, Ordering::Relaxed);
        let blobs = walk(&self.dir.join("blobs"))?;
        let bytes = blobs.iter().map(|blob| blob.size).sum();
        self.soft(self.index.set_count(Count::StoredBytes, bytes))?;
        Ok(bytes)
    }

    /// The keys that `what` names: a rule, a key, or the first eight digits of one or more.
    pub fn select(&self, what: &str) -> Result<Vec<Digest>> {
        const DIGITS_MIN: usize = 8;
        if let Ok(key) = Digest::from_str(what) {
            return Ok(vec![key]);
        }
        let records = self.survey()?.records;
        let of_rule = records.iter().filter(|(_, held)| held.record.rule == what);
        let keys: Vec<_> = of_rule.map(|(key, _)| *key).collect();
        if !keys.is_empty() || what.len() < DIGITS_MIN {
            return Ok(keys);
        }
        let keys = records.into_keys();
        Ok(keys.filter(|key| key.hex().starts_with(what)).collect())
    }
}

fn audit_entry(held: Held) -> AuditEntry {
    let record = held.record;
    let blobs = record.blobs();
    AuditEntry {
        key: record.key,
        outcome: match &record.outcome {
            Outcome::Ok { .. } => "ok".to_owned(),
            Outcome::Failed(failed) => failed.kind.clone(),
        },
        made_unix_ms: record.provenance.made_unix_ms,
        used_unix_ms: held.used_ms,
        wall_micros: record.wall_micros,
        bytes: blobs.iter().map(|blob| blob.size).sum(),
        stored: blobs.iter().map(|blob| blob.stored).sum(),
        rule: record.rule,
        label: record.label,
        tool: record.provenance.tool,
        executed: record.provenance.executed,
    }
}
