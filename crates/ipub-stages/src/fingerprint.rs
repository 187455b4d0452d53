//! Fingerprints of stages: digests of the code that each consists of.
//!
//! Computed when this crate is compiled, from token streams; a program built without sources or
//! lock file takes the digest of its own executable instead, and shares results with no other.

use std::sync::OnceLock;

use ipub_base::{Digest, KeyWriter};

include!(concat!(env!("OUT_DIR"), "/fingerprints.rs"));

/// The fingerprint of `stage`.
pub fn fingerprint(stage: &str) -> Digest {
    let known = FINGERPRINTS.iter().find(|(name, _)| *name == stage);
    match known.and_then(|(_, hex)| hex.parse().ok()) {
        Some(digest) => digest,
        None => {
            let mut writer = KeyWriter::digest_only("ipub.fingerprint.program");
            writer.text("stage", stage);
            writer.digest("program", program());
            writer.finish().digest
        }
    }
}

/// The digest of the running program. One that cannot be read is like no other program.
fn program() -> Digest {
    static PROGRAM: OnceLock<Digest> = OnceLock::new();
    *PROGRAM.get_or_init(|| {
        let bytes = std::env::current_exe().and_then(std::fs::read);
        bytes.map_or_else(
            |error| {
                let unique = (std::process::id(), std::time::SystemTime::now());
                Digest::of(format!("{error} {unique:?}"))
            },
            Digest::of,
        )
    })
}
