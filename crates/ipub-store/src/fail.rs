//! Named points at which tests kill the process. In any other build they are nothing.

/// Marks a step of a protocol.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(test)]
        $crate::fail::reached($name);
    };
}
pub(crate) use fail_point;

/// A child process dies where `IPUB_STORE_KILL` (`name:count`, or
/// `*:count` for any point) says, and appends each
/// point that it passes to the file `IPUB_STORE_POINTS`.
#[cfg(test)]
pub(crate) fn reached(name: &str) {
    use std::collections::BTreeMap;
    use std::io::Write as _;
    use std::sync::Mutex;

    static COUNTS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    if let Some(path) = std::env::var_os("IPUB_STORE_POINTS") {
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path);
        writeln!(file.unwrap(), "{name}").unwrap();
    }
    let Ok(plan) = std::env::var("IPUB_STORE_KILL") else {
        return;
    };
    let (at, due) = plan.split_once(':').unwrap();
    let due: usize = due.parse().unwrap();
    if at == name || at == "*" {
        let mut counts = COUNTS.lock().unwrap();
        let count = counts.entry(at.to_owned()).or_default();
        *count += 1;
        if *count == due {
            // Neither destructors nor buffers: as a kill.
            std::process::abort();
        }
    }
}
