//! Precision policy: which operands are F143, at which scale.
//!
//! Input: attributes of a target. Output: the number format of each product's operands.
//! Not here: grids, layouts, cast sites.

use ipu_package::Dtype;
use serde::{Deserialize, Serialize};

/// Number format of both operands of one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    F16,
    /// F143 with a tensor scale exponent: range +/- 240 * 2^scale.
    F143(i8),
}

impl Format {
    pub const fn dtype(self) -> Dtype {
        match self {
            Format::F16 => Dtype::F16,
            Format::F143(_) => Dtype::F143,
        }
    }

    /// Elements of the inner group.
    pub const fn group(self) -> u32 {
        self.dtype().inner_group()
    }

    pub const fn scale(self) -> i8 {
        match self {
            Format::F16 => 0,
            Format::F143(scale) => scale,
        }
    }

    pub const fn is_f143(self) -> bool {
        matches!(self, Format::F143(_))
    }
}

/// Formats of the two products of an attention operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionFormats {
    pub qk: Format,
    pub pv: Format,
}

/// Formats by operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precision {
    /// Image projection (`embed.*`).
    pub embed: Format,
    /// Every other projection and the MLPs.
    pub dense: Format,
    /// `encoder.attention`.
    pub attention: AttentionFormats,
    /// `map.attention`.
    pub map: AttentionFormats,
}

impl Precision {
    /// Formats of a GEMM's operands.
    pub fn gemm(&self, operation: &str) -> Format {
        if operation.starts_with("embed.") {
            self.embed
        } else {
            self.dense
        }
    }

    pub fn attention(&self, operation: &str) -> AttentionFormats {
        if operation.starts_with("map.") {
            self.map
        } else {
            self.attention
        }
    }
}
