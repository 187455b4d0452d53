//! A running stage under guard: a panic becomes a failure, and a limit of time ends it.
//!
//! A stage that is over its limit ends where it next tells progress or asks its memo: the stack is
//! unwound from there. For one that does neither, an event tells that it is overdue; who receives
//! it may end the process. Whatever it gives after its limit is not stored.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ipub_base::{Digest, Memo};

use crate::event::{Event, EventSink};
use crate::failure::{FailureKind, StageFailure};
use crate::inputs::{StageImpl, StageInputs, StageOutputs};

/// How long a stage over its limit may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// The limit of one execution.
pub(crate) struct Guard<'a> {
    rule: &'a str,
    limit: Option<Duration>,
    start: Instant,
}

/// What unwinds the stack of a stage that is over its limit.
struct TimedOut(StageFailure);

impl<'a> Guard<'a> {
    pub(crate) fn new(rule: &'a str, limit_seconds: Option<u64>, start: Instant) -> Self {
        let limit = limit_seconds.map(Duration::from_secs);
        Self { rule, limit, start }
    }

    fn failure(&self) -> Option<StageFailure> {
        let limit = self.limit.filter(|limit| self.start.elapsed() > *limit)?;
        let message = format!("took longer than its limit of {} s", limit.as_secs());
        let mut failure = StageFailure::new(FailureKind::Environment, message);
        let help = "`--timeout SECONDS`, or `timeout_seconds` of its rule, gives another limit";
        failure.help = Some(help.to_owned());
        Some(failure)
    }

    /// Ends the stage that calls if it is over its limit.
    pub(crate) fn check(&self) {
        if let Some(failure) = self.failure() {
            // No panic: its hook would speak.
            resume_unwind(Box::new(TimedOut(failure)));
        }
    }

    /// Runs the stage; what it gives too late is a failure.
    pub(crate) fn watch(
        &self,
        events: &dyn EventSink,
        label: &str,
        run: impl FnOnce() -> Result<StageOutputs, StageFailure>,
    ) -> Result<StageOutputs, StageFailure> {
        let Some(limit) = self.limit else {
            return run();
        };
        let (ended, wait) = mpsc::channel::<()>();
        let ran = std::thread::scope(|scope| {
            scope.spawn(move || {
                let overdue = wait.recv_timeout(limit.saturating_add(GRACE));
                if overdue == Err(mpsc::RecvTimeoutError::Timeout) {
                    events.event(&Event::StageOverdue {
                        label: label.to_owned(),
                        rule: self.rule.to_owned(),
                        limit_seconds: limit.as_secs(),
                    });
                }
            });
            let ran = run();
            drop(ended);
            ran
        });
        self.failure().map_or(ran, Err)
    }
}

/// A memo that checks the limit at every question.
pub(crate) struct GuardedMemo<'a>(pub(crate) &'a dyn Memo, pub(crate) &'a Guard<'a>);

impl Memo for GuardedMemo<'_> {
    fn get(&self, kind: &'static str, key: Digest) -> Option<Vec<u8>> {
        self.1.check();
        self.0.get(kind, key)
    }

    fn put(&self, kind: &'static str, key: Digest, value: Vec<u8>) {
        self.0.put(kind, key, value);
    }
}

/// Runs a stage, turns a panic into a failure, and holds the stage to the declared outputs.
pub(crate) fn run_guarded(
    stage: &dyn StageImpl,
    inputs: &StageInputs<'_>,
    declared: &[String],
) -> Result<StageOutputs, StageFailure> {
    let ran = catch_unwind(AssertUnwindSafe(|| stage.run(inputs)));
    let outputs = ran.unwrap_or_else(|panic| match panic.downcast::<TimedOut>() {
        Ok(timed_out) => Err(timed_out.0),
        Err(panic) => {
            let message = format!("stage `{}` panicked: {}", stage.name(), panic_text(&*panic));
            Err(StageFailure::bug(message))
        }
    })?;
    let made: BTreeSet<&str> = outputs.blobs.keys().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = declared.iter().map(String::as_str).collect();
    if let Some(name) = made.symmetric_difference(&wanted).next() {
        let what = if made.contains(name) {
            "makes undeclared"
        } else {
            "does not make"
        };
        let message = format!("stage `{}` {what} output `{name}`", stage.name());
        return Err(StageFailure::bug(message));
    }
    Ok(outputs)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NoEvents;

    #[test]
    fn what_is_over_its_limit_ends_or_is_refused() {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        let run = || Ok(StageOutputs::new());
        let over = Guard::new("place", Some(0), begun);
        let panic = catch_unwind(AssertUnwindSafe(|| over.check())).unwrap_err();
        assert!(panic.is::<TimedOut>());
        let failure = over.watch(&NoEvents, "//a:b", run).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Environment);
        assert_eq!(failure.message, "took longer than its limit of 0 s");
        for limit in [None, Some(1000)] {
            let within = Guard::new("place", limit, begun);
            within.check();
            assert!(within.watch(&NoEvents, "//a:b", run).is_ok());
        }
    }
}
