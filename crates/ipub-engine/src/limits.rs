//! The limits of the store, as `[cache]` in workspace.toml and the command line give them.

use std::time::Duration;

use ipub_base::Diagnostic;
use ipub_store::Limits;

use crate::document::{Node, Table};
use crate::value::Value;

const GIB: u64 = 1 << 30;
const DAY_SECONDS: u64 = 24 * 3600;

/// What holds where nothing is said.
pub(crate) const DEFAULT: Limits = Limits {
    bytes_max: Some(20 * GIB),
    age_max: Some(Duration::from_secs(30 * DAY_SECONDS)),
};

/// Takes the limits out of the table `[cache]`.
pub(crate) fn read(cache: &mut Table, limits: &mut Limits) -> Result<(), Diagnostic> {
    if let Some(node) = cache.take("max_bytes") {
        let place = node.place.clone();
        let bytes = match node.item {
            crate::document::Item::Leaf(Value::Text(text)) => {
                bytes(&text).map_err(|why| place.error(format!("`max_bytes`: {why}")))?
            }
            _ => count(node, "max_bytes")?,
        };
        limits.bytes_max = (bytes > 0).then_some(bytes);
    }
    if let Some(node) = cache.take("max_age_days") {
        let days = count(node, "max_age_days")?;
        limits.age_max = age(days);
    }
    Ok(())
}

fn count(node: Node, name: &str) -> Result<u64, Diagnostic> {
    let place = node.place.clone();
    let value = match node.into_value(name)? {
        Value::Int(value) => u64::try_from(value).ok(),
        _ => None,
    };
    value.ok_or_else(|| place.error(format!("`{name}` is not a whole number from 0")))
}

/// The age limit of so many days; 0 is none.
pub fn age(days: u64) -> Option<Duration> {
    (days > 0).then(|| Duration::from_secs(days.saturating_mul(DAY_SECONDS)))
}

/// A size such as `500 MB`, `20 GiB` or a plain number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", GIB),
        ("TiB", 1 << 40),
    ];
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit.trim());
    let size = factor
        .zip(number.parse::<u64>().ok())
        .and_then(|((_, factor), number)| number.checked_mul(*factor));
    size.ok_or_else(|| format!("`{text}` is not a size such as 500 MB or 20 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("20 GiB"), Ok(20 << 30));
        assert_eq!(bytes("7kB"), Ok(7000));
        assert_eq!(bytes("0"), Ok(0));
        for wrong in ["", "GiB", "-1", "1.5 GB", "1 gib", "99999999 TiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
