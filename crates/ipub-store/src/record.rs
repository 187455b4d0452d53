//! Action records: which blobs an action with a given key made, and how.
//!
//! A record file is `{"check":"<digest of the rest>","record":{...}}`; the check covers the exact
//! text of the record, so that damage is seen before it is believed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use ipub_base::{Digest, KeyLine};
use serde::{Deserialize, Serialize};

use crate::Store;
use crate::blob::sharded;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::generation::now_ms;
use crate::note::StoreNote;

/// A named blob that an action made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRef {
    /// The name that the rule declares.
    pub name: String,
    /// The content.
    pub digest: Digest,
    /// Bytes of content.
    pub size: u64,
    /// Bytes of its file in this store.
    pub stored: u64,
}

/// How an action ended. Only ends that follow from the key alone are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It made its outputs.
    Ok {
        /// In the order that the rule declares.
        outputs: Vec<OutputRef>,
    },
    /// It proved or found that it cannot.
    Failed(FailedOutcome),
}

/// A failure that is a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOutcome {
    /// The kind of failure, a word of the engine.
    pub kind: String,
    /// What happened, for people.
    pub message: String,
    /// The typed detail, if the stage gave one.
    pub payload: Option<OutputRef>,
}

/// How, when and where an action ran. Nothing here is part of any key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Milliseconds since 1970.
    pub made_unix_ms: u64,
    /// Program and version.
    pub tool: String,
    /// `local`, or the remote that executed it.
    pub executed: String,
}

/// One action's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The key.
    pub key: Digest,
    /// The rule.
    pub rule: String,
    /// The target for which it ran first.
    pub label: String,
    /// What the key consists of.
    pub key_lines: Vec<KeyLine>,
    /// How it ended.
    pub outcome: Outcome,
    /// Microseconds that it took.
    pub wall_micros: u64,
    /// Counts and remarks of the stage, such as reuse.
    pub notes: BTreeMap<String, serde_json::Value>,
    /// How, when, where.
    pub provenance: Provenance,
}

impl Record {
    /// Seconds that the action took.
    pub fn wall_seconds(&self) -> f64 {
        self.wall_micros as f64 / 1e6
    }

    /// Every blob that the record names.
    pub fn blobs(&self) -> &[OutputRef] {
        match &self.outcome {
            Outcome::Ok { outputs } => outputs,
            Outcome::Failed(failed) => failed.payload.as_slice(),
        }
    }

    /// The text of the record file.
    pub(crate) fn to_text(&self) -> String {
        let body = serde_json::to_string(self).expect("a record has only plain fields");
        format!("{PREFIX}{}{MIDDLE}{body}}}", Digest::of(&body))
    }

    /// Reads the text of a record file; `None` if it is damaged or not the record of `key`.
    pub(crate) fn from_text(text: &str, key: Digest) -> Option<Self> {
        Self::from_any_text(text).filter(|record| record.key == key)
    }

    /// Notes how long the blobs' files are in this store.
    pub(crate) fn set_stored(&mut self, stored: &BTreeMap<Digest, u64>) {
        let blobs = match &mut self.outcome {
            Outcome::Ok { outputs } => outputs.as_mut_slice(),
            Outcome::Failed(failed) => failed.payload.as_mut_slice(),
        };
        for blob in blobs {
            blob.stored = stored.get(&blob.digest).copied().unwrap_or(blob.stored);
        }
    }

    /// Reads the text of a record; `None` if it is damaged.
    pub(crate) fn from_any_text(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (check, rest) = rest.split_at_checked(64)?;
        let body = rest.strip_prefix(MIDDLE)?.strip_suffix('}')?;
        if Digest::of(body).hex() != check {
            return None;
        }
        serde_json::from_str(body).ok()
    }
}

const PREFIX: &str = "{\"check\":\"";
const MIDDLE: &str = "\",\"record\":";

impl Store {
    /// Stores a record whose blobs are stored. The file comes first, then the row of the index.
    pub fn put_record(&self, record: &Record) -> Result<()> {
        let text = record.to_text();
        self.write_atomic(&self.record_path(record.key), text.as_bytes())?;
        fail_point!("record.written");
        self.soft(self.index.insert_record(record.key, &text, now_ms()))?;
        fail_point!("record.stored");
        Ok(())
    }

    /// The record of `key`, if there is one and all its blobs are there. From then on neither is
    /// evicted while this store is open.
    pub fn get_record(&self, key: Digest) -> Result<Option<Record>> {
        self.lease.add(key)?;
        fail_point!("record.leased");
        let Some((record, used)) = self.look_up(key)? else {
            return Ok(None);
        };
        if let Some(gone) = record.blobs().iter().find(|blob| !self.has_output(blob)) {
            self.note(StoreNote::RecordIncomplete {
                key,
                rule: record.rule.clone(),
                output: gone.name.clone(),
                digest: gone.digest,
            });
            return Ok(None);
        }
        self.note_use(key, used);
        Ok(Some(record))
    }

    /// The record of `key`, even if its blobs are gone: for explanations.
    pub fn find_record(&self, key: Digest) -> Result<Option<Record>> {
        Ok(self.look_up(key)?.map(|(record, _)| record))
    }

    /// A record, and when its use was noted last.
    fn look_up(&self, key: Digest) -> Result<Option<(Record, u64)>> {
        if let Some(row) = self.index.record(key)?
            && let Some(record) = Record::from_text(&row.text, key)
        {
            return Ok(Some((record, row.used)));
        }
        let Some(text) = self.record_file(key)? else {
            return Ok(None);
        };
        let Some(record) = Record::from_text(&text, key) else {
            self.note(StoreNote::RecordDamaged { key });
            return Ok(None);
        };
        let used = now_ms();
        self.soft(self.index.insert_record(key, &text, used))?;
        Ok(Some((record, used)))
    }

    /// The text of a record's file.
    pub(crate) fn record_file(&self, key: Digest) -> Result<Option<String>> {
        let path = self.record_path(key);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("read", &path, error)),
        }
    }

    /// Where a record's file is.
    pub fn record_path(&self, key: Digest) -> PathBuf {
        sharded(&self.dir.join("records"), key, "json")
    }
}
