//! Signals: a process that is told to stop, or meets the limit on the size of files, ends soundly.
//!
//! Input: SIGINT, SIGTERM, SIGXFSZ. Output: the exit code 130 or 143 at once; of the limit, only
//! the error that the write itself gives.
//! Invariants: whatever is complete in the store stays; files that this process was writing there,
//! or beside artifacts, are removed, as are its scratch folders. A claim ends with its process.
//! Not here: how the store writes (a file there is absent or complete at any moment).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is removed when the process is told to stop.
struct Unfinished {
    /// Folders in which files that are open here are unfinished.
    temporary: Vec<PathBuf>,
    /// Folders of this process alone.
    scratch: Vec<PathBuf>,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished {
    temporary: Vec::new(),
    scratch: Vec::new(),
});
static ENDING: AtomicBool = AtomicBool::new(false);

fn unfinished() -> std::sync::MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files that this process has open in `dir` are unfinished.
pub fn writes_in(dir: &Path) {
    // A folder that is not there holds no files.
    unfinished().temporary.extend(dir.canonicalize());
}

/// `dir` is of this process alone.
pub fn scratch(dir: &Path) {
    unfinished().scratch.push(dir.to_path_buf());
}

/// Waits for the end if the process was told to stop: its exit code is that of the signal.
pub fn hold_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Ends the process now, soundly, while stages run.
pub fn end(code: u8) -> ! {
    ENDING.store(true, Ordering::SeqCst);
    #[cfg(unix)]
    remove_unfinished();
    std::process::exit(i32::from(code))
}

/// Takes charge of the signals. Where that fails they keep their usual effect.
#[cfg(unix)]
pub fn install() {
    use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
    use signal_hook::iterator::Signals;
    use std::sync::Arc;

    // Nothing looks at the flag: the write gives its own error.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return;
    };
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            ENDING.store(true, Ordering::SeqCst);
            remove_unfinished();
            eprintln!("stopped; what was finished is kept in the store");
            std::process::exit(128 + signal);
        }
    };
    // Without the thread a signal would be lost; the process then cannot be stopped gently.
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .expect("a thread for signals");
}

#[cfg(not(unix))]
pub fn install() {}

#[cfg(unix)]
fn remove_unfinished() {
    let unfinished = unfinished();
    for path in open_files() {
        let is_temporary = unfinished
            .temporary
            .iter()
            .any(|dir| path.parent() == Some(dir));
        if is_temporary || is_part(&path) {
            // It may have been finished, or removed, a moment ago.
            let _ = fs::remove_file(&path);
        }
    }
    for dir in &unfinished.scratch {
        let _ = fs::remove_dir_all(dir);
    }
}

/// An artifact that this process was writing.
#[cfg(unix)]
fn is_part(path: &Path) -> bool {
    let suffix = format!(".{}.part", std::process::id());
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.') && name.ends_with(&suffix))
}

/// Files that this process has open, where the system tells.
#[cfg(unix)]
fn open_files() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let links = entries.flatten().map(|entry| fs::read_link(entry.path()));
    links.flatten().collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unfinished_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["tmp", "artifacts", "mine"] {
            fs::create_dir(path(name)).unwrap();
        }
        writes_in(&path("tmp"));
        scratch(&path("mine"));
        let part = format!("artifacts/.model.{}.part", std::process::id());
        let open = ["tmp/w1", &part, "artifacts/model"].map(|name| fs::File::create(path(name)));
        let finished = ["tmp/other", "artifacts/.model.1.part", "mine/inputs"];
        for name in finished {
            fs::write(path(name), b"").unwrap();
        }
        remove_unfinished();
        for gone in ["tmp/w1", &part, "mine"] {
            assert!(!path(gone).exists(), "{gone}");
        }
        for kept in ["tmp/other", "artifacts/.model.1.part", "artifacts/model"] {
            assert!(path(kept).exists(), "{kept}");
        }
        drop(open);
    }
}
