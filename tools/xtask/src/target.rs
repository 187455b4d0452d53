//! A target of `models/BUILD.toml` as the passes take it, with the defaults of its kind.

use std::collections::BTreeMap;

use ipu_ir::program::Reservations;
use ipu_model::ModelSpec;
use ipu_place::SchedulePolicy;
use ipu_plan::{AttentionFormats, Format, PlannerPolicy, Precision};
use toml::{Table, Value};

use crate::{Failure, read, root};

/// Attributes by dotted key.
type Attributes = BTreeMap<String, Value>;

/// Inputs and parameters of the passes. Overrides of single decisions are not among them.
pub struct Target {
    pub spec: ModelSpec,
    pub batch: u32,
    pub precision: Precision,
    pub planner: PlannerPolicy,
    pub reservations: Reservations,
    pub schedule: SchedulePolicy,
}

impl Target {
    pub fn find(name: &str) -> Result<Target, Failure> {
        let file: Table = toml::from_str(&read(&root().join("models/BUILD.toml"))?)?;
        let targets = tables(&file, "target");
        let mut attributes = defaults()?;
        extend(&mut attributes, &targets, name, targets.len())?;
        let spec = text(&attributes, "spec")?;
        let path = root().join("models").join(spec);
        Ok(Target {
            spec: ModelSpec::parse(&read(&path)?)?,
            batch: number(&attributes, "batch")?,
            precision: Precision {
                embed: dense(&attributes, "precision.embed")?,
                dense: dense(&attributes, "precision.dense")?,
                attention: attention(&attributes, "attention")?,
                map: attention(&attributes, "map")?,
            },
            planner: PlannerPolicy {
                tiles: number(&attributes, "planner.tiles")?,
                operand_limits: get(&attributes, "planner.operand_limits")?
                    .clone()
                    .try_into()?,
                search_steps: number(&attributes, "planner.search_steps")?,
            },
            reservations: Reservations {
                support_bytes: number(&attributes, "reserve.support_bytes")?,
                row_bytes: number(&attributes, "reserve.row_bytes")?,
            },
            schedule: SchedulePolicy {
                chunk_words: number(&attributes, "schedule.chunk_words")?,
                pairing: get(&attributes, "schedule.pairing")?.clone().try_into()?,
            },
        })
    }
}

fn tables<'a>(file: &'a Table, key: &str) -> Vec<&'a Table> {
    let array = file.get(key).and_then(Value::as_array);
    array
        .into_iter()
        .flatten()
        .filter_map(Value::as_table)
        .collect()
}

/// Attributes of the kind that have a default.
fn defaults() -> Result<Attributes, Failure> {
    let file: Table = toml::from_str(&read(&root().join("rules/kind-vit-package.toml"))?)?;
    let pair = |table: &&Table| {
        let key = table.get("key")?.as_str()?.to_owned();
        Some((key, table.get("default")?.clone()))
    };
    Ok(tables(&file, "attribute").iter().filter_map(pair).collect())
}

/// Attributes of a target over those of the target it extends.
fn extend(
    attributes: &mut Attributes,
    targets: &[&Table],
    name: &str,
    depth: usize,
) -> Result<(), Failure> {
    let is_it = |table: &&&Table| table.get("name").and_then(Value::as_str) == Some(name);
    let target = targets.iter().find(is_it).filter(|_| depth > 0);
    let target = target.ok_or_else(|| format!("models/BUILD.toml has no usable target {name}"))?;
    if let Some(parent) = target.get("extends").and_then(Value::as_str) {
        extend(attributes, targets, parent, depth - 1)?;
    }
    flatten("", target, attributes);
    Ok(())
}

fn flatten(prefix: &str, table: &Table, attributes: &mut Attributes) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => flatten(&format!("{key}."), inner, attributes),
            value => {
                attributes.insert(key, value.clone());
            }
        }
    }
}

fn get<'a>(attributes: &'a Attributes, key: &str) -> Result<&'a Value, Failure> {
    attributes
        .get(key)
        .ok_or_else(|| format!("the attribute {key} is missing").into())
}

fn text<'a>(attributes: &'a Attributes, key: &str) -> Result<&'a str, Failure> {
    let value = get(attributes, key)?;
    value
        .as_str()
        .ok_or_else(|| format!("{key} is not a text").into())
}

fn number(attributes: &Attributes, key: &str) -> Result<u32, Failure> {
    let value = get(attributes, key)?;
    value
        .clone()
        .try_into()
        .map_err(|error| format!("{key}: {error}").into())
}

fn dense(attributes: &Attributes, key: &str) -> Result<Format, Failure> {
    match text(attributes, key)? {
        "f16" => Ok(Format::F16),
        _ => scale(get(attributes, &format!("{key}_scale"))?),
    }
}

fn attention(attributes: &Attributes, of: &str) -> Result<AttentionFormats, Failure> {
    let format = |key: &str| match attributes.get(&format!("{of}.{key}_fp8_scale")) {
        None | Some(Value::String(_)) => Ok(Format::F16),
        Some(value) => scale(value),
    };
    Ok(AttentionFormats {
        qk: format("qk")?,
        pv: format("pv")?,
    })
}

fn scale(value: &Value) -> Result<Format, Failure> {
    Ok(Format::F143(value.clone().try_into()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_with_what_they_extend() {
        let tiny = Target::find("siglip-tiny-f16-bs2").unwrap();
        assert_eq!((tiny.batch, tiny.planner.tiles), (2, 64));
        assert_eq!(tiny.precision.dense, Format::F16);
        let best = Target::find("siglip27-bs2-best").unwrap();
        assert_eq!((best.batch, best.planner.tiles), (2, 1472));
        assert_eq!(best.precision.attention.qk, Format::F143(-4));
        assert_eq!(best.precision.map.qk, Format::F16);
        assert!(Target::find("siglip").is_err());
    }
}
