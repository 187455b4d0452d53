//! Source files: patterns and the paths that attributes name.

use std::path::{Path, PathBuf};

use ipub_base::Diagnostic;

use crate::target::Target;
use crate::value::Value;

/// Every file below `root` that matches one of `patterns`: relative path with `/`, sorted, once.
/// Hidden files and folders never match.
pub(crate) fn matching(root: &Path, patterns: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for pattern in patterns {
        let segments: Vec<_> = pattern.split('/').collect();
        let plain = segments
            .iter()
            .take_while(|segment| !segment.contains('*'))
            .count();
        // The last segment names a file even where it holds no star.
        let plain = plain.min(segments.len() - 1);
        walk(
            root,
            &segments[..plain].join("/"),
            &segments[plain..],
            &mut found,
        );
    }
    found.sort();
    found.dedup();
    found
}

fn walk(root: &Path, folder: &str, pattern: &[&str], found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        let is_dir = match entry.file_type() {
            Ok(file_type) if !file_type.is_symlink() => file_type.is_dir(),
            _ => entry.path().is_dir(),
        };
        match pattern {
            ["**"] if is_dir => walk(root, &path, pattern, found),
            ["**"] => found.push(path),
            // `**` stands for any number of folders, none included.
            ["**", rest @ ..] => {
                if is_dir {
                    walk(root, &path, pattern, found);
                }
                step(root, &path, &name, is_dir, rest, found);
            }
            _ => step(root, &path, &name, is_dir, pattern, found),
        }
    }
}

fn step(
    root: &Path,
    path: &str,
    name: &str,
    is_dir: bool,
    pattern: &[&str],
    found: &mut Vec<String>,
) {
    match pattern {
        [last] if !is_dir && segment_matches(last, name) => found.push(path.to_owned()),
        [first, rest @ ..] if is_dir && !rest.is_empty() && segment_matches(first, name) => {
            walk(root, path, rest, found);
        }
        _ => {}
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any characters.
pub(crate) fn segment_matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(head) else {
        return false;
    };
    (0..=rest.len()).any(|at| rest.is_char_boundary(at) && segment_matches(tail, &rest[at..]))
}

/// Whether the relative path `path` matches `pattern`, as `matching` does.
pub(crate) fn path_matches(pattern: &str, path: &str) -> bool {
    fn go(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern, path) {
            (["**"], [_, ..]) | ([], []) => true,
            (["**", rest @ ..], [_, below @ ..]) => go(rest, path) || go(pattern, below),
            ([first, rest @ ..], [name, below @ ..]) => {
                segment_matches(first, name) && go(rest, below)
            }
            _ => false,
        }
    }
    let path: Vec<&str> = path.split('/').collect();
    let hidden = path.iter().any(|name| name.starts_with('.'));
    !hidden && go(&pattern.split('/').collect::<Vec<_>>(), &path)
}

/// The files that the attribute `key` of `target` names; `None` if it is not set.
pub(crate) fn of_attribute(
    root: &Path,
    target: &Target,
    key: &str,
) -> Result<Option<Vec<PathBuf>>, Diagnostic> {
    let Some(attribute) = target.attributes.get(key) else {
        return Ok(None);
    };
    let texts = match &attribute.value {
        Value::List(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    let mut paths = Vec::new();
    for text in texts {
        let Value::Text(text) = text else {
            return Err(at(
                target,
                key,
                format!("attribute `{key}` names no file: {text}"),
            ));
        };
        let path = match text.strip_prefix("//") {
            Some(rooted) => root.join(rooted),
            None => root.join(&target.label.package).join(text),
        };
        paths.push(path);
    }
    Ok(Some(paths))
}

/// An error about an attribute, at the place where it was given.
pub(crate) fn at(target: &Target, key: &str, message: String) -> Diagnostic {
    let location = target
        .attributes
        .get(key)
        .and_then(|attribute| attribute.location());
    let diagnostic = Diagnostic::usage(message);
    match location {
        Some(location) => diagnostic.at(location),
        None => diagnostic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "k/gemm/a.S",
            "k/gemm/kernel.toml",
            "k/b.S",
            "k/.hidden/c.S",
            "other/d.S",
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let list = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            matching(dir.path(), &patterns)
        };
        assert_eq!(
            list(&["k/**"]),
            ["k/b.S", "k/gemm/a.S", "k/gemm/kernel.toml"]
        );
        assert_eq!(list(&["k/**/*.S"]), ["k/b.S", "k/gemm/a.S"]);
        assert_eq!(list(&["k/*/*.S", "**/a.S"]), ["k/gemm/a.S"]);
        assert_eq!(list(&["k/b.S"]), ["k/b.S"]);
        assert!(list(&["absent/**"]).is_empty());
        assert!(path_matches("k/**/*.S", "k/b.S") && path_matches("k/**", "k/gemm/a.S"));
        assert!(!path_matches("k/*", "k/gemm/a.S") && !path_matches("k/**", "k/.hidden/c.S"));
    }
}
