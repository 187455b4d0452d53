//! The signed record: what one signer says that one key makes.

use std::collections::BTreeMap;

use ipub_base::{Digest, KeyLine};
use serde::{Deserialize, Serialize};

/// What is signed, as one canonical JSON text: fields in this order, no white space. A text that
/// does not read back to itself is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// `1`.
    pub format: u32,
    /// The key of the action.
    pub key: Digest,
    /// The rule.
    pub rule: String,
    /// In the order that the rule declares.
    pub outputs: Vec<StatementOutput>,
    /// The signer's public key, 64 hexadecimal digits.
    pub signer: String,
    /// Which generation of results it belongs to; readers may ask for a minimum.
    pub epoch: u64,
    /// The revision of the workspace it was made at, if that is known.
    pub commit: Option<String>,
    /// Milliseconds since 1970.
    pub made_unix_ms: u64,
    /// `local`, or where the stage ran.
    pub executed: String,
    /// Microseconds that it took.
    pub wall_micros: u64,
    /// What the key consists of, for explanations.
    pub key_lines: Vec<KeyLine>,
    /// Counts and remarks of the stage.
    pub notes: BTreeMap<String, serde_json::Value>,
}

/// One output of a statement, named for every kind of remote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementOutput {
    /// The name that the rule declares.
    pub name: String,
    /// BLAKE3 of the content.
    pub blake3: Digest,
    /// Bytes of content.
    pub size: u64,
    /// SHA-256 of the content, 64 hexadecimal digits.
    pub sha256: String,
    /// SHA-256 of its zstd frame.
    pub frame_sha256: String,
    /// Bytes of that frame.
    pub frame_size: u64,
}

/// A statement with its signature. It is the output `record` of the action result on a remote, and
/// stands in the local record of what came from one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedRecord {
    /// The exact text that is signed.
    pub statement: String,
    /// Ed25519 over `ipub.record.v1` and a zero byte and the text, 128 hexadecimal digits.
    pub signature: String,
}
