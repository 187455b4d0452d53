//! The store under good and bad weather.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ipub_base::{Digest, KeyLine, Memo as _};
use ipub_store::{
    FailedOutcome, MemoPack, Outcome, PackMemo, Provenance, Record, Store, StoreError,
};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

fn record(store: &Store, name: &str, content: &[u8]) -> Record {
    Record {
        key: Digest::of(name),
        rule: "plan".to_owned(),
        label: "//models:tiny".to_owned(),
        key_lines: vec![KeyLine {
            path: "rule".to_owned(),
            value: name.to_owned(),
        }],
        outcome: Outcome::Ok {
            outputs: vec![store.put_output("out", content).unwrap()],
        },
        wall_micros: 1_500_000,
        notes: BTreeMap::from([("reused".to_owned(), 3.into())]),
        provenance: Provenance {
            made_unix_ms: 7,
            ..Provenance::default()
        },
    }
}

fn files_in(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn blobs_round_trip() {
    let (_dir, store) = store();
    let big: Vec<u8> = (0..3_000_000u32)
        .flat_map(|i| i.wrapping_mul(i).to_le_bytes())
        .collect();
    for content in [&b""[..], b"x", &big] {
        let digest = store.put_blob(content).unwrap();
        assert_eq!(digest, Digest::of(content));
        assert_eq!(store.put_blob(content).unwrap(), digest);
        assert_eq!(store.get_blob(digest).unwrap(), content);
        assert!(store.has_blob(digest));
    }
    assert_eq!(store.stat().unwrap().blobs, 3);
    assert_eq!(files_in(&store.dir().join("tmp")), 0);
    let absent = store.get_blob(Digest::of("absent")).unwrap_err();
    assert_eq!(absent.lost_blob(), Some(Digest::of("absent")));
}

#[test]
fn truncated_and_flipped_blobs_are_refused_removed_and_made_again() {
    let (_dir, store) = store();
    let content: Vec<u8> = (0..5000u32).flat_map(|i| (i % 977).to_le_bytes()).collect();
    let digest = store.put_blob(&content).unwrap();
    let path = store.blob_path(digest);
    let frame = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = [0, 1, 5, 9, frame.len() / 2, frame.len() - 1]
        .map(|n| frame[..n].to_vec())
        .to_vec();
    for at in (0..frame.len()).step_by(frame.len() / 40 + 1) {
        let mut flipped = frame.clone();
        flipped[at] ^= 0x10;
        damaged.push(flipped);
    }
    damaged.push(b"not a frame at all".to_vec());
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        match store.get_blob(digest) {
            // Some header bits do not matter to the content.
            Ok(same) => assert_eq!(same, content),
            Err(error) => {
                assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
                assert!(!path.exists());
            }
        }
        store.put_blob(&content).unwrap();
    }
    fs::write(&path, &frame).unwrap();
    assert_eq!(store.get_blob(digest).unwrap(), content);
}

#[test]
fn a_frame_that_announces_too_much_allocates_nothing() {
    let (_dir, store) = store();
    let digest = store.put_blob(b"small").unwrap();
    // Magic, single segment with an 8-byte content size of 2^60, no blocks.
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    bomb.extend_from_slice(&(1u64 << 60).to_le_bytes());
    fs::write(store.blob_path(digest), bomb).unwrap();
    let error = store.get_blob(digest).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("announces 1152921504606846976 bytes"),
        "{error}"
    );
}

#[test]
fn records_round_trip_and_need_their_blobs() {
    let (_dir, store) = store();
    let record = record(&store, "a", b"content");
    assert_eq!(store.get_record(record.key).unwrap(), None);
    store.put_record(&record).unwrap();
    assert_eq!(
        store.get_record(record.key).unwrap().as_ref(),
        Some(&record)
    );
    let path = store.blob_path(record.blobs()[0].digest);
    let frame = fs::read(&path).unwrap();
    fs::write(&path, &frame[1..]).unwrap();
    assert_eq!(
        store.get_record(record.key).unwrap(),
        None,
        "a truncated blob is a miss"
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(
        store.get_record(record.key).unwrap(),
        None,
        "a dangling record is a miss"
    );
    assert_eq!(
        store.find_record(record.key).unwrap().as_ref(),
        Some(&record)
    );
}

#[test]
fn failures_are_records() {
    let (_dir, store) = store();
    let mut record = record(&store, "a", b"");
    let payload = store
        .put_output("payload", b"tile 7: 900 bytes needed, 800 free")
        .unwrap();
    record.outcome = Outcome::Failed(FailedOutcome {
        kind: "infeasible".to_owned(),
        message: "tile 7 is full".to_owned(),
        payload: Some(payload),
    });
    store.put_record(&record).unwrap();
    assert_eq!(store.get_record(record.key).unwrap(), Some(record));
}

#[test]
fn a_lost_or_damaged_index_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let damage: [fn(&Path); 4] = [
        |path| fs::remove_file(path).unwrap(),
        |path| {
            fs::write(
                path,
                b"this is no database, and long enough to be read as one",
            )
            .unwrap()
        },
        |path| fs::write(path, b"").unwrap(),
        |path| {
            let mut bytes = fs::read(path).unwrap();
            let length = bytes.len();
            bytes[100..length].fill(0xa5);
            fs::write(path, bytes).unwrap();
        },
    ];
    let record = {
        let store = Store::open(dir.path()).unwrap();
        assert!(store.index_was_rebuilt());
        let record = record(&store, "a", b"content");
        store.put_record(&record).unwrap();
        record
    };
    assert!(!Store::open(dir.path()).unwrap().index_was_rebuilt());
    for harm in damage {
        harm(&Store::open(dir.path()).unwrap().index_path());
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(
            store.get_record(record.key).unwrap().as_ref(),
            Some(&record)
        );
        assert!(store.index_was_rebuilt());
        let last = store
            .last_keys(&record.label, &record.rule)
            .unwrap()
            .unwrap();
        assert_eq!((last.key, last.previous), (record.key, None));
    }
}

#[test]
fn damaged_record_files_are_not_believed() {
    let (dir, store) = store();
    let record = record(&store, "a", b"content");
    store.put_record(&record).unwrap();
    drop(store);
    let path = Store::open(dir.path()).unwrap().record_path(record.key);
    let text = fs::read(&path).unwrap();
    for at in (0..text.len()).step_by(7) {
        let mut flipped = text.clone();
        flipped[at] ^= 1;
        fs::write(&path, flipped).unwrap();
        fs::remove_file(Store::open(dir.path()).unwrap().index_path()).unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(
            store.get_record(record.key).unwrap(),
            None,
            "flipped byte {at}"
        );
    }
    // A record under another key's name is not that key's record.
    fs::write(&path, &text).unwrap();
    let store = Store::open(dir.path()).unwrap();
    let other = store.record_path(Digest::of("other"));
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, &text).unwrap();
    assert_eq!(store.get_record(Digest::of("other")).unwrap(), None);
    assert_eq!(store.get_record(record.key).unwrap(), Some(record));
}

#[test]
fn a_record_file_without_its_row_is_found() {
    let (dir, store) = store();
    let record = record(&store, "a", b"content");
    let other = tempfile::tempdir().unwrap();
    let elsewhere = Store::open(other.path()).unwrap();
    elsewhere.put_output("out", b"content").unwrap();
    elsewhere.put_record(&record).unwrap();
    let to = store.record_path(record.key);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(elsewhere.record_path(record.key), to).unwrap();
    assert_eq!(store.get_record(record.key).unwrap(), Some(record));
    drop(dir);
}

#[test]
fn last_keys_remember_the_one_before() {
    let (_dir, store) = store();
    let note = |key: &str| {
        let keys = [("plan".to_owned(), Digest::of(key))];
        store.note_last_keys("//models:tiny", &keys).unwrap();
        let last = store.last_keys("//models:tiny", "plan").unwrap().unwrap();
        (last.key, last.previous)
    };
    let [a, b] = ["a", "b"].map(Digest::of);
    assert_eq!(store.last_keys("//models:tiny", "plan").unwrap(), None);
    assert_eq!(note("a"), (a, None));
    assert_eq!(note("a"), (a, None));
    assert_eq!(note("b"), (b, Some(a)));
    assert_eq!(note("a"), (a, Some(b)));
}

fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

#[test]
fn unchanged_files_are_not_read_again() {
    let (_dir, store) = store();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.S");
    fs::write(&path, "one").unwrap();
    std::thread::sleep(Duration::from_millis(40));
    let paths = [path.clone(), folder.path().join("absent")];
    let look = || store.files(&paths).unwrap();
    let first = look();
    assert_eq!(first[1], None);
    let fact = first[0].unwrap();
    assert_eq!(
        (fact.digest, fact.size, fact.hashed),
        (Digest::of("one"), 3, true)
    );
    assert!(!look()[0].unwrap().hashed);
    // Touched without a change of content: read once more, same digest.
    age(&path, 100);
    std::thread::sleep(Duration::from_millis(40));
    let touched = look()[0].unwrap();
    assert_eq!((touched.digest, touched.hashed), (fact.digest, true));
    assert!(!look()[0].unwrap().hashed);
}

#[test]
fn changes_of_equal_size_within_one_tick_are_seen() {
    let (_dir, store) = store();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.S");
    for round in 0..300u32 {
        let content = format!("{round:08}");
        fs::write(&path, &content).unwrap();
        let fact = store.files(std::slice::from_ref(&path)).unwrap()[0].unwrap();
        assert_eq!(fact.digest, Digest::of(content));
    }
}

#[test]
fn claims_exclude_each_other_and_leave_nothing() {
    let (dir, store) = store();
    let running = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let claim = store.claim(Digest::of("action")).unwrap();
                    let before = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(before, 0);
                    std::thread::yield_now();
                    running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(claim);
                }
            });
        }
    });
    let left: Vec<_> = fs::read_dir(dir.path().join("claims"))
        .unwrap()
        .flatten()
        .collect();
    assert!(left.is_empty());
}

#[test]
fn memo_packs_travel_as_one_blob() {
    let (_dir, store) = store();
    let (slot, wide) = (Digest::of("slot"), Digest::of("wide"));
    assert_eq!(store.load_memo(slot).unwrap(), MemoPack::default());
    let memo = PackMemo::new(MemoPack::default());
    assert_eq!(memo.get("cost", Digest::of("gemm")), None);
    memo.put("cost", Digest::of("gemm"), b"123".to_vec());
    memo.put("rows", Digest::of("phase"), vec![7; 1000]);
    store
        .save_memo(&[slot, wide], &memo.into_pack(1 << 20))
        .unwrap();

    let mut pack = store.load_memo(wide).unwrap();
    assert_eq!(MemoPack::from_bytes(&pack.to_bytes()).as_ref(), Some(&pack));
    for cut in 0..pack.to_bytes().len() {
        assert_eq!(MemoPack::from_bytes(&pack.to_bytes()[..cut]), None);
    }
    pack.merge(store.load_memo(slot).unwrap());
    let memo = PackMemo::new(pack);
    assert_eq!(
        memo.get("cost", Digest::of("gemm")).as_deref(),
        Some(&b"123"[..])
    );
    assert_eq!(
        (memo.usage().reused, memo.usage().asked, memo.has_grown()),
        (1, 1, false)
    );
    // Half-evicted: what was touched stays, the rest only within the limit.
    assert_eq!(memo.into_pack(100).entries.len(), 1);
}

/// Runs this same test again in a child whose files may not grow above a limit.
#[test]
fn a_full_disk_is_one_typed_error_and_harms_nothing() {
    const STORE: &str = "IPUB_TEST_STORE";
    let noise = |seed: u64| -> Vec<u8> {
        let words = (0..40_000u64).map(|i| Digest::of((i ^ seed << 32).to_le_bytes()));
        words.flat_map(|digest| *digest.as_bytes()).collect()
    };
    if let Some(dir) = std::env::var_os(STORE) {
        let store = Store::open(&dir).unwrap();
        let error = store.put_blob(&noise(2)).unwrap_err();
        assert!(
            matches!(&error, StoreError::NoSpace { bytes, .. } if *bytes > 1_000_000),
            "{error}"
        );
        let path = store.blob_path(Digest::of(noise(2)));
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
        assert!(!path.exists());
        assert_eq!(files_in(&store.dir().join("tmp")), 0);
        let small = store.put_blob(b"small blobs still fit").unwrap();
        assert!(store.has_blob(small));
        std::io::stdout().write_all(b"child was here").unwrap();
        return;
    }
    let (dir, store) = store();
    let before = record(&store, "before", &noise(1));
    store.put_record(&before).unwrap();
    let test = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" --exact \"$1\" --nocapture";
    let child = Command::new("sh")
        .args(["-c", script])
        .arg(test)
        .arg("a_full_disk_is_one_typed_error_and_harms_nothing")
        .env(STORE, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        child.status.success() && said.contains("child was here"),
        "{said}"
    );
    assert_eq!(
        store.get_record(before.key).unwrap().as_ref(),
        Some(&before)
    );
    assert_eq!(store.get_blob(before.blobs()[0].digest).unwrap(), noise(1));
}

#[test]
fn many_open_a_new_store_at_once() {
    for _ in 0..8 {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6u32 {
                let dir = dir.path();
                scope.spawn(move || {
                    let store = Store::open(dir).unwrap();
                    let record = record(&store, &format!("{thread}"), b"same");
                    store.put_record(&record).unwrap();
                    assert_eq!(store.get_record(record.key).unwrap(), Some(record));
                });
            }
        });
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(
            (store.stat().unwrap().records, store.index_was_rebuilt()),
            (6, false)
        );
    }
}
