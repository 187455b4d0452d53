//! What every kind of remote can do: keep blobs by the SHA-256 of their bytes, and action results
//! by a SHA-256 that stands for a key and a signer.

use std::fmt;

use bazel_remote_apis::build::bazel::remote::execution::v2::ActionResult;
use bytes::Bytes;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest(pub [u8; 32]);

/// The name of a blob on a remote: SHA-256 and length of the bytes that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CasDigest {
    /// Of the bytes kept.
    pub sha256: Sha256Digest,
    /// Their number.
    pub bytes: u64,
}

/// Which bytes a remote keeps for a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The content itself (REAPI, where compression is a matter of the wire).
    Content,
    /// One zstd frame of the content (HTTP, S3).
    Frame,
}

/// Why a remote did not do what it was asked. No message holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It may work when tried again: no connection, a timeout, an answer 5xx or 429.
    #[error("{0}")]
    Unavailable(String),
    /// It refuses: wrong or expired token, no permission, unknown certificate.
    #[error("{0}")]
    Refused(String),
    /// What it said is no answer to the question: wrong length, wrong digest, no frame.
    #[error("{0}")]
    Broken(String),
    /// It does not take or give something of this size.
    #[error("{0}")]
    TooLarge(String),
}

/// One remote, as the rest of this crate sees it. Calls block; a client may be used by several
/// threads at once. Retries are the caller's.
pub trait CacheClient: Send + Sync {
    /// Its kind and origin, for messages: `http://cache.example:8080`. Without any secret.
    fn origin(&self) -> &str;

    /// Which bytes it keeps for a blob.
    fn encoding(&self) -> Encoding;

    /// The action result `id`; `None` if it has none. At most `limit` bytes.
    fn action(&self, id: Sha256Digest, limit: u64) -> Result<Option<ActionResult>, RemoteError>;

    /// Keeps an action result. All that it names must be there.
    fn put_action(&self, id: Sha256Digest, result: &ActionResult) -> Result<(), RemoteError>;

    /// Those of `blobs` that it does not have.
    fn missing(&self, blobs: &[CasDigest]) -> Result<Vec<CasDigest>, RemoteError>;

    /// The bytes of a blob, with exactly the length and the digest of its name; `None` if it is
    /// not there. No more than `blob.bytes` are read.
    fn blob(&self, blob: CasDigest) -> Result<Option<Bytes>, RemoteError>;

    /// Keeps blobs. Each one's name is known to be right.
    fn put_blobs(&self, blobs: &[(CasDigest, Bytes)]) -> Result<(), RemoteError>;
}

impl Sha256Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl CasDigest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: Sha256Digest::of(bytes),
            bytes: bytes.len() as u64,
        }
    }
}
