//! Progress while a build works, and its log.
//!
//! On a terminal each running stage has a line of its own; elsewhere, and with `NO_COLOR` or `CI`
//! set, each stage that ends gets one plain line. With `--json` events go to standard output.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use ipub_base::{Bytes, DiagnosticKind};
use ipub_engine::{Event, EventSink};

use crate::{exit, signals};

enum View {
    Json,
    Plain,
    Live(MultiProgress),
}

/// Shows events as they come.
pub struct Screen {
    view: View,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bars: BTreeMap<String, ProgressBar>,
    log: String,
}

impl Screen {
    /// A screen for this process's terminal.
    pub fn new(json: bool) -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let plain = !std::io::stderr().is_terminal() || is_set("NO_COLOR") || is_set("CI");
        let view = match (json, plain) {
            (true, _) => View::Json,
            (false, true) => View::Plain,
            (false, false) => View::Live(MultiProgress::new()),
        };
        Self {
            view,
            start: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Takes the log: a line for each event but progress.
    pub fn take_log(&self) -> String {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let View::Live(bars) = &self.view {
            state.bars.clear();
            // What is left on the screen is only progress.
            let _ = bars.clear();
        }
        std::mem::take(&mut state.log)
    }
}

impl EventSink for Screen {
    fn event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let line = describe(event);
        if let Some(line) = &line {
            let seconds = self.start.elapsed().as_secs_f64();
            state.log += &format!("{seconds:9.3}  {line}\n");
        }
        match &self.view {
            View::Json => {
                let text = serde_json::to_string(event).unwrap_or_default();
                // A reader that went away must not stop the build.
                let _ = writeln!(std::io::stdout().lock(), "{text}");
            }
            View::Plain => {
                if let (Some(line), true) = (line, is_end(event)) {
                    eprintln!("{line}");
                }
            }
            View::Live(screen) => show(screen, &mut state.bars, event, line.as_deref()),
        }
        if let Event::StageOverdue {
            rule,
            limit_seconds,
            ..
        } = event
        {
            eprintln!(
                "error (environment): {rule}: took longer than its limit of {limit_seconds} s, and \
                 does not end by itself"
            );
            signals::end(exit::code(DiagnosticKind::Environment));
        }
    }
}

/// Events that a plain terminal shows.
fn is_end(event: &Event) -> bool {
    matches!(
        event,
        Event::StageRan { .. }
            | Event::StageFailed { .. }
            | Event::StageWaits { .. }
            | Event::OutputLost { .. }
            | Event::StoreNoted { .. }
            | Event::BuildFinished { .. }
    )
}

fn show(
    screen: &MultiProgress,
    bars: &mut BTreeMap<String, ProgressBar>,
    event: &Event,
    line: Option<&str>,
) {
    match event {
        Event::StageStarted { rule, .. } => {
            let bar = screen.add(ProgressBar::new_spinner());
            let style = ProgressStyle::with_template("{spinner} {prefix:10} {elapsed:>4}  {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(rule.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            bars.insert(rule.clone(), bar);
        }
        Event::StageProgress {
            rule,
            message,
            done,
            total,
            ..
        } => {
            if let Some(bar) = bars.get(rule) {
                bar.set_message(match total {
                    0 => message.clone(),
                    total => format!("{message} ({done} of {total})"),
                });
            }
        }
        Event::StageRan { rule, .. } | Event::StageFailed { rule, .. } => {
            if let Some(bar) = bars.remove(rule) {
                bar.finish_and_clear();
            }
            if let Some(line) = line {
                // The screen may be gone; the build goes on.
                let _ = screen.println(line);
            }
        }
        Event::StageWaits { .. } | Event::StoreNoted { .. } | Event::BuildFinished { .. } => {
            if let Some(line) = line {
                let _ = screen.println(line);
            }
        }
        _ => {}
    }
}

/// The event as a line.
fn describe(event: &Event) -> Option<String> {
    Some(match event {
        Event::BuildStarted { label, rules } => format!("build {label}: {}", rules.join(" ")),
        Event::FilesChecked { files, hashed } => format!("files {files}, read {hashed}"),
        Event::StageStarted { rule, key, .. } => format!("{rule:10} started {}", key.short()),
        Event::StageWaits { rule, .. } => {
            format!("{rule:10} is made by another ipub process; waiting for its result")
        }
        Event::StoreNoted { message, warning } => match warning {
            true => format!("warning: {message}"),
            false => format!("store: {message}"),
        },
        Event::StageProgress { .. } | Event::Key { .. } => return None,
        Event::StageOverdue {
            rule,
            limit_seconds,
            ..
        } => format!("{rule:10} is over its limit of {limit_seconds} s and does not end"),
        Event::StageHit { rule, key, .. } => format!("{rule:10} in the store {}", key.short()),
        Event::StageRan {
            rule,
            seconds,
            memo,
            notes,
            ..
        } => {
            // Lists are told at the end.
            let notes = notes
                .iter()
                .filter(|(_, value)| !value.is_array())
                .map(|(name, value)| format!("{name} {value}"));
            let (reused, asked) = (memo.reused, memo.asked);
            let memo = (asked > 0).then(|| format!("reused {reused} of {asked} sub-results"));
            let notes: Vec<_> = memo.into_iter().chain(notes).collect();
            format!("{rule:10} {seconds:7.2} s  {}", notes.join(", "))
                .trim_end()
                .to_owned()
        }
        Event::StageFailed {
            rule, kind, cached, ..
        } => {
            let when = if *cached {
                " before, with the same key"
            } else {
                ""
            };
            format!("{rule:10} failed{when}: {}", kind.name())
        }
        Event::OutputLost { rule, output, .. } => {
            format!("{rule:10} output {output} was damaged in the store and is made again")
        }
        Event::BuildFinished {
            ran,
            hit,
            failed,
            bytes_read,
            bytes_written,
            seconds_saved,
            seconds,
            ..
        } => {
            let (read, written) = (Bytes(*bytes_read), Bytes(*bytes_written));
            format!(
                "finished: {hit} hits, {ran} misses, {failed} failed; read {read}, wrote \
                 {written}; {seconds_saved:.2} s saved, {seconds:.2} s taken"
            )
        }
    })
}
