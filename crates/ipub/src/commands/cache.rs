//! `ipub cache`: the local store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::Duration;

use ipub_base::{Bytes, Diagnostic, DiagnosticKind};
use ipub_engine::{Label, Workspace};
use ipub_store::{ArchiveCount, AuditEntry, GcReport, Limits, Store};
use serde::Serialize;
use serde_json::json;

use crate::cli::{Cache, Gc};
use crate::exit::Outcome;
use crate::files::unwritable;
use crate::open;

pub fn cache(command: &Cache) -> Outcome {
    let workspace = open::workspace()?;
    let store = Store::open(&workspace.cache_dir)?;
    let outcome = match command {
        Cache::Stat { json } => stat(&store, workspace.cache_limits, *json),
        Cache::Verify { json } => verify(&store, *json),
        Cache::Repair { json } => repair(&store, *json),
        Cache::Gc(args) => gc(&store, &workspace, args),
        Cache::Audit { what, json } => audit(&store, what.as_deref(), *json),
        Cache::Purge { what, json } => purge(&store, what.as_deref(), *json),
        Cache::Export {
            file,
            targets,
            json,
        } => export(&store, file, targets, *json),
        Cache::Import {
            file,
            max_bytes,
            json,
        } => {
            let max = max_bytes.or(workspace.cache_limits.bytes_max);
            import(&store, file, max.unwrap_or(u64::MAX), *json)
        }
    };
    for note in store.take_notes() {
        eprintln!("store: {note}");
    }
    outcome
}

/// The report as JSON, or as `show` prints it.
fn print<T: Serialize>(report: &T, as_json: bool, show: impl FnOnce(&T)) {
    match as_json {
        true => println!("{}", json!(report)),
        false => show(report),
    }
}

fn stat(store: &Store, limits: Limits, as_json: bool) -> Outcome {
    let stat = store.stat()?;
    print(&stat, as_json, |stat| {
        println!("store    {}", store.dir().display());
        println!("blobs    {}", stat.blobs);
        println!("size     {}", Bytes(stat.blob_bytes));
        println!("records  {}, {}", stat.records, Bytes(stat.record_bytes));
        println!("index    {}", Bytes(stat.index_bytes));
        let bytes = limits.bytes_max;
        let bytes = bytes.map_or("none".to_owned(), |max| Bytes(max).to_string());
        let age = limits.age_max.map_or("no age".to_owned(), |age| {
            format!("{} days without use", age.as_secs() / 86_400)
        });
        println!("limits   {bytes}, {age}");
        println!("open     {} processes, this one included", stat.open);
    });
    Ok(())
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn verify(store: &Store, as_json: bool) -> Outcome {
    let report = store.verify(threads())?;
    print(&report, as_json, |report| {
        let (blobs, bytes) = (report.blobs, Bytes(report.bytes));
        println!("{blobs} blobs, {bytes}, and {} records", report.records);
        if report.unnamed_blobs > 0 {
            let unnamed = report.unnamed_blobs;
            println!("{unnamed} blobs without a record: unfinished, or replaced");
        }
        for fault in &report.faults {
            println!("{fault}");
        }
    });
    match report.faults.len() {
        0 => Ok(()),
        count => {
            let message = format!("{count} faults in the store {}", store.dir().display());
            let error = Diagnostic::new(DiagnosticKind::Verification, message);
            Err(error.help("`ipub cache repair` removes them; a build makes again what it needs"))
        }
    }
}

fn repair(store: &Store, as_json: bool) -> Outcome {
    let report = store.repair(threads())?;
    print(&report, as_json, |report| {
        for fault in &report.faults {
            println!("{fault}");
        }
        println!("damaged blobs removed   {}", report.blobs_removed);
        println!("records removed         {}", report.records_removed);
        println!("record files rewritten  {}", report.records_restored);
        println!("records in the index    {}", report.records);
    });
    Ok(())
}

fn gc(store: &Store, workspace: &Workspace, args: &Gc) -> Outcome {
    let mut limits = workspace.cache_limits;
    if args.max_bytes.is_some() {
        limits.bytes_max = args.max_bytes;
    }
    if let Some(days) = args.max_age {
        limits.age_max = Some(Duration::from_secs(days.saturating_mul(86_400)));
    }
    let report = match args.dry_run {
        true => store.collect_dry(limits)?,
        false => store.collect(limits)?,
    };
    print(&report, args.json, |report| {
        let verb = if args.dry_run {
            "would evict"
        } else {
            "evicted"
        };
        show_eviction(report, verb);
        if report.exceeds() {
            println!("what is in use is above the limit");
        }
    });
    Ok(())
}

fn show_eviction(report: &GcReport, verb: &str) {
    println!(
        "{verb} {} results and {} blobs",
        report.records, report.blobs
    );
    let (before, after) = (Bytes(report.bytes_before), Bytes(report.bytes_after));
    println!("size {before} -> {after}");
    if report.records_in_use > 0 {
        println!("{} results are in use and stay", report.records_in_use);
    }
}

fn audit(store: &Store, what: Option<&str>, as_json: bool) -> Outcome {
    let mut entries = store.audit()?;
    if let Some(what) = what {
        let label = what.parse::<Label>().map(|label| label.to_string());
        let label = label.unwrap_or_default();
        entries.retain(|entry| entry.rule == what || entry.label == label);
    }
    print(&entries, as_json, |entries| {
        println!(
            "{:20} {:12} {:10} {:10} {:>10} {:>14}  {:14} target",
            "made (UTC)", "key", "rule", "outcome", "seconds", "bytes", "by"
        );
        for entry in entries {
            println!("{}", audit_line(entry));
        }
        let mut origins: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for entry in entries {
            *origins.entry((&entry.tool, &entry.executed)).or_default() += 1;
        }
        for ((tool, executed), count) in origins {
            let tool = if tool.is_empty() { "unnamed" } else { tool };
            println!("{count} by {tool}, {}", origin(executed));
        }
    });
    Ok(())
}

fn audit_line(entry: &AuditEntry) -> String {
    format!(
        "{:20} {:12} {:10} {:10} {:>10.3} {:>14}  {:14} {}",
        utc(entry.made_unix_ms),
        entry.key.short(),
        entry.rule,
        entry.outcome,
        entry.wall_micros as f64 / 1e6,
        entry.bytes,
        origin(&entry.executed),
        entry.label
    )
}

fn origin(executed: &str) -> &str {
    match executed {
        "" => "unknown",
        other => other,
    }
}

/// `2026-12-01 18:15:07`.
fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

fn purge(store: &Store, what: Option<&str>, as_json: bool) -> Outcome {
    let keys = match what {
        Some(what) => store.select(what)?,
        None => store.audit()?.iter().map(|entry| entry.key).collect(),
    };
    if let (Some(what), true) = (what, keys.is_empty()) {
        let message = format!("the store has no results of a stage or key `{what}`");
        return Err(Diagnostic::usage(message).help("`ipub cache audit` lists them"));
    }
    let report = store.purge(&keys)?;
    print(&report, as_json, |report| show_eviction(report, "dropped"));
    Ok(())
}

fn show_archive(count: &ArchiveCount, verb: &str, file: &Path) {
    let (records, blobs, bytes) = (count.records, count.blobs, Bytes(count.bytes));
    println!(
        "{verb} {}: {records} records, {blobs} blobs, {bytes}",
        file.display()
    );
    if count.incomplete > 0 {
        println!(
            "{} records left out: their blobs are gone",
            count.incomplete
        );
    }
}

fn export(store: &Store, file: &Path, targets: &[String], as_json: bool) -> Outcome {
    let mut labels = Vec::new();
    for target in targets {
        labels.push(target.parse::<Label>()?.to_string());
    }
    let folder = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let fail = |error: std::io::Error| unwritable(file, &error);
    // The name appears when the archive is complete.
    let mut builder = tempfile::Builder::new();
    builder.prefix(".").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let part = builder.tempfile_in(folder.unwrap_or(Path::new(".")));
    let part = part.map_err(fail)?;
    let count = store.export(&labels, BufWriter::new(part.as_file()))?;
    if count.records == 0 {
        let message = "there is nothing to export: no result of these targets is in the store";
        return Err(Diagnostic::usage(message).help("build them first"));
    }
    part.as_file().sync_all().map_err(fail)?;
    part.persist(file).map_err(|error| fail(error.error))?;
    print(&count, as_json, |count| show_archive(count, "wrote", file));
    Ok(())
}

fn import(store: &Store, file: &Path, bytes_max: u64, as_json: bool) -> Outcome {
    let opened = File::open(file)
        .map_err(|error| Diagnostic::usage(format!("cannot read {}: {error}", file.display())))?;
    let count = store.import(BufReader::new(opened), bytes_max);
    let count = count.map_err(|error| {
        let mut diagnostic = Diagnostic::from(error);
        diagnostic.message = format!("{}: {}", file.display(), diagnostic.message);
        diagnostic
    })?;
    print(&count, as_json, |count| show_archive(count, "read", file));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(utc(1_796_148_907_123), "2026-12-01 18:15:07");
        assert_eq!(utc(4_107_542_399_000), "2100-02-28 23:59:59");
    }
}
