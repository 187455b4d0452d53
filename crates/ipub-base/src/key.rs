//! The digest law: one traversal writes a key's digest and the lines that explain it.

use serde::{Deserialize, Serialize};

use crate::{Digest, Hasher};

/// One line of a key: a dotted path and the value found there, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyLine {
    /// Where the value stands, such as `input.graph` or `param.precision.map.qk`.
    pub path: String,
    /// The value, as text.
    pub value: String,
}

/// A finished key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The identity.
    pub digest: Digest,
    /// What went into it, in the order written. Empty for `KeyWriter::digest_only`.
    pub lines: Vec<KeyLine>,
}

/// A value that can write itself into a key.
pub trait Keyed {
    /// Writes every part of `self` that identifies it.
    fn write_key(&self, writer: &mut KeyWriter);
}

/// Writes keys. Each value is framed by its path, its type and its length, so that two different
/// sequences of values never give the same bytes.
pub struct KeyWriter {
    hasher: Hasher,
    path: String,
    lines: Option<Vec<KeyLine>>,
}

impl KeyWriter {
    /// A writer for keys of one `domain`; equal values in two domains give different keys.
    pub fn new(domain: &str) -> Self {
        let mut writer = Self::digest_only(domain);
        writer.lines = Some(Vec::new());
        writer
    }

    /// The same digests as `new`, without explanation lines, for keys made in great number.
    pub fn digest_only(domain: &str) -> Self {
        let mut writer = Self {
            hasher: Hasher::new(),
            path: String::new(),
            lines: None,
        };
        writer.frame(b'D', domain.as_bytes());
        writer
    }

    /// Everything that `body` writes gets `name.` before its path.
    pub fn scope(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.push(name);
        body(self);
        self.path.truncate(length);
    }

    /// A nested value under `name`.
    pub fn value(&mut self, name: &str, value: &(impl Keyed + ?Sized)) {
        self.scope(name, |writer| value.write_key(writer));
    }

    /// A list: its length, then each item under its index.
    pub fn list<T>(&mut self, name: &str, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.scope(name, |writer| {
            writer.u64("len", items.len() as u64);
            for (index, value) in items.iter().enumerate() {
                writer.scope(&index.to_string(), |writer| item(writer, value));
            }
        });
    }

    /// A text.
    pub fn text(&mut self, name: &str, value: &str) {
        self.leaf(name, b't', value.as_bytes(), || value.to_owned());
    }

    /// An unsigned number.
    pub fn u64(&mut self, name: &str, value: u64) {
        self.leaf(name, b'u', &value.to_le_bytes(), || value.to_string());
    }

    /// A signed number.
    pub fn i64(&mut self, name: &str, value: i64) {
        self.leaf(name, b'i', &value.to_le_bytes(), || value.to_string());
    }

    /// A floating-point number, by its bits; every NaN is one value.
    pub fn f64(&mut self, name: &str, value: f64) {
        let value = if value.is_nan() { f64::NAN } else { value };
        let bits = if value.is_nan() {
            0x7ff8_0000_0000_0000
        } else {
            value.to_bits()
        };
        self.leaf(name, b'f', &bits.to_le_bytes(), || format!("{value:?}"));
    }

    /// A truth value.
    pub fn bool(&mut self, name: &str, value: bool) {
        self.leaf(name, b'b', &[u8::from(value)], || value.to_string());
    }

    /// Content named by its digest.
    pub fn digest(&mut self, name: &str, value: Digest) {
        self.leaf(name, b'd', value.as_bytes(), || value.hex());
    }

    /// Raw bytes; explained by their length and digest.
    pub fn bytes(&mut self, name: &str, value: &[u8]) {
        self.leaf(name, b'y', value, || {
            format!("{} bytes {}", value.len(), Digest::of(value))
        });
    }

    /// The absence of a value that could be there.
    pub fn absent(&mut self, name: &str) {
        self.leaf(name, b'n', &[], || "absent".to_owned());
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key {
            digest: self.hasher.finish(),
            lines: self.lines.unwrap_or_default(),
        }
    }

    fn push(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn leaf(&mut self, name: &str, tag: u8, bytes: &[u8], text: impl FnOnce() -> String) {
        let length = self.path.len();
        self.push(name);
        let path = std::mem::take(&mut self.path);
        self.frame(b'p', path.as_bytes());
        self.frame(tag, bytes);
        if let Some(lines) = &mut self.lines {
            lines.push(KeyLine {
                path: path.clone(),
                value: text(),
            });
        }
        self.path = path;
        self.path.truncate(length);
    }

    fn frame(&mut self, tag: u8, bytes: &[u8]) {
        self.hasher
            .update(&[tag])
            .update(&(bytes.len() as u64).to_le_bytes())
            .update(bytes);
    }
}

impl Key {
    /// The lines that differ: path, value in `old`, value in `self`; `None` where a side has no
    /// such line. Sorted by path.
    pub fn changes_since(&self, old: &[KeyLine]) -> Vec<(String, Option<String>, Option<String>)> {
        let index = |lines: &[KeyLine]| {
            let pairs = lines
                .iter()
                .map(|line| (line.path.clone(), line.value.clone()));
            pairs.collect::<std::collections::BTreeMap<_, _>>()
        };
        let (before, after) = (index(old), index(&self.lines));
        let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let all = paths.into_iter().map(|path| {
            (
                path.clone(),
                before.get(path).cloned(),
                after.get(path).cloned(),
            )
        });
        all.filter(|(_, old, new)| old != new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(build: impl Fn(&mut KeyWriter)) -> Key {
        let mut full = KeyWriter::new("test");
        build(&mut full);
        let mut quick = KeyWriter::digest_only("test");
        build(&mut quick);
        let full = full.finish();
        assert_eq!(full.digest, quick.finish().digest);
        full
    }

    #[test]
    fn one_traversal_gives_digest_and_lines() {
        let key = key(|w| {
            w.text("rule", "plan");
            w.scope("param", |w| {
                w.list("grid", &[8u64, 23], |w, v| w.u64("n", *v))
            });
        });
        let lines: Vec<_> = key
            .lines
            .iter()
            .map(|l| format!("{}={}", l.path, l.value))
            .collect();
        assert_eq!(
            lines,
            [
                "rule=plan",
                "param.grid.len=2",
                "param.grid.0.n=8",
                "param.grid.1.n=23"
            ]
        );
    }

    #[test]
    fn framing_keeps_neighbours_apart() {
        let one = key(|w| {
            w.text("a", "bc");
            w.text("d", "");
        });
        let two = key(|w| {
            w.text("a", "b");
            w.text("d", "c");
        });
        assert_ne!(one.digest, two.digest);
        assert_ne!(key(|w| w.u64("a", 1)).digest, key(|w| w.i64("a", 1)).digest);
        let other = KeyWriter::new("other").finish().digest;
        assert_ne!(key(|_| ()).digest, other);
    }

    #[test]
    fn changes_name_the_line() {
        let old = key(|w| {
            w.u64("limit", 80);
            w.u64("gone", 1);
        });
        let new = key(|w| {
            w.u64("limit", 96);
            w.u64("came", 2);
        });
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            new.changes_since(&old.lines),
            [
                ("came".to_owned(), None, some("2")),
                ("gone".to_owned(), some("1"), None),
                ("limit".to_owned(), some("80"), some("96")),
            ]
        );
    }
}
