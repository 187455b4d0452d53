//! Labels: `//models:siglip-tiny` names the target `siglip-tiny` of `models/BUILD.toml`.

use std::fmt;
use std::str::FromStr;

use ipub_base::Diagnostic;
use serde::{Serialize, Serializer};

/// The name of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Folder of the BUILD.toml, relative to the workspace, with `/`; empty for the root.
    pub package: String,
    /// The target's name in it.
    pub name: String,
}

impl FromStr for Label {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self, Diagnostic> {
        let refuse = |why: &str| {
            Diagnostic::usage(format!("`{text}` is not a label: {why}"))
                .help("a label looks like //models:siglip-tiny")
        };
        let rest = text
            .strip_prefix("//")
            .ok_or_else(|| refuse("it does not begin with //"))?;
        let (package, name) = rest
            .split_once(':')
            .ok_or_else(|| refuse("it has no `:name`"))?;
        let is_word = |word: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
            !word.is_empty() && !word.starts_with('.') && word.chars().all(plain)
        };
        if !package.is_empty() && !package.split('/').all(is_word) {
            return Err(refuse("its package is not a relative path of plain names"));
        }
        if !is_word(name) {
            return Err(refuse("its name may hold letters, digits and `-_.+` only"));
        }
        Ok(Self {
            package: package.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "//{}:{}", self.package, self.name)
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The three names nearest to `wanted`, nearest first; none that shares too little with it.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const COUNT_MAX: usize = 3;
    let mut scored: Vec<_> = names
        .into_iter()
        .map(|name| {
            let apart = distance(wanted, name);
            // One that begins or goes on alike is near, however long.
            let alike = !wanted.is_empty() && (name.contains(wanted) || wanted.contains(name));
            (if alike { apart.min(1) } else { apart }, name)
        })
        .filter(|(apart, name)| *apart <= 1 + wanted.len().max(name.len()) / 3)
        .collect();
    scored.sort();
    scored.dedup();
    scored
        .into_iter()
        .take(COUNT_MAX)
        .map(|(_, name)| name)
        .collect()
}

/// `did you mean ...?` for `wanted`, or the given other help.
pub(crate) fn suggestion<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    match nearest(wanted, names).as_slice() {
        [] => otherwise.to_owned(),
        near => format!("did you mean {}?", quoted_list(near)),
    }
}

/// `a`, `b` or `c`.
pub(crate) fn quoted_list(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => format!("`{one}`"),
        [head @ .., last] => {
            let head: Vec<_> = head.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", head.join(", "))
        }
    }
}

/// Edit distance: insertions, deletions, substitutions.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_print_as_they_are_parsed() {
        for text in ["//models:siglip27-bs2", "//:root", "//a/b-c:d_e.f"] {
            assert_eq!(text.parse::<Label>().unwrap().to_string(), text);
        }
        for text in [
            "models:x",
            "//models",
            "//models:",
            "//a/../b:c",
            "///a:b",
            "//a:b c",
            "//a:",
        ] {
            assert!(text.parse::<Label>().is_err(), "{text}");
        }
    }

    #[test]
    fn nearest_names() {
        let names = ["siglip-tiny", "siglip-tiny-f16", "mlp-b1", "siglip27-bs1"];
        assert_eq!(nearest("siglip-tinny", names)[0], "siglip-tiny");
        assert_eq!(nearest("mlp", names), ["mlp-b1"]);
        assert!(nearest("zzz", names).is_empty());
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
