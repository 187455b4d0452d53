//! `cargo xtask tidy`: the laws of the tree that a program can check.
//!
//! Each rule counts something at a place: the lines of a file, the `unsafe` of a file. What the
//! tree owes is in `tidy-baseline.toml`, which may only shrink: a place that is not in it, or
//! counts more than it says, fails, and so does an entry that is no longer true.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use crate::source::Source;
use crate::{Failure, USAGE, read, root};

const BASELINE: &str = "tools/xtask/tidy-baseline.toml";

/// Above this a file's module doc has a paragraph that begins `Length:` and says why.
const FILE_LINES: usize = 500;
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// Pure tables of data, of any length.
const DATA_TABLES: [&str; 0] = [];

/// The only files with `unsafe`: vector loops of the simulator.
const UNSAFE_FILES: &str = "crates/ipu-sim/src/vector";

/// Paths of one machine, in pieces so that this file does not hold them.
const DENIED: [&str; 3] = [
    concat!("/", "home/"),
    concat!("/", "root/"),
    concat!("/", "tmp/"),
];

const FACTS: [&str; 5] = [
    "ipub-base",
    "ipu-target",
    "ipu-isa",
    "ipu-package",
    "ipu-ir",
];
const PASSES: [&str; 7] = [
    "ipu-model",
    "ipu-reference",
    "ipu-plan",
    "ipu-place",
    "ipu-exchange",
    "ipu-emit",
    "ipu-sim",
];
const ENGINE: [&str; 3] = ["ipub-base", "ipub-store", "ipub-engine"];
/// Passes that may use another pass.
const PASS_ARROWS: [(&str, &str); 3] = [
    ("ipu-place", "ipu-exchange"),
    ("ipu-emit", "ipu-exchange"),
    ("ipu-sim", "ipu-exchange"),
];
/// Outside crates that one crate alone may know.
const OUTSIDE: [(&str, &str); 4] = [
    ("rusqlite", "ipub-store"),
    ("clap", "ipub"),
    ("indicatif", "ipub"),
    ("tracing-subscriber", "ipub"),
];

/// Rule, then place, then count.
type Counts = BTreeMap<String, BTreeMap<String, i64>>;

/// What was found, with lines to show for each place.
#[derive(Default)]
struct Findings {
    counts: Counts,
    details: BTreeMap<(String, String), Vec<String>>,
}

impl Findings {
    fn add(&mut self, rule: &str, place: &str, count: usize, detail: String) {
        let places = self.counts.entry(rule.to_owned()).or_default();
        *places.entry(place.to_owned()).or_default() += count as i64;
        let key = (rule.to_owned(), place.to_owned());
        self.details.entry(key).or_default().push(detail);
    }
}

pub fn run(arguments: &[&str]) -> Result<(), Failure> {
    let mut denied: Vec<String> = Vec::new();
    let mut files = Vec::new();
    let mut shrink = false;
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        match word {
            "--shrink" => shrink = true,
            "--deny" => denied.push(words.next().ok_or(USAGE)?.to_lowercase()),
            _ if word.starts_with('-') => return Err(USAGE.into()),
            file => files.push(file.to_owned()),
        }
    }
    let findings = match files.is_empty() {
        true => whole_tree(&denied)?,
        false => {
            let mut findings = Findings::default();
            for file in &files {
                denied_words(
                    file,
                    &read(&root().join(file))?,
                    &denied,
                    None,
                    &mut findings,
                );
            }
            findings
        }
    };
    let path = root().join(BASELINE);
    if shrink {
        let accepted = shrunk(&path, &findings.counts)?;
        std::fs::write(&path, text_of(&accepted))?;
    }
    judge(&findings, baseline(&path)?, files.is_empty())
}

fn whole_tree(denied: &[String]) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let tracked = tracked()?;
    let sources = sources(&tracked)?;
    let test_files = test_files(&sources);
    for file in &tracked {
        // What is not text has no words.
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            continue;
        };
        let source = sources.get(file);
        let in_tests = is_test_file(file) || test_files.contains(file);
        let tested = |line| in_tests || source.is_some_and(|source| source.is_test_line(line));
        denied_words(file, &text, denied, Some(&tested), &mut findings);
        if file.ends_with(".rs") || file.ends_with(".S") {
            length(file, &text, &mut findings);
        }
        if let Some(source) = source {
            rust(file, source, in_tests, &mut findings);
        }
    }
    arrows(&tracked, &mut findings)?;
    pass_docs(&mut findings)?;
    Ok(findings)
}

/// Paths of all tracked files that exist.
fn tracked() -> Result<Vec<String>, Failure> {
    let output = Command::new("git")
        .arg("ls-files")
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err("git ls-files failed: tidy reads the tracked files of a clone".into());
    }
    let paths = String::from_utf8(output.stdout)?;
    let exists = |path: &&str| root().join(path).is_file();
    Ok(paths.lines().filter(exists).map(str::to_owned).collect())
}

fn sources(tracked: &[String]) -> Result<BTreeMap<String, Source>, Failure> {
    let mut sources = BTreeMap::new();
    for file in tracked.iter().filter(|file| file.ends_with(".rs")) {
        let source = Source::parse(&read(&root().join(file))?);
        let source = source.map_err(|error| format!("{file}: {error}"))?;
        sources.insert(file.clone(), source);
    }
    Ok(sources)
}

/// Files of modules that are compiled for tests only.
fn test_files(sources: &BTreeMap<String, Source>) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (file, source) in sources {
        let stem = file.strip_suffix(".rs").unwrap_or(file);
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let inner = match name {
            "lib" | "main" | "mod" => folder,
            _ => stem,
        };
        for module in &source.test_modules {
            files.insert(format!("{inner}/{module}.rs"));
            files.insert(format!("{inner}/{module}/mod.rs"));
        }
    }
    files
}

fn is_test_file(file: &str) -> bool {
    file.split('/').any(|part| part == "tests")
}

/// Denied words of the command line count anywhere, machine paths outside tests. Places outside
/// tests are told apart only where the whole tree is read.
fn denied_words(
    file: &str,
    text: &str,
    denied: &[String],
    is_test: Option<&dyn Fn(usize) -> bool>,
    findings: &mut Findings,
) {
    for (line, content) in (1..).zip(text.lines()) {
        let lower = content.to_lowercase();
        let found = denied.iter().find(|word| lower.contains(*word));
        let path = || {
            let path = DENIED.iter().find(|path| content.contains(**path))?;
            (!is_test.is_some_and(|is_test| is_test(line))).then_some(*path)
        };
        if let Some(word) = found.map(String::as_str).or_else(path) {
            let detail = format!("{file}:{line}: holds `{word}`");
            findings.add("words", file, 1, detail);
        }
    }
}

fn length(file: &str, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    let says_why = || text.lines().any(|line| line.starts_with("//! Length:"));
    let limit = match () {
        () if DATA_TABLES.contains(&file) => usize::MAX,
        () if says_why() => FILE_LINES_MAX,
        () => FILE_LINES,
    };
    if lines > limit {
        let hint = match limit {
            FILE_LINES => "`//! Length:` has to say why above",
            _ => "at most",
        };
        let detail = format!("{file}: {lines} lines, {hint} {limit}");
        findings.add("file_lines", file, lines, detail);
    }
}

fn rust(file: &str, source: &Source, in_tests: bool, findings: &mut Findings) {
    for (name, lines) in &source.functions {
        if *lines > FUNCTION_LINES_MAX {
            let detail = format!("{file}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
            findings.add("function_lines", &format!("{file} {name}"), *lines, detail);
        }
    }
    if !file.starts_with(UNSAFE_FILES) {
        for line in &source.unsafes {
            let detail = format!("{file}:{line}: unsafe outside {UNSAFE_FILES}");
            findings.add("unsafe", file, 1, detail);
        }
    }
    let library =
        file.starts_with("crates/") && file.contains("/src/") && !file.starts_with("crates/ipub/");
    if library && !in_tests {
        for line in &source.prints {
            let detail = format!("{file}:{line}: only ipub prints");
            findings.add("prints", file, 1, detail);
        }
    }
}

/// Normal and build dependencies of every crate.
fn arrows(tracked: &[String], findings: &mut Findings) -> Result<(), Failure> {
    for file in tracked {
        let name = file
            .strip_prefix("crates/")
            .and_then(|at| at.strip_suffix("/Cargo.toml"));
        let Some(name) = name else { continue };
        let manifest: Table = toml::from_str(&read(&root().join(file))?)?;
        let tables = ["dependencies", "build-dependencies"].map(|key| manifest.get(key));
        let keys = tables.into_iter().flatten().filter_map(Value::as_table);
        for dependency in keys.flat_map(Table::keys) {
            if !is_allowed(name, dependency) {
                let arrow = format!("{name} -> {dependency}");
                let detail = format!("{file}: {arrow} is no arrow of docs/ARCHITECTURE.md");
                findings.add("arrows", &arrow, 1, detail);
            }
        }
    }
    Ok(())
}

fn is_allowed(from: &str, to: &str) -> bool {
    if let Some((_, owner)) = OUTSIDE.iter().find(|(outside, _)| *outside == to) {
        return from == *owner;
    }
    if !(to.starts_with("ipu-") || to.starts_with("ipub")) {
        return true;
    }
    match from {
        "ipub-base" | "ipu-package" => false,
        "ipu-target" | "ipu-isa" => to == "ipub-base",
        "ipu-ir" => FACTS.contains(&to) && to != "ipu-ir",
        "ipub-store" => to == "ipub-base",
        "ipub-remote" | "ipub-engine" => ENGINE.contains(&to) || to == "ipub-remote",
        "ipu-report" => FACTS.contains(&to),
        "ipub-stages" => to != "ipub",
        "ipub" => true,
        // The simulator is given a package and nothing of how it came to be.
        "ipu-sim" if to == "ipu-ir" => false,
        pass if PASSES.contains(&pass) => FACTS.contains(&to) || PASS_ARROWS.contains(&(pass, to)),
        // A crate that the table of layers does not know.
        _ => false,
    }
}

/// Each pass says what goes in, what comes out, what holds, and what it leaves to others.
fn pass_docs(findings: &mut Findings) -> Result<(), Failure> {
    for pass in PASSES {
        let file = format!("crates/{pass}/src/lib.rs");
        let text = read(&root().join(&file))?;
        let doc: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        for part in ["Input:", "Output:", "Invariants:", "Not here:"] {
            if !doc.contains(part) {
                let detail = format!("{file}: the module doc has no `{part}`");
                findings.add("pass_docs", &file, 1, detail);
            }
        }
    }
    Ok(())
}

/// What is accepted; nothing, if there is no baseline.
fn baseline(path: &Path) -> Result<Counts, Failure> {
    if !path.exists() {
        return Ok(Counts::new());
    }
    Ok(toml::from_str(&read(path)?)?)
}

/// The baseline without what is repaired. If there is none, all that was found.
fn shrunk(path: &Path, found: &Counts) -> Result<Counts, Failure> {
    if !path.exists() {
        return Ok(found.clone());
    }
    let mut accepted = baseline(path)?;
    for (rule, places) in &mut accepted {
        places.retain(
            |place, count| match found.get(rule).and_then(|at| at.get(place)) {
                Some(now) => {
                    *count = (*count).min(*now);
                    true
                }
                None => false,
            },
        );
    }
    accepted.retain(|_, places| !places.is_empty());
    Ok(accepted)
}

fn text_of(accepted: &Counts) -> String {
    let mut text = String::from(
        "# What the tree owes to `cargo xtask tidy`: rule, place, count. It may only shrink:\n\
         # repair a line, then run `cargo xtask tidy --shrink`.\n",
    );
    for (rule, places) in accepted {
        text += &format!("\n[{rule}]\n");
        for (place, count) in places {
            text += &format!("\"{place}\" = {count}\n");
        }
    }
    text
}

fn judge(findings: &Findings, accepted: Counts, whole: bool) -> Result<(), Failure> {
    let count = |counts: &Counts, rule: &str, place: &str| -> i64 {
        let places = counts.get(rule);
        places
            .and_then(|places| places.get(place))
            .copied()
            .unwrap_or(0)
    };
    let mut new = Vec::new();
    for ((rule, place), details) in &findings.details {
        if count(&findings.counts, rule, place) > count(&accepted, rule, place) {
            new.extend(details.iter().map(|detail| format!("{rule}: {detail}")));
        }
    }
    let mut owed = 0;
    for (rule, places) in accepted.iter().filter(|_| whole) {
        for (place, &accepted) in places {
            owed += 1;
            let now = count(&findings.counts, rule, place);
            if now < accepted {
                new.push(format!(
                    "{rule}: {place}: {accepted} is now {now}: tidy --shrink"
                ));
            }
        }
    }
    match new.is_empty() {
        true => {
            println!("tidy; {owed} places in {BASELINE}");
            Ok(())
        }
        false => Err(format!("{}\n{} findings", new.join("\n"), new.len()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        if let Err(failure) = run(&[]) {
            panic!("{failure:?}");
        }
    }

    #[test]
    fn arrows_point_down() {
        for (from, to) in [
            ("ipu-ir", "ipu-package"),
            ("ipu-place", "ipu-exchange"),
            ("ipub-store", "rusqlite"),
            ("ipub-stages", "ipu-sim"),
            ("ipu-plan", "toml"),
        ] {
            assert!(is_allowed(from, to), "{from} -> {to}");
        }
        for (from, to) in [
            ("ipu-package", "ipub-base"),
            ("ipu-plan", "ipu-place"),
            ("ipu-sim", "ipu-ir"),
            ("ipub-engine", "ipu-ir"),
            ("ipub-engine", "rusqlite"),
            ("ipub-stages", "ipub"),
            ("ipu-new", "ipub-base"),
        ] {
            assert!(!is_allowed(from, to), "{from} -> {to}");
        }
    }

    #[test]
    fn the_baseline_only_shrinks() {
        let mut findings = Findings::default();
        findings.add("unsafe", "a.rs", 2, "a.rs:1".to_owned());
        findings.add("unsafe", "b.rs", 1, "b.rs:1".to_owned());
        let counts = |text: &str| -> Counts { toml::from_str(text).unwrap() };
        let exact = counts("[unsafe]\n\"a.rs\" = 2\n\"b.rs\" = 1");
        assert!(judge(&findings, exact, true).is_ok());
        let small = counts("[unsafe]\n\"a.rs\" = 1\n\"b.rs\" = 1");
        assert!(judge(&findings, small, true).is_err());
        let large = counts("[unsafe]\n\"a.rs\" = 3\n\"b.rs\" = 1\n\"c.rs\" = 1");
        assert!(judge(&findings, large, true).is_err());
        assert_eq!(
            toml::from_str::<Counts>(&text_of(&findings.counts)).unwrap(),
            findings.counts
        );
    }

    #[test]
    fn machine_paths_are_free_in_tests() {
        let mut findings = Findings::default();
        let text = format!("in {}\nsay Hello\nand {}\n", DENIED[0], DENIED[1]);
        let is_test = |line| line == 3;
        let words = ["hello".to_owned()];
        denied_words("a.md", &text, &words, Some(&is_test), &mut findings);
        assert_eq!(findings.counts["words"]["a.md"], 2);
    }
}
