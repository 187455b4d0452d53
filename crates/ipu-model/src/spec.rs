//! Model specifications: what a file in `models/specs/` may say.
//!
//! Input: TOML text. Output: a [`ModelSpec`] whose numbers are in range.
//! Invariants: unknown fields are errors; errors carry line and column where TOML gives them.
//! Not here: batch size, precision, anything about a device.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A checked specification.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSpec {
    SiglipVision(SiglipVision),
    Mlp(Mlp),
    Attention(Attention),
}

/// The word after `kind =`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    SiglipVision,
    Mlp,
    Attention,
}

/// A SigLIP vision tower: patch embedding, pre-norm encoder, attention-pooling (MAP) head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiglipVision {
    pub kind: Kind,
    pub name: String,
    /// Edge of the square image in pixels. What is left after whole patches is dropped.
    pub image: u32,
    /// Edge of a square patch in pixels.
    pub patch: u32,
    pub width: u32,
    pub heads: u32,
    /// Hidden width of the MLP.
    pub mlp: u32,
    pub layers: u32,
    pub epsilon: f32,
    /// Without the head, the output is every token after the final LayerNorm.
    pub map_head: bool,
}

/// The MLP of one layer on its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mlp {
    pub kind: Kind,
    pub name: String,
    /// Rows for each batch member.
    pub rows: u32,
    pub width: u32,
    pub hidden: u32,
}

/// The attention of one layer on its own: fused QKV, attention, output projection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    pub kind: Kind,
    pub name: String,
    pub tokens: u32,
    pub width: u32,
    pub heads: u32,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum SpecError {
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("`{field}` is {found}: {rule}")]
    Field {
        field: &'static str,
        found: String,
        rule: String,
    },
}

/// Colour channels of an image.
pub const CHANNELS: u32 = 3;

/// Bounds that keep every extent of a graph within 32 bits.
const BATCH_MAX: u32 = 1024;
const EDGE_MAX: u32 = 4096;
const WIDTH_MAX: u32 = 1 << 16;
const ROWS_MAX: u32 = 1 << 16;
const LAYERS_MAX: u32 = 1024;

impl ModelSpec {
    /// Read and check a specification.
    pub fn parse(text: &str) -> Result<ModelSpec, SpecError> {
        /// Only the kind, so that the second reading reports the position of a wrong field.
        #[derive(Deserialize)]
        struct Head {
            kind: Kind,
        }
        let spec = match toml::from_str::<Head>(text)?.kind {
            Kind::SiglipVision => ModelSpec::SiglipVision(toml::from_str(text)?),
            Kind::Mlp => ModelSpec::Mlp(toml::from_str(text)?),
            Kind::Attention => ModelSpec::Attention(toml::from_str(text)?),
        };
        spec.check()?;
        Ok(spec)
    }

    pub fn name(&self) -> &str {
        match self {
            ModelSpec::SiglipVision(spec) => &spec.name,
            ModelSpec::Mlp(spec) => &spec.name,
            ModelSpec::Attention(spec) => &spec.name,
        }
    }

    /// Whether a graph can be made for `batch` members.
    pub fn check_batch(&self, batch: u32) -> Result<(), SpecError> {
        within("batch", batch, BATCH_MAX)
    }

    fn check(&self) -> Result<(), SpecError> {
        if self.name().is_empty() {
            return Err(field("name", "empty", "a specification needs a name"));
        }
        match self {
            ModelSpec::SiglipVision(spec) => spec.check(),
            ModelSpec::Mlp(spec) => {
                within("rows", spec.rows, ROWS_MAX)?;
                within("width", spec.width, WIDTH_MAX)?;
                within("hidden", spec.hidden, WIDTH_MAX)
            }
            ModelSpec::Attention(spec) => {
                within("tokens", spec.tokens, ROWS_MAX)?;
                within("width", spec.width, WIDTH_MAX)?;
                divides("heads", spec.heads, "width", spec.width)
            }
        }
    }
}

impl SiglipVision {
    /// Patches along one edge of the image.
    pub fn grid(&self) -> u32 {
        self.image / self.patch
    }

    /// Tokens of one batch member.
    pub fn tokens(&self) -> u32 {
        self.grid() * self.grid()
    }

    /// Elements of one patch: `(y, x, channel)`.
    pub fn patch_elements(&self) -> u32 {
        self.patch * self.patch * CHANNELS
    }

    fn check(&self) -> Result<(), SpecError> {
        within("image", self.image, EDGE_MAX)?;
        within("patch", self.patch, self.image.min(256))?;
        within("tokens", self.tokens(), ROWS_MAX)?;
        within("width", self.width, WIDTH_MAX)?;
        within("mlp", self.mlp, WIDTH_MAX)?;
        within("layers", self.layers, LAYERS_MAX)?;
        divides("heads", self.heads, "width", self.width)?;
        if !(self.epsilon.is_finite() && self.epsilon > 0.0) {
            let found = self.epsilon.to_string();
            return Err(field("epsilon", found, "it must be finite and above zero"));
        }
        Ok(())
    }
}

fn within(name: &'static str, found: u32, max: u32) -> Result<(), SpecError> {
    if (1..=max).contains(&found) {
        Ok(())
    } else {
        let rule = format!("it must be between 1 and {max}");
        Err(field(name, found.to_string(), rule))
    }
}

fn divides(name: &'static str, part: u32, of: &str, whole: u32) -> Result<(), SpecError> {
    if part > 0 && whole.is_multiple_of(part) {
        Ok(())
    } else {
        let rule = format!("it must divide `{of}`, which is {whole}");
        Err(field(name, part.to_string(), rule))
    }
}

fn field(field: &'static str, found: impl Into<String>, rule: impl Into<String>) -> SpecError {
    SpecError::Field {
        field,
        found: found.into(),
        rule: rule.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MLP: &str = "kind = \"mlp\"\nname = \"m\"\nrows = 4\nwidth = 8\nhidden = 16\n";

    #[test]
    fn a_specification_is_read() {
        let ModelSpec::Mlp(spec) = ModelSpec::parse(MLP).unwrap() else {
            panic!("wrong kind");
        };
        assert_eq!((spec.rows, spec.width, spec.hidden), (4, 8, 16));
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let error = ModelSpec::parse(&format!("{MLP}colour = 1\n")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("line 6") && text.contains("colour"), "{text}");
    }

    #[test]
    fn numbers_out_of_range_name_their_field() {
        let error = ModelSpec::parse(&MLP.replace("rows = 4", "rows = 0")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`rows` is 0: it must be between 1 and 65536"
        );
        let attention = "kind = \"attention\"\nname = \"a\"\ntokens = 4\nwidth = 8\nheads = 3\n";
        let error = ModelSpec::parse(attention).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`heads` is 3: it must divide `width`, which is 8"
        );
    }

    #[test]
    fn a_batch_has_members() {
        let spec = ModelSpec::parse(MLP).unwrap();
        assert_eq!(
            crate::lower(&spec, 0).unwrap_err().to_string(),
            "`batch` is 0: it must be between 1 and 1024"
        );
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        let text = ModelSpec::parse(&MLP.replace("\"mlp\"", "\"cnn\""))
            .unwrap_err()
            .to_string();
        assert!(text.contains("line 1") && text.contains("cnn"), "{text}");
    }
}
