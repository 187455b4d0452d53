//! Memory of sub-results inside one stage. A memo only saves time: with a full, a partial or an
//! absent memo a pass gives the same bytes.

use crate::Digest;

/// Remembers pure sub-results by the digest of all their arguments.
///
/// `kind` names the function, and versions it where its result could change; `key` is the digest
/// of its arguments, made by `KeyWriter`. A value read back is exactly a value put before under
/// the same kind and key.
pub trait Memo: Send + Sync {
    /// The remembered value.
    fn get(&self, kind: &'static str, key: Digest) -> Option<Vec<u8>>;

    /// Remembers a value. May forget it at any time.
    fn put(&self, kind: &'static str, key: Digest, value: Vec<u8>);
}

/// Remembers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemo;

impl Memo for NoMemo {
    fn get(&self, _: &'static str, _: Digest) -> Option<Vec<u8>> {
        None
    }

    fn put(&self, _: &'static str, _: Digest, _: Vec<u8>) {}
}
