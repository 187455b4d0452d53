//! Tests of the protocols: kills at every step, and power loss after every write.

mod kill;
mod power;
pub(crate) mod recorder;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ipub_base::Digest;

use crate::{Outcome, Provenance, Record, Store};

/// What the action `name` makes.
fn content(name: &str) -> [Vec<u8>; 2] {
    let own = name.repeat(40).into_bytes();
    [own, b"every action makes this as well".to_vec()]
}

/// Does what an engine does for the action `name`.
fn act(store: &Store, name: &str) -> Record {
    let key = Digest::of(name);
    let _claim = store.claim(key).unwrap();
    if let Some(record) = store.get_record(key).unwrap() {
        return record;
    }
    let blobs = content(name);
    let outputs = ["own", "shared"].iter().zip(&blobs);
    let outputs = outputs.map(|(name, bytes)| store.put_output(name, bytes).unwrap());
    let record = Record {
        key,
        rule: "plan".to_owned(),
        label: format!("//models:{name}"),
        key_lines: Vec::new(),
        outcome: Outcome::Ok {
            outputs: outputs.collect(),
        },
        wall_micros: 1,
        notes: BTreeMap::new(),
        provenance: Provenance::default(),
    };
    store.put_record(&record).unwrap();
    record
}

/// Whether the store has the action `name`; if it says so, its outputs must be right.
fn has(store: &Store, name: &str) -> bool {
    let Some(record) = store.get_record(Digest::of(name)).unwrap() else {
        return false;
    };
    assert_eq!(record.label, format!("//models:{name}"));
    let blobs = record.blobs().iter();
    let blobs = blobs.map(|blob| store.get_blob(blob.digest));
    for (found, right) in blobs.zip(content(name)) {
        match found {
            Ok(found) => assert_eq!(found, right, "{name}"),
            Err(error) if error.lost_blob().is_some() => return false,
            Err(error) => panic!("{name}: {error}"),
        }
    }
    true
}

/// Damages a file; a second time changes nothing more.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..][..3].fill(0xee);
    fs::write(path, bytes).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => {
                fs::copy(entry.path(), &to).unwrap();
                // What was old stays old.
                let modified = entry.metadata().unwrap().modified().unwrap();
                fs::File::open(&to).unwrap().set_modified(modified).unwrap();
            }
        }
    }
}

/// A folder in memory where there is one: these tests sync thousands of times.
fn folder() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}
