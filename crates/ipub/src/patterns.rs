//! Patterns on the command line: one that takes targets away begins as a flag does.

use std::ffi::OsString;

/// The arguments as the parser takes them: a pattern that takes targets away, `-//models:x`, is
/// not one of its flags. A blank before it keeps it apart from them; `given` takes that away.
pub fn arguments(given: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    given.map(|argument| match argument.to_str() {
        Some(text) if text.starts_with("-//") => format!(" {text}").into(),
        _ => argument,
    })
}

/// Patterns as they were given.
pub fn given(words: &[String]) -> Vec<String> {
    words.iter().map(|text| text.trim().to_owned()).collect()
}
