//! Encodings of blobs: postcard for the representations of the compiler, JSON for people.

use ipub_engine::StageFailure;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A representation as bytes.
pub(crate) fn pack(name: &str, value: &impl Serialize) -> Result<Vec<u8>, StageFailure> {
    postcard::to_stdvec(value)
        .map_err(|error| StageFailure::bug(format!("{name} cannot be encoded: {error}")))
}

/// A representation from bytes that [`pack`] made.
pub(crate) fn unpack<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, StageFailure> {
    let damaged = |why: String| StageFailure::usage(format!("`{name}` is damaged: {why}"));
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(damaged(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(damaged(error.to_string())),
    }
}

/// A document for people and programs, with a newline at its end.
pub(crate) fn to_json(name: &str, value: &impl Serialize) -> Result<Vec<u8>, StageFailure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| StageFailure::bug(format!("{name} cannot be encoded: {error}")))?;
    Ok((text + "\n").into_bytes())
}

/// A document from bytes.
pub(crate) fn from_json<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, StageFailure> {
    serde_json::from_slice(bytes)
        .map_err(|error| StageFailure::usage(format!("`{name}` is damaged: {error}")))
}
