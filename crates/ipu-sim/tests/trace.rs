//! A traced call does and takes what an untraced one does, and tells each issue.

mod common;

use std::sync::{Arc, Mutex};

use common::{CODE, FRAME, single_worker, tile};
use ipu_sim::trace::Issued;
use ipu_sim::{CallResult, ContextId, TileRun};

/// Sums four words by a repeat of a bundle, and stores what it found.
const PROGRAM: &str = "ld32 $m2, $m0, $m15, 0\nsetzi $m3, 0\nsetzi $m4, 5\n.align\nnop\nrpt 3, 0\n\
    { add $m3, $m3, $m4 ; fnop }\nst32 $m3, $m2, $m15, 0";

fn ready(run: &mut TileRun) {
    run.frame(FRAME, &[0x60000]).unwrap();
}

fn traced(source: &str) -> (CallResult, Vec<u32>, Vec<Issued>) {
    let (mut run, labels) = tile(source);
    ready(&mut run);
    let issues: Arc<Mutex<Vec<Issued>>> = Arc::default();
    let sink = Arc::clone(&issues);
    run.trace(Arc::new(Mutex::new(move |issued: &Issued| {
        sink.lock().unwrap().push(issued.clone());
    })));
    let result = run.call(labels["main"]).unwrap_or_else(|e| panic!("{e}"));
    let words = run.read_words(0x60000, 1).unwrap();
    let issues = std::mem::take(&mut *issues.lock().unwrap());
    (result, words, issues)
}

#[test]
fn each_issue_is_told_and_nothing_changes() {
    let source = single_worker(PROGRAM);
    let (mut run, labels) = tile(&source);
    ready(&mut run);
    let plain = run.call(labels["main"]).unwrap();
    let (result, words, issues) = traced(&source);
    assert_eq!(result, plain);
    assert_eq!(words, run.read_words(0x60000, 1).unwrap());
    assert_eq!(words, [15]);

    let of = |context| {
        issues
            .iter()
            .filter(move |issued| issued.context == context)
    };
    for (worker, count) in result.issues.into_iter().enumerate() {
        let mine: Vec<&Issued> = of(ContextId::Worker(worker as u8)).collect();
        assert_eq!(mine.len() as u64, count, "worker {worker}");
        assert!(
            mine.iter().all(|issued| issued.cycle % 6 == worker as u64),
            "a worker issues in its own slot"
        );
        assert!(
            mine.windows(2)
                .all(|pair| pair[1].cycle == pair[0].cycle + 6)
        );
    }
    assert_eq!(of(ContextId::Supervisor).count(), 4);
    let first = of(ContextId::Supervisor).next().unwrap();
    assert_eq!(first.pc, CODE);
    assert_eq!(first.changed_m, [(1, labels["body"])]);
    let sums = of(ContextId::Worker(0)).filter_map(|issued| match issued.changed_m[..] {
        [(3, value)] => Some(value),
        _ => None,
    });
    assert_eq!(sums.collect::<Vec<_>>(), [5, 10, 15]);
}

#[test]
fn a_fault_ends_the_trace_with_its_instruction() {
    let source = single_worker("trap 3");
    let (mut run, labels) = tile(&source);
    ready(&mut run);
    let last: Arc<Mutex<Option<Issued>>> = Arc::default();
    let sink = Arc::clone(&last);
    run.trace(Arc::new(Mutex::new(move |issued: &Issued| {
        *sink.lock().unwrap() = Some(issued.clone());
    })));
    let fault = run.call(labels["main"]).unwrap_err();
    let last = last.lock().unwrap().take().unwrap();
    assert_eq!((last.context, last.pc), (ContextId::Worker(0), fault.pc));
}
