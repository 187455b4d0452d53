//! Power loss: every prefix of the recorded operations is replayed as a disk would keep it.
//!
//! A file keeps what it held at its last sync; a folder the names that it had at its own. What came
//! later is kept or not: not at all, the names without the data, or some of each by a seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ipub_base::Digest;

use super::recorder::{Op, record, recording};
use super::{act, content, damage, folder, has};
use crate::{Limits, Store};

#[derive(Clone, Default)]
struct Inode {
    data: Vec<u8>,
    synced: Vec<u8>,
}

type Names = BTreeMap<PathBuf, Option<usize>>;

/// A disk: files, and the names in each folder as they are and as they last; `None` is a folder.
#[derive(Default)]
struct Disk {
    inodes: Vec<Inode>,
    now: BTreeMap<PathBuf, Names>,
    lasting: BTreeMap<PathBuf, Names>,
}

/// What of the unsynced a power loss keeps.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    Nothing,
    Names,
    Some(u64),
}

impl Disk {
    fn inode(&self, path: &Path) -> Option<usize> {
        *self.now.get(path.parent()?)?.get(path)?
    }

    fn name(&mut self, path: &Path, inode: Option<usize>) {
        let folder = path.parent().unwrap().to_path_buf();
        let names = self.now.entry(folder).or_default();
        names.insert(path.to_path_buf(), inode);
    }

    fn unname(&mut self, path: &Path) {
        if let Some(names) = self.now.get_mut(path.parent().unwrap()) {
            names.remove(path);
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write(path, bytes) => {
                let inode = self.inode(path).unwrap_or_else(|| {
                    self.inodes.push(Inode::default());
                    let inode = self.inodes.len() - 1;
                    self.name(path, Some(inode));
                    inode
                });
                self.inodes[inode].data.extend_from_slice(bytes);
            }
            Op::SyncFile(path) => {
                if let Some(inode) = self.inode(path) {
                    self.inodes[inode].synced = self.inodes[inode].data.clone();
                }
            }
            Op::Rename(from, to) => {
                if let Some(inode) = self.inode(from) {
                    self.unname(from);
                    self.name(to, Some(inode));
                }
            }
            Op::Link(from, to) => {
                if let Some(inode) = self.inode(from) {
                    self.name(to, Some(inode));
                }
            }
            Op::Remove(path) => self.unname(path),
            Op::MakeDir(path) => self.name(path, None),
            Op::SyncDir(dir) => {
                let names = self.now.get(dir).cloned().unwrap_or_default();
                self.lasting.insert(dir.clone(), names);
            }
            Op::Reported(_) => {}
        }
    }

    /// The names in `dir` after the loss.
    fn names(&self, dir: &Path, keeps: Keeps) -> Names {
        let (now, lasting) = (self.now.get(dir), self.lasting.get(dir));
        let (now, lasting) = (now.cloned(), lasting.cloned().unwrap_or_default());
        let now = now.unwrap_or_default();
        match keeps {
            Keeps::Nothing => lasting,
            Keeps::Names => now,
            Keeps::Some(seed) => {
                let mut names = Names::new();
                for path in now.keys().chain(lasting.keys()) {
                    let source = match random(seed, path) % 2 {
                        0 => &now,
                        _ => &lasting,
                    };
                    if let Some(inode) = source.get(path) {
                        names.insert(path.clone(), *inode);
                    }
                }
                names
            }
        }
    }

    /// Makes in `to` what is left of the folder `dir`.
    fn make(&self, dir: &Path, to: &Path, keeps: Keeps) {
        fs::create_dir_all(to).unwrap();
        for (path, inode) in self.names(dir, keeps) {
            let to = to.join(path.file_name().unwrap());
            let Some(inode) = inode.map(|inode| &self.inodes[inode]) else {
                self.make(&path, &to, keeps);
                continue;
            };
            let mut bytes = inode.synced.clone();
            if let Keeps::Some(seed) = keeps {
                let more = inode.data.len() - bytes.len();
                let more = random(seed, &path) as usize / 2 % (more + 1);
                bytes.extend_from_slice(&inode.data[bytes.len()..][..more]);
            }
            fs::write(to, bytes).unwrap();
        }
    }
}

fn random(seed: u64, path: &Path) -> u64 {
    // Not the folder, which has another name in each run.
    let name = path.file_name().unwrap().to_string_lossy();
    let digest = Digest::of(format!("{seed} {name}"));
    u64::from_le_bytes(digest.as_bytes()[..8].try_into().unwrap())
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Stores, finds damage, evicts; tells what is stored.
fn work(dir: &Path) {
    let store = Store::open(dir).unwrap();
    for (number, name) in NAMES.iter().enumerate().take(3) {
        act(&store, name);
        record(|| Op::Reported(number));
    }
    let sound = Digest::of(&content("b")[0]);
    assert!(store.drop_if_damaged(sound).unwrap().is_some());
    drop(store);
    // Another process finds the shared blob there.
    let store = Store::open(dir).unwrap();
    act(&store, "d");
    record(|| Op::Reported(3));
    act(&store, "e");
    damage(&store.blob_path(Digest::of(&content("e")[0])));
    assert!(!has(&store, "e"));
    act(&store, "e");
    record(|| Op::Reported(4));
    store.collect(Limits::default()).unwrap();
    store.repair(1).unwrap();
}

/// What the store in `dir` has must be right, and all that was reported must be there.
fn check(dir: &Path, reported: &[usize], what: &str) {
    let store = Store::open(dir).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let has = has(&store, name);
        assert!(has || !reported.contains(&number), "{what}: {name} is lost");
    }
    for name in NAMES {
        act(&store, name);
        assert!(has(&store, name), "{what}: {name} cannot be made again");
    }
}

#[test]
fn a_power_loss_after_any_write_loses_nothing_that_was_reported() {
    let (made, replayed) = (folder(), folder());
    let dir = made.path().join("store");
    fs::create_dir(&dir).unwrap();
    let ops = recording(|| work(&dir));
    assert!(ops.len() > 80, "{}", ops.len());
    let index = fs::read(Store::open(&dir).unwrap().index_path()).unwrap();
    let mut disk = Disk::default();
    let mut reported = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        disk.apply(op);
        if let Op::Reported(number) = op {
            reported.push(*number);
        }
        let some = (0..3).map(|seed| Keeps::Some(seed << 32 | at as u64));
        for keeps in [Keeps::Nothing, Keeps::Names].into_iter().chain(some) {
            let to = replayed.path().join("store");
            disk.make(&dir, &to, keeps);
            // The index of the end knows all records, whether or not their blobs are there.
            if let Keeps::Some(_) = keeps {
                fs::write(to.join("index-v2.9.sqlite"), &index).unwrap();
            }
            check(
                &to,
                &reported,
                &format!("operation {at}, {op:?}, {keeps:?}"),
            );
            fs::remove_dir_all(&to).unwrap();
        }
    }
}
