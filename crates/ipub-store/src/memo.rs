//! Memo packs: the sub-results of one stage execution, stored as one blob.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use ipub_base::{Digest, Memo};

use crate::Store;
use crate::error::Result;
use crate::record::{Outcome, Provenance, Record};

const MAGIC: &[u8; 8] = b"ipubmem1";

/// Sub-results by kind and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoPack {
    /// The entries.
    pub entries: BTreeMap<(String, Digest), Vec<u8>>,
}

impl MemoPack {
    /// The pack as bytes: magic, count, then each entry with its lengths.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let number = |bytes: &mut Vec<u8>, value: usize| {
            bytes.extend_from_slice(&(value as u64).to_le_bytes());
        };
        number(&mut bytes, self.entries.len());
        for ((kind, key), value) in &self.entries {
            number(&mut bytes, kind.len());
            bytes.extend_from_slice(kind.as_bytes());
            bytes.extend_from_slice(key.as_bytes());
            number(&mut bytes, value.len());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Reads what `to_bytes` wrote; `None` for anything else.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        if take(input, MAGIC.len())? != MAGIC {
            return None;
        }
        let mut entries = BTreeMap::new();
        for _ in 0..number(input)? {
            let length = number(input)?;
            let kind = std::str::from_utf8(take(input, length)?).ok()?.to_owned();
            let key = Digest::from_bytes(take(input, 32)?.try_into().ok()?);
            let length = number(input)?;
            entries.insert((kind, key), take(input, length)?.to_vec());
        }
        input.is_empty().then_some(Self { entries })
    }

    /// Adds the entries of `other`. Equal keys have equal values.
    pub fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = input.split_at_checked(count)?;
    *input = tail;
    Some(head)
}

fn number(input: &mut &[u8]) -> Option<usize> {
    let bytes = take(input, 8)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

impl Store {
    /// The pack kept under `slot`; empty if there is none or it is damaged.
    pub fn load_memo(&self, slot: Digest) -> Result<MemoPack> {
        let record = self.get_record(slot)?;
        let blob = record.as_ref().and_then(|record| record.blobs().first());
        let bytes = blob.and_then(|blob| self.get_blob(blob.digest).ok());
        Ok(bytes
            .and_then(|bytes| MemoPack::from_bytes(&bytes))
            .unwrap_or_default())
    }

    /// Keeps `pack` under each of `slots`, in place of what was there.
    pub fn save_memo(&self, slots: &[Digest], pack: &MemoPack) -> Result<()> {
        let output = self.put_output("memo", &pack.to_bytes())?;
        for slot in slots {
            self.put_record(&Record {
                key: *slot,
                rule: "memo".to_owned(),
                label: String::new(),
                key_lines: Vec::new(),
                outcome: Outcome::Ok {
                    outputs: vec![output.clone()],
                },
                wall_micros: 0,
                notes: BTreeMap::new(),
                provenance: Provenance::default(),
            })?;
        }
        Ok(())
    }
}

/// How a memo served one stage execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoUse {
    /// Sub-results found.
    pub reused: u64,
    /// Sub-results asked for.
    pub asked: u64,
}

struct Entry {
    value: Vec<u8>,
    touched: AtomicBool,
}

/// A memo over a loaded pack. Afterwards `into_pack` gives what this execution touched.
#[derive(Default)]
pub struct PackMemo {
    entries: RwLock<BTreeMap<(String, Digest), Entry>>,
    grown: AtomicBool,
    reused: AtomicU64,
    asked: AtomicU64,
}

impl PackMemo {
    /// A memo that knows what `pack` holds.
    pub fn new(pack: MemoPack) -> Self {
        let fresh = |value| Entry {
            value,
            touched: AtomicBool::new(false),
        };
        let entries = pack
            .entries
            .into_iter()
            .map(|(key, value)| (key, fresh(value)))
            .collect();
        Self {
            entries: RwLock::new(entries),
            ..Self::default()
        }
    }

    /// How it served so far.
    pub fn usage(&self) -> MemoUse {
        MemoUse {
            reused: self.reused.load(Ordering::Relaxed),
            asked: self.asked.load(Ordering::Relaxed),
        }
    }

    /// Whether anything was put.
    pub fn has_grown(&self) -> bool {
        self.grown.load(Ordering::Relaxed)
    }

    /// Everything touched by this execution, and of the rest as much, in key order, as fits with
    /// it into `bytes_max`.
    pub fn into_pack(self, bytes_max: usize) -> MemoPack {
        let entries = self
            .entries
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (touched, rest): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .partition(|(_, entry)| entry.touched.load(Ordering::Relaxed));
        let mut bytes: usize = touched.iter().map(|(_, entry)| entry.value.len()).sum();
        let mut pack = MemoPack::default();
        pack.entries
            .extend(touched.into_iter().map(|(key, entry)| (key, entry.value)));
        for (key, entry) in rest {
            bytes += entry.value.len();
            if bytes > bytes_max {
                break;
            }
            pack.entries.insert(key, entry.value);
        }
        pack
    }
}

impl Memo for PackMemo {
    fn get(&self, kind: &'static str, key: Digest) -> Option<Vec<u8>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&(kind.to_owned(), key))?;
        entry.touched.store(true, Ordering::Relaxed);
        self.reused.fetch_add(1, Ordering::Relaxed);
        Some(entry.value.clone())
    }

    fn put(&self, kind: &'static str, key: Digest, value: Vec<u8>) {
        self.grown.store(true, Ordering::Relaxed);
        let entry = Entry {
            value,
            touched: AtomicBool::new(true),
        };
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert((kind.to_owned(), key), entry);
    }
}
