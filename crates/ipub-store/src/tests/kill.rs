//! A child process is killed at each named point, and at random ones.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ipub_base::Digest;

use super::{act, content, copy, damage, folder, has};
use crate::{Limits, Store};

const DIR: &str = "IPUB_STORE_TEST";
const KILL: &str = "IPUB_STORE_KILL";
const POINTS: &str = "IPUB_STORE_POINTS";

/// Actions that are stored before the child begins and used since.
const KEPT: [&str; 2] = ["kept-1", "kept-2"];
/// Actions that the child may evict.
const OLD: [&str; 3] = ["old-1", "old-2", "old-3"];

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// A store with some actions, two of them damaged, and an archive.
    fn new() -> Self {
        let world = Self { dir: folder() };
        let store = Store::open(world.store()).unwrap();
        for name in KEPT.iter().chain(&OLD) {
            act(&store, name);
        }
        let old = |transaction: &rusqlite::Transaction<'_>| {
            for name in OLD {
                let key = Digest::of(name);
                let sql = "UPDATE records SET used = 0 WHERE key = ?1";
                transaction.execute(sql, [key.as_bytes()])?;
            }
            Ok(())
        };
        store.index.write(old).unwrap();
        for name in ["torn-blob", "torn-record"] {
            act(&store, name);
        }
        damage(&store.blob_path(Digest::of(&content("torn-blob")[0])));
        damage(&store.record_path(Digest::of("torn-record")));
        drop(store);
        let elsewhere = world.dir.path().join("elsewhere");
        let other = Store::open(&elsewhere).unwrap();
        act(&other, "imported");
        let archive = fs::File::create(world.dir.path().join("archive")).unwrap();
        other.export(&[], archive).unwrap();
        drop(other);
        // What is fresh is kept: these were written before the child was.
        std::thread::sleep(Duration::from_millis(80));
        world
    }

    fn copy(&self) -> Self {
        let world = Self { dir: folder() };
        copy(self.dir.path(), world.dir.path());
        world
    }

    /// Runs the child; gives whether it came to its end.
    fn child(&self, kill: Option<&str>, points: Option<&Path>) -> bool {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::kill::child", "--nocapture", "--quiet"]);
        command.env(DIR, self.dir.path());
        command.env_remove("RUST_BACKTRACE");
        if let Some(kill) = kill {
            command.env(KILL, kill);
        }
        if let Some(points) = points {
            command.env(POINTS, points);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{kill:?}: {said}");
        output.status.success()
    }

    fn reported(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("reported")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// After a kill: nothing that was reported is lost, nothing is wrong, and all goes on.
    #[track_caller]
    fn check(&self, kill: &str) {
        let store = Store::open(self.store()).unwrap();
        for name in KEPT.map(str::to_owned).into_iter().chain(self.reported()) {
            assert!(has(&store, &name), "{kill}: {name} is lost");
        }
        for name in OLD.iter().chain(&["torn-blob", "torn-record", "imported"]) {
            has(&store, name);
        }
        drop(store);
        assert!(self.child(None, None), "{kill}: a second run fails");
        let store = Store::open(self.store()).unwrap();
        let done = ["new-1", "new-2", "again", "imported"];
        assert!(done.iter().all(|name| has(&store, name)), "{kill}");
        assert_eq!(store.verify(1).unwrap().faults, [], "{kill}");
        // A lease that was killed before it had its name goes after a day.
        let is_lease = |name: &str| name.contains('-') && !name.contains('.');
        let own = |dir: &str| {
            let entries = fs::read_dir(self.store().join(dir)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| dir != "tmp" || !is_lease(name)).count()
        };
        let left = ["tmp", "trash", "claims", "leases"].map(own);
        assert_eq!(left, [0, 0, 0, 1], "{kill}: tmp, trash, claims, leases");
    }
}

/// All that the store does, in a process that may be killed at any step.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let report = |name: &str| {
        let mut options = fs::File::options();
        let file = options.append(true).create(true).open(dir.join("reported"));
        writeln!(file.unwrap(), "{name}").unwrap();
    };
    let store = Store::open(dir.join("store")).unwrap();
    for name in ["new-1", "new-2"] {
        act(&store, name);
        report(name);
    }
    // A blob is damaged, found so, and made again.
    act(&store, "again");
    let blob = Digest::of(&content("again")[0]);
    damage(&store.blob_path(blob));
    assert!(!has(&store, "again"));
    act(&store, "again");
    report("again");
    // A sound one is taken for damaged and put back.
    let sound = Digest::of(&content("new-1")[0]);
    assert!(store.drop_if_damaged(sound).unwrap().is_some());
    let limits = Limits {
        bytes_max: None,
        age_max: Some(Duration::from_secs(3600)),
    };
    store.collect(limits).unwrap();
    store.repair(2).unwrap();
    let archive = fs::File::open(dir.join("archive")).unwrap();
    store.import(archive, 1 << 20).unwrap();
    report("imported");
}

/// The points that the sources name.
fn named() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let parts = text.split("fail_point!(\"").skip(1);
            names.extend(parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())));
        }
    }
    names
}

/// The points that a whole run passes, in order.
fn passed(world: &World) -> Vec<String> {
    let world = world.copy();
    let file = world.dir.path().join("points");
    assert!(world.child(None, Some(&file)));
    let text = fs::read_to_string(&file).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_kill_at_any_named_point_loses_nothing() {
    let world = World::new();
    let passed = passed(&world);
    let distinct: BTreeSet<_> = passed.iter().cloned().collect();
    assert_eq!(distinct, named(), "points that no kill would test");
    for name in &distinct {
        let count = passed.iter().filter(|passed| *passed == name).count();
        for due in BTreeSet::from([1, count / 2 + 1, count]) {
            let kill = format!("{name}:{due}");
            let world = world.copy();
            assert!(!world.child(Some(&kill), None), "{kill} was not reached");
            world.check(&kill);
        }
    }
}

#[test]
fn seeded_random_kills_one_after_another_lose_nothing() {
    const KILLS: u64 = 25;
    let world = World::new();
    let steps = passed(&world).len() as u64;
    let world = world.copy();
    for seed in 0..KILLS {
        let random = Digest::of(seed.to_le_bytes());
        let random = u64::from_le_bytes(random.as_bytes()[..8].try_into().unwrap());
        let kill = format!("*:{}", random % steps + 1);
        // A later run has less to do and may end before.
        world.child(Some(&kill), None);
        let store = Store::open(world.store()).unwrap();
        let reported = KEPT.map(str::to_owned).into_iter().chain(world.reported());
        // Each child damages `again`, whether or not one before it had stored it.
        for name in reported.filter(|name| name != "again") {
            assert!(has(&store, &name), "seed {seed}, {kill}: {name} is lost");
        }
        // Once in a while there is all to do again.
        if seed % 4 == 3 {
            store.purge(&[Digest::of("imported")]).unwrap();
            damage(&store.blob_path(Digest::of(&content("new-2")[0])));
            assert!(!has(&store, "new-2"));
            act(&store, "new-2");
        }
    }
    world.check("after all kills");
}
