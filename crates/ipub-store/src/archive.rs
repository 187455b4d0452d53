//! Archives: records and their blobs as one file, to be carried to another store.
//!
//! Input: records to export; an archive's bytes to import.
//! Output: the archive; the same records and blobs in this store.
//! Invariants: an import believes nothing: every record's check, every blob's digest and size and
//! the digest of the whole are verified, no more is read than the records announce, and records
//! appear only after the last byte was seen; a refused archive leaves at most blobs without a
//! record, which the next eviction removes.
//! Not here: who is trusted.
//!
//! An archive is one zstd stream of `ipubarc1`, the number of records, then each record's text with
//! its length, the number of blobs, then each blob's digest, length and content, and at the end
//! the digest of all before it. Numbers are 64 bits, little-endian.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use ipub_base::{Diagnostic, Digest, Hasher};

use crate::Store;
use crate::blob::BLOB_BYTES_MAX;
use crate::error::StoreError;
use crate::fail::fail_point;
use crate::record::Record;

const MAGIC: &[u8; 8] = b"ipubarc1";
const ZSTD_LEVEL: i32 = 3;
/// No record's text is longer.
const RECORD_BYTES_MAX: u64 = 64 << 20;
const COUNT_MAX: u64 = 100_000_000;

/// What an archive holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ArchiveCount {
    /// Records.
    pub records: u64,
    /// Blobs.
    pub blobs: u64,
    /// Bytes of content of the blobs.
    pub bytes: u64,
    /// Records that were left out: their blobs are gone.
    pub incomplete: u64,
}

/// Why an archive was refused or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bytes are no sound archive.
    #[error("the archive is refused: {why}")]
    Refused {
        /// The reason.
        why: String,
    },
    /// The file could not be read or written.
    #[error("cannot {action} the archive: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The operating system's word.
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ArchiveError> for Diagnostic {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Refused { .. } => Diagnostic::usage(error.to_string())
                .help("nothing of it counts; fetch or export it again"),
            ArchiveError::Io { .. } => Diagnostic::environment(error.to_string()),
            ArchiveError::Store(error) => error.into(),
        }
    }
}

type Result<T> = std::result::Result<T, ArchiveError>;

fn refused(why: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused { why: why.into() }
}

/// Writes through a digest.
struct Summing<W> {
    to: W,
    hasher: Hasher,
}

impl<W: Write> Summing<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        let written = self.to.write_all(bytes);
        written.map_err(|source| ArchiveError::Io {
            action: "write",
            source,
        })
    }

    fn number(&mut self, value: u64) -> Result<()> {
        self.put(&value.to_le_bytes())
    }
}

/// Reads through a digest, never more than it is told.
struct Checked<R> {
    from: R,
    hasher: Hasher,
}

impl<R: Read> Checked<R> {
    fn take(&mut self, count: u64, what: &str) -> Result<Vec<u8>> {
        /// What is allocated before a byte has come.
        const FIRST_ALLOCATION_BYTES_MAX: u64 = 1 << 20;
        let mut bytes = Vec::with_capacity(count.min(FIRST_ALLOCATION_BYTES_MAX) as usize);
        let read = (&mut self.from).take(count).read_to_end(&mut bytes);
        read.map_err(|error| refused(format!("{what}: {error}")))?;
        if bytes.len() as u64 != count {
            return Err(refused(format!("it ends within {what}")));
        }
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    fn number(&mut self, max: u64, what: &str) -> Result<u64> {
        let bytes = self.take(8, what)?;
        let mut number = [0; 8];
        number.copy_from_slice(&bytes);
        match u64::from_le_bytes(number) {
            number if number <= max => Ok(number),
            number => Err(refused(format!("{what} is {number}, above {max}"))),
        }
    }

    fn digest(&mut self, what: &str) -> Result<Digest> {
        let bytes = self.take(32, what)?;
        let mut digest = [0; 32];
        digest.copy_from_slice(&bytes);
        Ok(Digest::from_bytes(digest))
    }
}

impl Store {
    /// Writes the records of `targets`' latest builds, or all, with their blobs.
    pub fn export(&self, targets: &[String], to: impl Write) -> Result<ArchiveCount> {
        let keys = match targets {
            [] => self.survey()?.records.into_keys().collect(),
            targets => {
                let mut keys = Vec::new();
                for label in targets {
                    keys.extend(self.index.keys_of(label)?);
                }
                keys
            }
        };
        let mut count = ArchiveCount::default();
        let mut records = BTreeMap::new();
        for key in keys {
            match self.get_record(key)? {
                Some(record) => _ = records.insert(key, record),
                None => count.incomplete += 1,
            }
        }
        let encoder = zstd::Encoder::new(to, ZSTD_LEVEL).and_then(|mut encoder| {
            encoder.include_checksum(true)?;
            Ok(encoder)
        });
        let to = encoder.map_err(|source| ArchiveError::Io {
            action: "write",
            source,
        })?;
        let hasher = Hasher::new();
        let mut to = Summing { to, hasher };
        to.put(MAGIC)?;
        to.number(records.len() as u64)?;
        let mut blobs = BTreeMap::new();
        for record in records.values() {
            let text = record.to_text();
            to.number(text.len() as u64)?;
            to.put(text.as_bytes())?;
            blobs.extend(record.blobs().iter().map(|blob| (blob.digest, blob.size)));
        }
        to.number(blobs.len() as u64)?;
        for (digest, size) in &blobs {
            to.put(digest.as_bytes())?;
            to.number(*size)?;
            to.put(&self.get_blob(*digest)?)?;
            count.bytes += size;
        }
        let digest = to.hasher.finish();
        to.put(digest.as_bytes())?;
        let finished = to.to.finish().and_then(|mut to| to.flush());
        finished.map_err(|source| ArchiveError::Io {
            action: "write",
            source,
        })?;
        count.records = records.len() as u64;
        count.blobs = blobs.len() as u64;
        Ok(count)
    }

    /// Reads an archive whose blobs hold at most `bytes_max` in all.
    pub fn import(&self, from: impl Read, bytes_max: u64) -> Result<ArchiveCount> {
        let decoder = zstd::Decoder::new(from);
        let decoder = decoder.map_err(|source| ArchiveError::Io {
            action: "read",
            source,
        })?;
        let hasher = Hasher::new();
        let mut from = Checked {
            from: decoder,
            hasher,
        };
        if from.take(MAGIC.len() as u64, "its first bytes")? != MAGIC {
            return Err(refused("it does not begin as an archive of ipub"));
        }
        let records = read_records(&mut from)?;
        let (sizes, bytes) = announced(&records, bytes_max)?;
        let stored = self.import_blobs(&mut from, &sizes)?;
        end(&mut from)?;
        if let Some(lost) = sizes.keys().find(|digest| !stored.contains_key(digest)) {
            return Err(refused(format!("blob {lost} is announced and not there")));
        }
        let mut count = ArchiveCount {
            blobs: stored.len() as u64,
            bytes,
            ..ArchiveCount::default()
        };
        for mut record in records {
            if self.get_record(record.key)?.is_none() {
                record.set_stored(&stored);
                "import".clone_into(&mut record.provenance.executed);
                self.put_record(&record)?;
            }
            count.records += 1;
            fail_point!("import.record");
        }
        Ok(count)
    }

    /// Stores the blobs of an archive; gives how long their files are.
    fn import_blobs<R: Read>(
        &self,
        from: &mut Checked<R>,
        sizes: &BTreeMap<Digest, u64>,
    ) -> Result<BTreeMap<Digest, u64>> {
        let mut stored = BTreeMap::new();
        for _ in 0..from.number(COUNT_MAX, "the number of blobs")? {
            let digest = from.digest("a blob's digest")?;
            let size = from.number(BLOB_BYTES_MAX, "a blob's length")?;
            if sizes.get(&digest) != Some(&size) || stored.contains_key(&digest) {
                return Err(refused(format!("no record announces blob {digest} so")));
            }
            let content = from.take(size, "a blob")?;
            let found = Digest::of(&content);
            if found != digest {
                let why = format!("blob {digest} has content with digest {found}");
                return Err(refused(why));
            }
            stored.insert(digest, self.put_output("", &content)?.stored);
            fail_point!("import.blob");
        }
        Ok(stored)
    }
}

/// The sizes of all blobs that the records name, and their sum.
fn announced(records: &[Record], bytes_max: u64) -> Result<(BTreeMap<Digest, u64>, u64)> {
    let blobs = records.iter().flat_map(Record::blobs);
    let sizes: BTreeMap<_, _> = blobs.map(|blob| (blob.digest, blob.size)).collect();
    let sum = |sum: u64, size: &u64| sum.checked_add(*size);
    match sizes.values().try_fold(0, sum) {
        Some(bytes) if bytes <= bytes_max => Ok((sizes, bytes)),
        _ => {
            let why = format!("its blobs would hold more than {bytes_max} bytes");
            Err(refused(why))
        }
    }
}

/// The digest at the end must fit, and nothing may follow.
fn end<R: Read>(from: &mut Checked<R>) -> Result<()> {
    let sum = from.hasher.finish();
    if from.digest("the digest at its end")? != sum {
        return Err(refused("the digest at its end does not fit"));
    }
    let mut rest = [0];
    match from.from.read(&mut rest) {
        Ok(0) => Ok(()),
        Ok(_) => Err(refused("more follows after its end")),
        Err(error) => Err(refused(format!("its end: {error}"))),
    }
}

fn read_records<R: Read>(from: &mut Checked<R>) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for _ in 0..from.number(COUNT_MAX, "the number of records")? {
        let length = from.number(RECORD_BYTES_MAX, "a record's length")?;
        let text = from.take(length, "a record")?;
        let record = String::from_utf8(text).ok();
        let record = record.and_then(|text| Record::from_any_text(&text));
        records.push(record.ok_or_else(|| refused("a record is damaged"))?);
    }
    Ok(records)
}
