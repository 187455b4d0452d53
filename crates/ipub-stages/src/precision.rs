//! The parameters `precision.*`, `attention.*`, `map.*`: which operands are F143.

use ipub_engine::{Params, StageFailure, Value};
use serde::{Deserialize, Serialize};

/// Number formats by operand; a number is the scale exponent of F143, none is F16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Formats {
    pub embed: Option<i8>,
    pub dense: Option<i8>,
    pub attention_qk: Option<i8>,
    pub attention_pv: Option<i8>,
    pub map_qk: Option<i8>,
    pub map_pv: Option<i8>,
}

/// Scale exponents that a product of two operands can have.
const SCALES: std::ops::RangeInclusive<i64> = -16..=15;

impl Formats {
    pub fn read(params: &Params) -> Result<Self, StageFailure> {
        let product = |key: &str, scale: &str| match params.text(key)? {
            "f143" => read_scale(params, scale, true),
            _ => Ok(None),
        };
        let optional = |key: &str| read_scale(params, key, false);
        Ok(Self {
            embed: product("precision.embed", "precision.embed_scale")?,
            dense: product("precision.dense", "precision.dense_scale")?,
            attention_qk: optional("attention.qk_fp8_scale")?,
            attention_pv: optional("attention.pv_fp8_scale")?,
            map_qk: optional("map.qk_fp8_scale")?,
            map_pv: optional("map.pv_fp8_scale")?,
        })
    }
}

fn read_scale(params: &Params, key: &str, required: bool) -> Result<Option<i8>, StageFailure> {
    let value = match params.get(key) {
        Some(Value::Text(text)) if text == "f16" && !required => return Ok(None),
        None if !required => return Ok(None),
        _ => params.int(key)?,
    };
    if !SCALES.contains(&value) {
        let (first, last) = (SCALES.start(), SCALES.end());
        let message = format!("`{key}` is {value}: it must be between {first} and {last}");
        return Err(StageFailure::usage(message));
    }
    Ok(Some(value as i8))
}
