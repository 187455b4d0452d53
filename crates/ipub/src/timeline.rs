//! The trace of builds in Chrome's format: a process a target, a thread for each stage that runs at
//! once, and above them the critical path.
//!
//! The critical path of a build goes back from the stage that ended last, each time to the one
//! among those it reads that ended last: nothing on it could have begun earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ipub_engine::Event;
use serde_json::{Value, json};

/// One stage of one build.
struct Span {
    rule: String,
    needs: Vec<String>,
    key: String,
    status: &'static str,
    start_us: u64,
    end_us: u64,
    lane: usize,
}

#[derive(Default)]
struct Build {
    label: String,
    spans: Vec<Span>,
    /// Stages that are not done, and when they began.
    open: BTreeMap<String, Span>,
}

/// What is known so far.
pub struct Timeline {
    start: Instant,
    builds: Vec<Build>,
}

impl Timeline {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            builds: Vec::new(),
        }
    }

    pub fn event(&mut self, event: &Event) {
        let now = self.start.elapsed().as_micros() as u64;
        self.event_at(event, now);
    }

    fn event_at(&mut self, event: &Event, now: u64) {
        if let Event::BuildStarted { label, .. } = event {
            self.builds.push(Build {
                label: label.clone(),
                ..Build::default()
            });
        }
        let Some(build) = self.builds.last_mut() else {
            return;
        };
        match event {
            Event::Key {
                rule, key, needs, ..
            } => {
                let used: BTreeSet<usize> = build.open.values().map(|span| span.lane).collect();
                let free = (1..).find(|lane| !used.contains(lane));
                let span = Span {
                    rule: rule.clone(),
                    needs: needs.clone(),
                    key: key.hex(),
                    status: "running",
                    start_us: now,
                    end_us: now,
                    lane: free.unwrap_or(1),
                };
                build.open.insert(rule.clone(), span);
            }
            Event::StageHit { rule, .. } => build.close(rule, "hit", now),
            Event::StageRan { rule, .. } => build.close(rule, "ran", now),
            Event::StageFailed { rule, .. } => build.close(rule, "failed", now),
            _ => {}
        }
    }

    /// All as one document.
    pub fn document(&self) -> Value {
        let mut events = Vec::new();
        for (index, build) in self.builds.iter().enumerate() {
            let pid = index + 1;
            let name = |what: &str, tid: usize, name: &str| {
                json!({ "ph": "M", "pid": pid, "tid": tid, "name": what,
                    "args": { "name": name } })
            };
            events.push(name("process_name", 0, &build.label));
            events.push(name("thread_name", 0, "critical path"));
            let critical = build.critical();
            for (place, span) in build.spans.iter().enumerate() {
                let is_critical = critical.contains(&place);
                let event = |tid: usize| {
                    json!({
                        "ph": "X",
                        "cat": "stage",
                        "name": span.rule,
                        "pid": pid,
                        "tid": tid,
                        "ts": span.start_us,
                        "dur": span.end_us - span.start_us,
                        "args": {
                            "status": span.status,
                            "key": span.key,
                            "needs": span.needs,
                            "critical": is_critical,
                        },
                    })
                };
                events.push(event(span.lane));
                if is_critical {
                    events.push(event(0));
                }
            }
        }
        json!({ "displayTimeUnit": "ms", "traceEvents": events })
    }
}

impl Build {
    fn close(&mut self, rule: &str, status: &'static str, now: u64) {
        let Some(mut span) = self.open.remove(rule) else {
            return;
        };
        span.status = status;
        span.end_us = now.max(span.start_us);
        self.spans.push(span);
    }

    /// The places of the spans on the critical path.
    fn critical(&self) -> BTreeSet<usize> {
        let last = |among: &dyn Fn(&Span) -> bool| {
            let spans = self.spans.iter().enumerate();
            let among = spans.filter(|(_, span)| among(span));
            among
                .max_by_key(|(_, span)| span.end_us)
                .map(|(place, _)| place)
        };
        let mut path = BTreeSet::new();
        let mut next = last(&|_| true);
        while let Some(place) = next
            && path.insert(place)
        {
            let needs = &self.spans[place].needs;
            next = last(&|span| needs.contains(&span.rule));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_critical_path_follows_what_ended_last() {
        let mut timeline = Timeline::new();
        let label = "//a:b".to_owned();
        timeline.event_at(
            &Event::BuildStarted {
                label: label.clone(),
                rules: Vec::new(),
            },
            0,
        );
        let key = ipub_base::Digest::of("");
        let stages: [(&str, &[&str], u64, u64); 4] = [
            ("lower", &[], 0, 10),
            ("kernel", &[], 0, 50),
            ("plan", &["kernel", "lower"], 50, 90),
            ("weights", &["lower"], 10, 80),
        ];
        for (rule, needs, start, _) in stages {
            let event = Event::Key {
                label: label.clone(),
                rule: rule.to_owned(),
                key,
                needs: needs.iter().map(|&need| need.to_owned()).collect(),
                lines: Vec::new(),
            };
            timeline.event_at(&event, start);
        }
        for (rule, _, _, end) in stages {
            let event = Event::StageHit {
                label: label.clone(),
                rule: rule.to_owned(),
                key,
                seconds_saved: 0.0,
                outputs: Vec::new(),
            };
            timeline.event_at(&event, end);
        }
        let document = timeline.document();
        let events = document["traceEvents"].as_array().unwrap();
        let critical = events
            .iter()
            .filter(|event| event["tid"] == 0 && event["ph"] == "X");
        let critical: Vec<_> = critical
            .map(|event| event["name"].as_str().unwrap())
            .collect();
        assert_eq!(critical, ["kernel", "plan"]);
        let durations = events.iter().filter(|event| event["name"] == "weights");
        assert_eq!(
            durations
                .map(|event| event["dur"].clone())
                .collect::<Vec<_>>(),
            [70]
        );
    }
}
