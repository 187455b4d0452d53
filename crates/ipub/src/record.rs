//! What a command keeps of the events of its builds, beside what the screen shows.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ipub_engine::{Event, EventSink};

use crate::cli::HowArgs;
use crate::exit::Outcome;
use crate::files;
use crate::screen::Screen;
use crate::timeline::Timeline;

/// The files that `--events` and `--trace` name.
#[derive(Default)]
pub struct Recorder {
    events: Option<(PathBuf, Mutex<BufWriter<File>>)>,
    trace: Option<(PathBuf, Mutex<Timeline>)>,
}

impl Recorder {
    /// The files that the arguments ask for; that of events is there from now on.
    pub fn new(how: &HowArgs) -> Result<Self, ipub_base::Diagnostic> {
        let mut this = Self::default();
        if let Some(path) = &how.events {
            files::write(path, b"")?;
            let file = File::create(path).map_err(|error| files::unwritable(path, &error))?;
            this.events = Some((path.clone(), Mutex::new(BufWriter::new(file))));
        }
        if let Some(path) = &how.trace {
            this.trace = Some((path.clone(), Mutex::new(Timeline::new())));
        }
        Ok(this)
    }

    /// Writes what is not written yet.
    pub fn finish(&self) -> Outcome {
        if let Some((path, file)) = &self.events {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.flush()
                .map_err(|error| files::unwritable(path, &error))?;
        }
        if let Some((path, timeline)) = &self.trace {
            let timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
            let text = format!("{}\n", timeline.document());
            files::write(path, text.as_bytes())?;
        }
        Ok(())
    }

    fn event(&self, event: &Event) {
        if let Some((_, file)) = &self.events {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let text = serde_json::to_string(event).unwrap_or_default();
            // An error stays in the file's buffer and is told by `finish`.
            let _ = writeln!(file, "{text}");
            if matches!(
                event,
                Event::StageOverdue { .. } | Event::BuildFinished { .. }
            ) {
                let _ = file.flush();
            }
        }
        if let Some((_, timeline)) = &self.trace {
            let mut timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
            timeline.event(event);
        }
    }
}

/// The files first, then the screen.
pub struct Recorded<'a> {
    pub recorder: &'a Recorder,
    pub screen: &'a Screen,
}

impl EventSink for Recorded<'_> {
    fn event(&self, event: &Event) {
        self.recorder.event(event);
        self.screen.event(event);
    }
}
