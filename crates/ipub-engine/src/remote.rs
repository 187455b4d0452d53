//! What a build asks of other machines.

use ipub_base::Digest;
use ipub_store::{OutputRef, Record, Store};

use crate::event::EventSink;
use crate::rules::Rule;

/// Results that other machines made. An implementation verifies what it gives; what it cannot give
/// is a miss, and it tells the reason itself.
pub trait Remote: Send + Sync {
    /// A record of `key` that an accepted signer vouches for. Its blobs need not be in the store.
    fn find(&self, key: Digest, rule: &Rule, events: &dyn EventSink) -> Option<Record>;

    /// Whether a record that came from a remote is still vouched for, and those of its blobs that
    /// `store` lacks can still be fetched.
    fn stands(&self, record: &Record, store: &Store, events: &dyn EventSink) -> bool;

    /// Puts a blob of such a record into `store`.
    fn fetch(
        &self,
        record: &Record,
        output: &OutputRef,
        store: &Store,
        events: &dyn EventSink,
    ) -> bool;

    /// Takes a record that this process executed, to share it.
    fn offer(&self, record: &Record, rule: &Rule, store: &Store, events: &dyn EventSink);

    /// Waits for what was offered; an error if the remote is required and did not hold.
    fn finish(&self, events: &dyn EventSink) -> Result<(), ipub_base::Diagnostic>;
}
