//! Results shared between machines: HTTP, S3 and REAPI behind one trait; signing and trust.
//!
//! Input: records and blobs of a store; settings of a remote; the keys of accepted signers.
//! Output: records that an accepted signer vouches for, and their blobs, verified.
//! Invariants: nothing of a remote is believed before its digest or its signature was checked;
//! every size is bounded before memory is taken for it; a remote that fails is a miss, told once;
//! a secret goes to the one origin it is bound to, and into no message, event or key.
//! Not here: what a stage is; when a build looks at a remote.

mod client;
mod signed;

pub use client::{CacheClient, CasDigest, Encoding, RemoteError, Sha256Digest};
pub use signed::{SignedRecord, Statement, StatementOutput};
