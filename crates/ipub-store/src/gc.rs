//! Eviction: what was not used for longest goes first, what a live process uses stays.
//!
//! Input: limits, or keys to be dropped; the leases.
//! Output: fewer records and blobs, and a report.
//! Invariants: a record in a live lease, and a blob that a kept record names or that was written
//! since the earliest live process began, is not evicted; a record goes before its blobs, so that
//! a kill in between leaves blobs without a record and no record without its blobs.
//! Not here: hiding and putting back (`trash.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipub_base::Digest;
use serde::Serialize;

use crate::Store;
use crate::error::Result;
use crate::fail::fail_point;
use crate::generation::{key_of, now_ms};
use crate::index::Count;
use crate::lease::{self, Live};
use crate::survey::Survey;
use crate::trash::Trash;

/// Files bear the time of the kernel's tick, which may lie before that of a clock.
const CLOCK_SLACK_NS: u128 = 50_000_000;
/// How often the age limit is applied without need.
const COLLECT_MS: u64 = 24 * 3600 * 1000;
/// After an automatic eviction there is this share of the limit left, in percent.
const ROOM_PERCENT: u64 = 10;

/// How much the store may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of blobs and records.
    pub bytes_max: Option<u64>,
    /// Time since the last use.
    pub age_max: Option<Duration>,
}

/// What an eviction did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Bytes of blobs and records before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
    /// Records evicted.
    pub records: u64,
    /// Blobs evicted, those that no record named included.
    pub blobs: u64,
    /// Records that live processes use.
    pub records_in_use: u64,
    /// Bytes that could not be evicted because live processes use them.
    pub bytes_in_use: u64,
    /// The size limit.
    pub bytes_max: Option<u64>,
    /// Milliseconds since the last use of the evicted record that was used last.
    pub youngest_ms: Option<u64>,
}

impl GcReport {
    /// Whether what is in use alone is above the limit.
    pub fn exceeds(&self) -> bool {
        self.bytes_max.is_some_and(|max| self.bytes_after > max)
    }
}

/// What is to go.
struct Choice {
    keys: BTreeSet<Digest>,
    live: Live,
    report: GcReport,
}

impl Store {
    /// Applies limits if the store has grown above them, or once a day. What this process uses
    /// counts as in use. `None` if there was nothing to do or another process does it.
    pub fn collect_if_due(&self, limits: Limits) -> Result<Option<GcReport>> {
        self.flush()?;
        let stored = self.index.count(Count::StoredBytes)?;
        let collected = self.index.count(Count::CollectedMs)?;
        let is_above = limits.bytes_max.is_some_and(|max| stored > max);
        let is_old = limits.age_max.is_some() && now_ms().abs_diff(collected) > COLLECT_MS;
        if !is_above && !is_old {
            return Ok(None);
        }
        match Trash::try_lock(&self.dir)? {
            Some(trash) => self.collect_with(&trash, limits, ROOM_PERCENT).map(Some),
            None => Ok(None),
        }
    }

    /// Applies limits.
    pub fn collect(&self, limits: Limits) -> Result<GcReport> {
        let trash = Trash::lock(&self.dir)?;
        self.collect_with(&trash, limits, 0)
    }

    /// What `collect` would do.
    pub fn collect_dry(&self, limits: Limits) -> Result<GcReport> {
        let live = lease::live(&self.dir)?;
        let survey = self.survey()?;
        Ok(choose(&survey, live, limits, 0).report)
    }

    /// Drops the records of `keys` that no live process uses, and blobs that no other needs.
    pub fn purge(&self, keys: &[Digest]) -> Result<GcReport> {
        let trash = Trash::lock(&self.dir)?;
        let live = lease::live(&self.dir)?;
        let survey = self.survey()?;
        let held = keys.iter().filter(|key| survey.records.contains_key(key));
        let (used, free): (BTreeSet<_>, BTreeSet<_>) =
            held.partition(|key| is_live(&survey, &live, **key));
        let report = GcReport {
            bytes_before: total(&survey),
            records_in_use: used.len() as u64,
            ..GcReport::default()
        };
        let choice = Choice {
            keys: free,
            live,
            report,
        };
        self.evict(&trash, &survey, choice)
    }

    fn collect_with(&self, trash: &Trash, limits: Limits, room: u64) -> Result<GcReport> {
        // First the leases, then the records: who goes in between has left its records.
        let live = lease::live(&self.dir)?;
        let survey = self.survey()?;
        let choice = choose(&survey, live, limits, room);
        fail_point!("gc.chosen");
        let report = self.evict(trash, &survey, choice)?;
        self.sweep_claims();
        self.soft(self.index.set_count(Count::CollectedMs, now_ms()))?;
        Ok(report)
    }

    /// Evicts the chosen records and all blobs that no remaining record names.
    fn evict(&self, trash: &Trash, survey: &Survey, choice: Choice) -> Result<GcReport> {
        let Choice { keys, live, report } = choice;
        let fresh = live.since.saturating_sub(CLOCK_SLACK_NS);
        let mut report = GcReport {
            bytes_after: report.bytes_before,
            records: 0,
            blobs: 0,
            ..report
        };
        let files = keys.iter().map(|key| self.record_path(*key)).collect();
        let hidden = trash.hide_all(files)?;
        fail_point!("gc.hidden");
        let keys: Vec<_> = keys.into_iter().collect();
        self.index.delete_records(&keys)?;
        fail_point!("gc.unlisted");
        // Who looked for one of these before it was hidden has it in its lease by now.
        let now_live = lease::live(&self.dir)?;
        // Those without a file had only a row.
        let mut gone: BTreeSet<_> = keys.into_iter().collect();
        for file in hidden {
            let key = key_of(file.from());
            let is_used = key.is_some_and(|key| now_live.keys.contains(&key));
            if is_used || file.written() >= fresh {
                file.restore()?;
                key.map(|key| gone.remove(&key));
            } else {
                file.remove()?;
            }
        }
        report.records = gone.len() as u64;
        fail_point!("gc.records");
        let mut named = BTreeSet::new();
        for (key, held) in &survey.records {
            match gone.contains(key) {
                true => report.bytes_after -= held.file_bytes,
                false => named.extend(held.record.blobs().iter().map(|blob| blob.digest)),
            }
        }
        let blobs = survey.blobs.iter();
        let free = blobs.filter(|(digest, blob)| !named.contains(digest) && blob.written < fresh);
        let files = free.map(|(digest, _)| self.blob_path(*digest)).collect();
        for file in trash.hide_all(files)? {
            // It may have been put again after it was looked at.
            if file.written() >= fresh {
                file.restore()?;
                continue;
            }
            let blob = key_of(file.from()).and_then(|digest| survey.blobs.get(&digest));
            report.blobs += 1;
            report.bytes_after -= blob.map_or(0, |blob| blob.size);
            file.remove()?;
        }
        fail_point!("gc.blobs");
        self.recount()?;
        Ok(report)
    }
}

fn is_live(survey: &Survey, live: &Live, key: Digest) -> bool {
    let fresh = live.since.saturating_sub(CLOCK_SLACK_NS);
    let held = &survey.records[&key];
    live.keys.contains(&key) || held.written >= fresh
}

fn total(survey: &Survey) -> u64 {
    let records: u64 = survey.records.values().map(|held| held.file_bytes).sum();
    records + survey.blob_bytes()
}

/// Chooses the records that go, and foretells the rest.
fn choose(survey: &Survey, live: Live, limits: Limits, room_percent: u64) -> Choice {
    let fresh = live.since.saturating_sub(CLOCK_SLACK_NS);
    let now = now_ms();
    let before = total(survey);
    let mut report = GcReport {
        bytes_before: before,
        bytes_max: limits.bytes_max,
        ..GcReport::default()
    };
    let mut named: BTreeMap<Digest, usize> = BTreeMap::new();
    for held in survey.records.values() {
        let digests: BTreeSet<_> = held.record.blobs().iter().map(|blob| blob.digest).collect();
        for digest in digests {
            *named.entry(digest).or_default() += 1;
        }
    }
    let mut left = before;
    for (digest, blob) in &survey.blobs {
        if !named.contains_key(digest) && blob.written < fresh {
            left -= blob.size;
            report.blobs += 1;
        }
    }
    let is_above = limits.bytes_max.is_some_and(|max| left > max);
    let room = if is_above { room_percent } else { 0 };
    let goal = limits.bytes_max.map(|max| max - max / 100 * room);
    let mut order: Vec<_> = survey.records.iter().collect();
    order.sort_by_key(|(key, held)| (held.used_ms, **key));
    let mut keys = BTreeSet::new();
    let mut in_use = BTreeSet::new();
    for (key, held) in order {
        if is_live(survey, &live, *key) {
            report.records_in_use += 1;
            report.bytes_in_use += held.file_bytes;
            in_use.extend(held.record.blobs().iter().map(|blob| blob.digest));
            continue;
        }
        let idle = now.saturating_sub(held.used_ms);
        let is_old = limits
            .age_max
            .is_some_and(|max| u128::from(idle) > max.as_millis());
        if !is_old && goal.is_none_or(|goal| left <= goal) {
            continue;
        }
        keys.insert(*key);
        report.records += 1;
        left -= held.file_bytes;
        report.youngest_ms = Some(report.youngest_ms.map_or(idle, |least| least.min(idle)));
        let digests: BTreeSet<_> = held.record.blobs().iter().map(|blob| blob.digest).collect();
        for digest in digests {
            let Some(count) = named.get_mut(&digest) else {
                continue;
            };
            *count -= 1;
            let blob = survey.blobs.get(&digest);
            if let (0, Some(blob)) = (*count, blob.filter(|blob| blob.written < fresh)) {
                left -= blob.size;
                report.blobs += 1;
            }
        }
    }
    let in_use = in_use.iter().filter_map(|digest| survey.blobs.get(digest));
    report.bytes_in_use += in_use.map(|blob| blob.size).sum::<u64>();
    report.bytes_after = left;
    Choice { keys, live, report }
}
