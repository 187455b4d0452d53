//! What a build does for its store besides reading and writing: it tells what the store met, and
//! applies the limits at the end.

use ipub_base::{Bytes, Digest};
use ipub_store::{Claim, GcReport, Record, StoreError};

use crate::engine::Engine;
use crate::event::{Event, EventSink};
use crate::exec::Execution;

/// Results that were used within this time are in use, as far as a limit should be concerned.
const WORKING_SET_MS: u64 = 24 * 3600 * 1000;

impl Engine {
    /// Tells what the store met since this was last called.
    pub(crate) fn tell_notes(&self, events: &dyn EventSink) {
        for note in self.store.take_notes() {
            tell(events, note.to_string(), false);
        }
    }

    /// Applies the limits of the store, if that is due. A failure is told and fails no build.
    pub(crate) fn tend_store(&self, events: &dyn EventSink) {
        match self.store.collect_if_due(self.workspace.cache_limits) {
            Ok(None) => {}
            Ok(Some(report)) => tell_report(events, &report),
            Err(error) => tell(events, format!("nothing was evicted: {error}"), true),
        }
        self.tell_notes(events);
    }
}

impl Execution<'_> {
    /// The record of `key`, if it holds; tells why one does not.
    pub(crate) fn recorded(&self, key: Digest) -> Result<Option<Record>, StoreError> {
        let record = self.engine.store.get_record(key)?;
        self.engine.tell_notes(self.events);
        Ok(record)
    }

    /// Claims the action `key`; tells if that means to wait for another process.
    pub(crate) fn claim(&self, rule: &str, key: Digest) -> Result<Claim, StoreError> {
        self.engine.store.claim_telling(key, || {
            let (label, rule) = (self.label.to_owned(), rule.to_owned());
            self.events.event(&Event::StageWaits { label, rule, key });
        })
    }
}

fn tell(events: &dyn EventSink, message: String, warning: bool) {
    events.event(&Event::StoreNoted { message, warning });
}

fn tell_report(events: &dyn EventSink, report: &GcReport) {
    if report.records > 0 {
        let freed = Bytes(report.bytes_before.saturating_sub(report.bytes_after));
        let message = format!("evicted {} results, {freed}", report.records);
        tell(events, message, false);
    }
    let Some(max) = report.bytes_max.map(Bytes) else {
        return;
    };
    if report.exceeds() {
        let held = Bytes(report.bytes_after);
        let message = format!(
            "the store holds {held}, above its limit of {max}, and all of it is in use: \
             raise `[cache] max_bytes` in workspace.toml"
        );
        tell(events, message, true);
    } else if let Some(idle) = report.youngest_ms.filter(|idle| *idle < WORKING_SET_MS) {
        let message = format!(
            "results that were used {} minutes ago had to be evicted: the limit of {max} is \
             smaller than a day's work; raise `[cache] max_bytes` in workspace.toml",
            idle / 60_000
        );
        tell(events, message, true);
    }
}
