//! What changes a fingerprint and what does not.

#[path = "../build/tokens.rs"]
mod tokens;

use ipub_stages::fingerprint::{CLOSURES, FINGERPRINTS, fingerprint};
use tokens::scan;

const SOURCE: &str = r##"//! Module.
use crate::codec::Code;
use super::{words, lines as rows};
use ipu_plan::Plan;

/// Adds.
pub fn add(a: u32, b: u32) -> u32 {
    a + b // sum
}

const TEXT: &str = "// no comment";
const BYTES: &[u8] = include_bytes!("table.bin");

#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(super::add(1, 2), 3);
    }
}
"##;

fn digest(text: &str) -> String {
    scan(text).unwrap().digest
}

fn edited(old: &str, new: &str) -> String {
    assert!(SOURCE.contains(old));
    digest(&SOURCE.replacen(old, new, 1))
}

#[test]
fn comments_docs_tests_and_layout_change_nothing() {
    let same = digest(SOURCE);
    assert_eq!(edited("// sum", "/* the /* nested */ sum */"), same);
    assert_eq!(
        edited("//! Module.", "//! Another word.\n#![doc = \"more\"]"),
        same
    );
    assert_eq!(edited("/// Adds.", "/** Adds\n two numbers. */"), same);
    assert_eq!(edited("    a + b", "\n\n  a\n+ b"), same);
    assert_eq!(edited("add(1, 2), 3", "add(2, 2), 4"), same);
    assert_eq!(
        edited(
            "mod tests {",
            "#[allow(unused)]\n    pub(crate) mod tests {"
        ),
        same
    );
    assert_eq!(
        edited(
            "#[cfg(test)]\nmod",
            "#[cfg(test)]\nuse std::{fmt, io};\n#[cfg(test)]\nmod"
        ),
        same
    );
    let more = "#[cfg(test)]\nconst N: [u8; 2] = { [1, 2] };\n\
                #[cfg(test)]\nconst fn f() {}\n#[test]\nfn t() {}\n";
    assert_eq!(
        edited("#[cfg(test)]\nmod", &format!("{more}#[cfg(test)]\nmod")),
        same
    );
}

#[test]
fn code_changes_it() {
    let same = digest(SOURCE);
    let edits = [
        ("a + b", "a - b"),
        ("a: u32, b: u32", "b: u32, a: u32"),
        ("\"// no comment\"", "\"// a comment\""),
        ("table.bin", "other.bin"),
        (
            "#[cfg(test)]\nmod tests",
            "#[cfg(any(test, debug_assertions))]\nmod tests",
        ),
        ("#[cfg(test)]\nmod tests", "#[cfg(not(test))]\nmod tests"),
        ("/// Adds.", "#[inline]"),
        ("const TEXT", "pub const TEXT"),
    ];
    for (old, new) in edits {
        assert_ne!(edited(old, new), same, "{old} to {new}");
    }
    // What follows a test item stays in, even where an attribute stands on no item.
    let field = |name: &str| {
        digest(&format!(
            "struct S {{ #[cfg(test)] a: u8, {name}: u8 }} fn f() {{}}"
        ))
    };
    assert_ne!(field("b"), field("c"));
    assert_ne!(
        digest("#[cfg(test)] use a; fn f() {}"),
        digest("#[cfg(test)] use a; fn g() {}")
    );
    assert_ne!(digest("f(a && b)"), digest("f(a & & b)"));
}

#[test]
fn names_and_included_files_are_found() {
    let file = scan(SOURCE).unwrap();
    assert_eq!(file.includes, ["table.bin"]);
    let names: Vec<_> = file.local_names.iter().map(String::as_str).collect();
    for name in ["codec", "words", "lines"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(file.crate_names.iter().collect::<Vec<_>>(), ["ipu_plan"]);
    assert_eq!(
        scan("#[cfg(test)]\nmod cases;").unwrap().test_modules,
        ["cases"]
    );
}

#[test]
fn closures_stay_small() {
    let closure = |stage: &str| {
        let found = CLOSURES.iter().find(|(name, _)| *name == stage);
        found.expect("the workspace has sources").1
    };
    let apart = [
        (
            "lower",
            &[
                "ipu-plan",
                "ipu-place",
                "ipu-exchange",
                "ipu-emit",
                "ipu-sim",
                "ipu-isa",
            ][..],
        ),
        (
            "weights",
            &[
                "ipu-plan",
                "ipu-place",
                "ipu-exchange",
                "ipu-emit",
                "ipu-sim",
            ],
        ),
        (
            "fixture",
            &[
                "ipu-plan",
                "ipu-place",
                "ipu-exchange",
                "ipu-emit",
                "ipu-sim",
            ],
        ),
        (
            "reference",
            &[
                "ipu-plan",
                "ipu-place",
                "ipu-exchange",
                "ipu-emit",
                "ipu-sim",
            ],
        ),
        (
            "verify",
            &["ipu-plan", "ipu-place", "ipu-exchange", "ipu-emit"],
        ),
        ("plan", &["ipu-model", "ipu-place"]),
        ("place", &["ipu-model", "ipu-plan"]),
        ("kernel", &["ipu-model", "ipu-plan", "ipu-place"]),
        ("package", &["ipu-model", "ipu-plan", "ipu-place"]),
        ("run", &["ipu-plan", "ipu-place", "ipu-emit"]),
        ("time", &["ipu-plan", "ipu-place", "ipu-emit"]),
        ("metrics", &["ipu-plan", "ipu-place", "ipu-emit", "ipu-sim"]),
    ];
    assert_eq!(apart.len(), FINGERPRINTS.len());
    for (stage, others) in apart {
        for other in others {
            let closure = closure(stage);
            assert!(
                !closure.contains(other),
                "{stage} holds {other}: {closure:?}"
            );
        }
    }
}

#[test]
fn every_stage_has_its_own_fingerprint() {
    let mut all: Vec<_> = FINGERPRINTS
        .iter()
        .map(|(stage, _)| fingerprint(stage))
        .collect();
    all.push(fingerprint("unheard-of"));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), FINGERPRINTS.len() + 1);
}
