//! Eviction, verification, repair, archives.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ipub_base::Digest;
use ipub_store::{
    ArchiveError, Fault, GcReport, Limits, Outcome, Provenance, Record, Store, StoreError,
    StoreNote,
};

fn noise(name: &str, bytes: usize) -> Vec<u8> {
    let words = (0..bytes as u64 / 32 + 1).map(|i| Digest::of(format!("{name} {i}")));
    let mut noise: Vec<u8> = words.flat_map(|digest| *digest.as_bytes()).collect();
    noise.truncate(bytes);
    noise
}

/// Stores the action `name` of `rule`, with an own and a shared output.
fn act(store: &Store, rule: &str, name: &str) -> Digest {
    let outputs = vec![
        store.put_output("own", &noise(name, 20_000)).unwrap(),
        store.put_output("shared", b"the same for all").unwrap(),
    ];
    let record = Record {
        key: Digest::of(name),
        rule: rule.to_owned(),
        label: "//models:tiny".to_owned(),
        key_lines: Vec::new(),
        outcome: Outcome::Ok { outputs },
        wall_micros: 5,
        notes: BTreeMap::new(),
        provenance: Provenance {
            made_unix_ms: 1_700_000_000_000,
            tool: "test".to_owned(),
            executed: "local".to_owned(),
        },
    };
    store.put_record(&record).unwrap();
    record.key
}

/// A store with actions `a`, `b`, ... of the rule `plan`, last used in this order, long ago.
fn old_store(count: u8) -> (tempfile::TempDir, Vec<Digest>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let names = (b'a'..b'a' + count).map(|name| char::from(name).to_string());
    let keys: Vec<_> = names.map(|name| act(&store, "plan", &name)).collect();
    let index = store.index_path();
    drop(store);
    let index = rusqlite::Connection::open(index).unwrap();
    for (at, key) in keys.iter().enumerate() {
        let sql = "UPDATE records SET used = ?2 WHERE key = ?1";
        let values = rusqlite::params![key.as_bytes(), at as i64];
        assert_eq!(index.execute(sql, values).unwrap(), 1);
    }
    // What was written just now counts as in use.
    std::thread::sleep(Duration::from_millis(80));
    (dir, keys)
}

fn bytes_max(bytes: u64) -> Limits {
    Limits {
        bytes_max: Some(bytes),
        age_max: None,
    }
}

fn present(store: &Store, keys: &[Digest]) -> Vec<bool> {
    let has = |key: &Digest| store.find_record(*key).unwrap().is_some();
    keys.iter().map(has).collect()
}

#[test]
fn the_least_recently_used_goes_first_and_what_is_used_stays() {
    let (dir, keys) = old_store(6);
    let store = Store::open(dir.path()).unwrap();
    // The oldest of all, in use by another process as far as the lease tells.
    let reader = Store::open(dir.path()).unwrap();
    assert!(reader.get_record(keys[0]).unwrap().is_some());
    let dry = store.collect_dry(bytes_max(65_000)).unwrap();
    assert_eq!(present(&store, &keys), [true; 6]);
    let report = store.collect(bytes_max(65_000)).unwrap();
    let counts = |report: &GcReport| (report.records, report.blobs, report.bytes_after);
    assert_eq!(counts(&dry), counts(&report));
    assert_eq!(
        (report.records, report.blobs, report.records_in_use),
        (3, 3, 1)
    );
    assert!(
        report.bytes_after <= 65_000 && !report.exceeds(),
        "{report:?}"
    );
    let kept = [true, false, false, false, true, true];
    assert_eq!(present(&store, &keys), kept);
    assert!(store.get_record(keys[4]).unwrap().is_some());
    let own = reader.get_record(keys[0]).unwrap().unwrap();
    assert_eq!(
        reader.get_blob(own.blobs()[0].digest).unwrap(),
        noise("a", 20_000)
    );
    // Nothing but what is in use: that is more than the limit.
    let report = store.collect(bytes_max(10)).unwrap();
    assert!(report.exceeds());
    assert_eq!(
        present(&store, &keys),
        [true, false, false, false, true, false]
    );
    assert_eq!(store.verify(2).unwrap().faults, []);
    drop((reader, store));
    let store = Store::open(dir.path()).unwrap();
    let report = store.collect(bytes_max(0)).unwrap();
    assert_eq!((report.records, report.bytes_after), (2, 0));
    assert_eq!(store.stat().unwrap().blobs, 0);
}

#[test]
fn what_was_written_by_a_live_process_stays_without_a_record() {
    let (dir, _) = old_store(1);
    let writer = Store::open(dir.path()).unwrap();
    let fresh = writer.put_output("", b"its record comes later").unwrap();
    // Found there and used again, though no record is left that names it.
    let again = writer.put_output("", &noise("a", 20_000)).unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.purge(&[Digest::of("a")]).unwrap();
    store.collect(bytes_max(0)).unwrap();
    assert!(writer.has_output(&fresh) && writer.has_output(&again));
}

#[test]
fn age_is_a_limit_and_a_use_is_noted() {
    let (dir, keys) = old_store(3);
    let store = Store::open(dir.path()).unwrap();
    assert!(store.get_record(keys[1]).unwrap().is_some());
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let limits = Limits {
        bytes_max: None,
        age_max: Some(Duration::from_secs(3600)),
    };
    assert_eq!(store.collect(limits).unwrap().records, 2);
    assert_eq!(present(&store, &keys), [false, true, false]);
}

#[test]
fn limits_apply_only_when_the_store_has_grown_above_them() {
    let (dir, _) = old_store(3);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.collect_if_due(bytes_max(70_000)).unwrap(), None);
    act(&store, "plan", "x");
    let report = store.collect_if_due(bytes_max(70_000)).unwrap().unwrap();
    // A tenth of the limit is left free.
    assert!(report.bytes_after <= 63_000, "{report:?}");
    assert_eq!(store.collect_if_due(bytes_max(70_000)).unwrap(), None);
}

#[test]
fn results_are_dropped_by_rule_and_by_key() {
    let (dir, keys) = old_store(3);
    let store = Store::open(dir.path()).unwrap();
    act(&store, "place", "placed");
    drop(store);
    std::thread::sleep(Duration::from_millis(80));
    let store = Store::open(dir.path()).unwrap();
    let select = |what: &str| store.select(what).unwrap();
    assert_eq!(select("place"), [Digest::of("placed")]);
    assert_eq!(select(&keys[1].hex()[..8]), [keys[1]]);
    assert_eq!(select("absent"), []);
    let purge = |what: &str| -> GcReport { store.purge(&select(what)).unwrap() };
    assert_eq!((purge("place").records, purge("plan").records), (1, 3));
    assert_eq!(store.stat().unwrap().records, 0);
    assert_eq!(store.audit().unwrap(), []);
}

#[test]
fn an_audit_tells_who_made_what() {
    let (dir, keys) = old_store(1);
    let store = Store::open(dir.path()).unwrap();
    let entries = store.audit().unwrap();
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!((entry.key, entry.bytes), (keys[0], 20_016));
    let words = [
        &entry.rule,
        &entry.label,
        &entry.tool,
        &entry.executed,
        &entry.outcome,
    ];
    assert_eq!(words, ["plan", "//models:tiny", "test", "local", "ok"]);
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn faults_are_told_and_repaired() {
    let (dir, keys) = old_store(6);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.verify(2).unwrap().faults, []);
    let own = |name: &str| Digest::of(noise(name, 20_000));
    damage(&store.blob_path(own("a")));
    fs::remove_file(store.blob_path(own("b"))).unwrap();
    damage(&store.record_path(keys[2]));
    fs::remove_file(store.record_path(keys[3])).unwrap();
    let faults = store.verify(2).unwrap().faults;
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(matches!(&faults[0], Fault::Blob { digest, .. } if *digest == own("a")));
    assert_eq!(faults[1], Fault::Record { key: keys[2] });
    assert!(faults.contains(&Fault::Row { key: keys[3] }));
    let incomplete = |key: Digest| {
        let is_it =
            |fault: &&Fault| matches!(fault, Fault::Incomplete { key: at, .. } if *at == key);
        faults.iter().filter(is_it).count()
    };
    assert_eq!((incomplete(keys[0]), incomplete(keys[1])), (0, 1));
    let report = store.repair(2).unwrap();
    assert_eq!(report.faults, faults);
    assert_eq!((report.blobs_removed, report.records_restored), (1, 2));
    assert_eq!((report.records_removed, report.records), (2, 4));
    assert_eq!(store.verify(2).unwrap().faults, []);
    assert_eq!(
        present(&store, &keys),
        [false, false, true, true, true, true]
    );
}

#[test]
fn records_that_do_not_hold_are_told() {
    let (dir, keys) = old_store(1);
    let store = Store::open(dir.path()).unwrap();
    let own = Digest::of(noise("a", 20_000));
    let length = fs::metadata(store.blob_path(own)).unwrap().len();
    damage(&store.blob_path(own));
    assert!(matches!(
        store.get_blob(own),
        Err(StoreError::Corrupt { .. })
    ));
    assert_eq!(store.get_record(keys[0]).unwrap(), None);
    let notes = store.take_notes();
    assert!(matches!(&notes[0], StoreNote::BlobDamaged { digest, .. } if *digest == own));
    assert!(matches!(&notes[1], StoreNote::RecordIncomplete { key, .. } if *key == keys[0]));
    assert_eq!(store.take_notes(), []);
    // Made again, it counts again.
    let again = store.put_output("own", &noise("a", 20_000)).unwrap();
    assert_eq!(again.stored, length);
    assert!(store.get_record(keys[0]).unwrap().is_some());
}

#[test]
fn a_damaged_blob_is_written_again_when_it_is_put() {
    let (dir, _) = old_store(1);
    let store = Store::open(dir.path()).unwrap();
    let own = Digest::of(noise("a", 20_000));
    damage(&store.blob_path(own));
    store.put_output("own", &noise("a", 20_000)).unwrap();
    assert_eq!(store.get_blob(own).unwrap(), noise("a", 20_000));
}

#[test]
fn flipped_bits_of_the_index_give_nothing_wrong() {
    let (dir, keys) = old_store(4);
    let files = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..8)
        .map(|i| files.path().join(format!("{i}.toml")))
        .collect();
    for path in &paths {
        fs::write(path, path.display().to_string()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(40));
    let store = Store::open(dir.path()).unwrap();
    store.files(&paths).unwrap();
    assert!(
        store
            .files(&paths)
            .unwrap()
            .iter()
            .flatten()
            .all(|fact| !fact.hashed)
    );
    let index = store.index_path();
    drop(store);
    let sound = fs::read(&index).unwrap();
    let step = sound.len() / 60 + 1;
    for at in (0..sound.len()).step_by(step).chain(16..32) {
        let mut flipped = sound.clone();
        flipped[at] ^= 0x11;
        fs::write(&index, &flipped).unwrap();
        let store = Store::open(dir.path()).unwrap();
        for (key, name) in keys.iter().zip(["a", "b", "c", "d"]) {
            let record = store.get_record(*key).unwrap();
            let record = record.unwrap_or_else(|| panic!("byte {at}: {name} is lost"));
            assert_eq!(record.blobs()[0].digest, Digest::of(noise(name, 20_000)));
        }
        for (fact, path) in store.files(&paths).unwrap().iter().zip(&paths) {
            let right = Digest::of(path.display().to_string());
            assert_eq!(fact.unwrap().digest, right, "byte {at}");
        }
        let newer = store.index_path();
        drop(store);
        if newer != index {
            fs::remove_file(newer).unwrap();
        }
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{suffix}", index.display()));
        }
    }
}

#[test]
fn a_process_with_the_old_index_does_no_harm() {
    let (dir, keys) = old_store(2);
    let old = Store::open(dir.path()).unwrap();
    let new = Store::open(dir.path()).unwrap();
    new.repair(1).unwrap();
    assert_ne!(old.index_path(), new.index_path());
    let made = act(&old, "plan", "by the old one");
    assert!(new.get_record(made).unwrap().is_some());
    drop(old);
    act(&new, "plan", "by the new one");
    drop(new);
    let store = Store::open(dir.path()).unwrap();
    assert!(!store.index_was_rebuilt());
    assert_eq!(store.verify(1).unwrap().faults, []);
    assert_eq!(present(&store, &keys), [true; 2]);
    assert_eq!(store.stat().unwrap().records, 4);
}

#[test]
fn an_unknown_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    fs::write(dir.path().join("format"), "ipub store 9\n").unwrap();
    let error = Store::open(dir.path()).err().unwrap();
    assert!(error.to_string().contains("ipub store 9"), "{error}");
}

fn archive() -> Vec<u8> {
    let (dir, _) = old_store(3);
    let store = Store::open(dir.path()).unwrap();
    let mut archive = Vec::new();
    let count = store.export(&[], &mut archive).unwrap();
    assert_eq!((count.records, count.blobs, count.bytes), (3, 4, 60_016));
    archive
}

fn import(archive: &[u8], bytes_max: u64) -> (Result<u64, ArchiveError>, Vec<bool>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let imported = store.import(archive, bytes_max).map(|count| count.records);
    let keys = ["a", "b", "c"].map(Digest::of);
    let present = keys.map(|key| store.get_record(key).unwrap().is_some());
    for (name, _) in ["a", "b", "c"]
        .iter()
        .zip(present)
        .filter(|(_, there)| *there)
    {
        let own = store.get_blob(Digest::of(noise(name, 20_000)));
        assert_eq!(own.unwrap(), noise(name, 20_000));
    }
    (imported, present.to_vec())
}

#[test]
fn archives_carry_results_and_say_where_they_come_from() {
    let archive = archive();
    let (imported, present) = import(&archive, 1 << 20);
    assert_eq!((imported.unwrap(), present), (3, vec![true; 3]));
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    act(&store, "plan", "a");
    store.import(&archive[..], 1 << 20).unwrap();
    let executed = |name: &str| {
        let record = store.find_record(Digest::of(name)).unwrap().unwrap();
        record.provenance.executed
    };
    assert_eq!(["a", "b"].map(executed), ["local", "import"]);
    // The latest build of a target, and nothing of one that was never built.
    let keys = [("plan".to_owned(), Digest::of("b"))];
    store.note_last_keys("//models:other", &keys).unwrap();
    let count = |label: &str| {
        let count = store.export(&[label.to_owned()], Vec::new()).unwrap();
        count.records
    };
    assert_eq!(["//models:other", "//models:absent"].map(count), [1, 0]);
}

#[test]
fn archives_that_are_cut_or_altered_are_refused_whole() {
    let archive = archive();
    for cut in (0..archive.len()).step_by(archive.len() / 40 + 1) {
        let (imported, present) = import(&archive[..cut], 1 << 20);
        let error = imported.unwrap_err();
        assert!(
            matches!(error, ArchiveError::Refused { .. }),
            "{cut}: {error}"
        );
        assert_eq!(present, [false; 3]);
    }
    for at in (0..archive.len()).step_by(archive.len() / 40 + 1) {
        let mut altered = archive.clone();
        altered[at] ^= 0x20;
        let (imported, present) = import(&altered, 1 << 20);
        let error = imported.unwrap_err();
        assert!(
            matches!(error, ArchiveError::Refused { .. }),
            "{at}: {error}"
        );
        assert_eq!(present, [false; 3]);
    }
    let more = [&archive[..], &zstd::bulk::compress(b"more", 1).unwrap()].concat();
    assert!(import(&more, 1 << 20).0.is_err());
    let error = import(&archive, 60_015).0.unwrap_err().to_string();
    assert!(error.contains("more than 60015 bytes"), "{error}");
}

#[test]
fn an_archive_that_unpacks_to_more_than_it_says_is_refused() {
    let (dir, keys) = old_store(1);
    let store = Store::open(dir.path()).unwrap();
    let text = fs::read(store.record_path(keys[0])).unwrap();
    let own = Digest::of(noise("a", 20_000));
    let number = |value: u64| value.to_le_bytes().to_vec();
    let head = [
        b"ipubarc1".to_vec(),
        number(1),
        number(text.len() as u64),
        text,
    ]
    .concat();
    let bomb = |claimed: u64| {
        let zeros = vec![0; 64 << 20];
        let parts = [
            head.clone(),
            number(1),
            own.as_bytes().to_vec(),
            number(claimed),
            zeros,
        ];
        zstd::bulk::compress(&parts.concat(), 3).unwrap()
    };
    assert!(bomb(20_000).len() < 20_000);
    let refusal = |claimed: u64| import(&bomb(claimed), 1 << 20).0.unwrap_err().to_string();
    assert!(refusal(20_000).contains("has content with digest"));
    assert!(refusal(64 << 20).contains("no record announces"));
    assert!(refusal(1 << 60).contains("above"));
    let records = zstd::bulk::compress(
        &[&b"ipubarc1"[..], &number(1), &number(1 << 50)].concat(),
        3,
    );
    let error = import(&records.unwrap(), 1 << 20)
        .0
        .unwrap_err()
        .to_string();
    assert!(error.contains("a record's length is"), "{error}");
}
