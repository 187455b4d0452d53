//! Files that a user names: reading and writing them with one clear message.

use std::path::{Path, PathBuf};

use ipub_base::Diagnostic;

/// The bytes of a file that the user gave.
pub fn read(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    std::fs::read(path)
        .map_err(|error| Diagnostic::usage(format!("cannot read {}: {error}", path.display())))
}

/// Writes a file that the user asked for.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|error| unwritable(path, &error))
}

/// Writes to standard output; a reader that went away is no failure.
pub fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Writes a file unless it holds these bytes already.
pub fn write_if_new(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    match std::fs::read(path) {
        Ok(found) if found == bytes => Ok(()),
        _ => write(path, bytes),
    }
}

/// An error of writing.
pub fn unwritable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::environment(format!("cannot write {}: {error}", path.display()))
}

/// The path from the root of the file system.
pub fn absolute(path: &Path) -> Result<PathBuf, Diagnostic> {
    std::path::absolute(path)
        .map_err(|error| Diagnostic::usage(format!("{}: {error}", path.display())))
}

/// A number in decimal or, after `0x`, in hexadecimal digits.
pub fn number(text: &str) -> Result<u32, Diagnostic> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| {
        Diagnostic::usage(format!("`{text}` is not a number: {error}"))
            .help("write it in decimal, or in hexadecimal after 0x")
    })
}
