//! A record of the operations on files that one thread does.

use std::cell::RefCell;
use std::path::PathBuf;

/// An operation that succeeded.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write(PathBuf, Vec<u8>),
    SyncFile(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    MakeDir(PathBuf),
    SyncDir(PathBuf),
    /// The store said that it holds this from here on.
    Reported(usize),
}

thread_local! {
    static LOG: RefCell<Option<Vec<Op>>> = const { RefCell::new(None) };
}

/// Notes an operation, if this thread records.
pub(crate) fn record(op: impl FnOnce() -> Op) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            log.push(op());
        }
    });
}

/// What `body` does to files.
pub(crate) fn recording(body: impl FnOnce()) -> Vec<Op> {
    LOG.with_borrow_mut(|log| *log = Some(Vec::new()));
    body();
    LOG.with_borrow_mut(Option::take).unwrap_or_default()
}
