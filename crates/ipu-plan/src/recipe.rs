//! The recipe: the decisions of a plan, by names, and nothing that follows from them.
//!
//! Invariants: no addresses, costs or schedules; every name is an operation of the graph.
//! Not here: how decisions are found (`sweep`), what they mean (`build`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A grid `rows x columns x inner`, written `3x54x9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Grid {
    pub rows: u32,
    pub columns: u32,
    pub inner: u32,
}

impl Grid {
    pub const fn tiles(&self) -> u32 {
        self.rows * self.columns * self.inner
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.rows, self.columns, self.inner)
    }
}

impl From<Grid> for String {
    fn from(grid: Grid) -> String {
        grid.to_string()
    }
}

impl FromStr for Grid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = parse_parts(text)?;
        match parts[..] {
            [rows, columns, inner] => Ok(Grid {
                rows,
                columns,
                inner,
            }),
            _ => Err(format!("`{text}` is not a grid ROWSxCOLUMNSxINNER")),
        }
    }
}

impl TryFrom<String> for Grid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A result grid `rows x columns`, written `1x6`: how one block is spread for its reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResultGrid {
    pub rows: u32,
    pub columns: u32,
}

impl From<ResultGrid> for String {
    fn from(grid: ResultGrid) -> String {
        format!("{}x{}", grid.rows, grid.columns)
    }
}

impl TryFrom<String> for ResultGrid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match parse_parts(&text)?[..] {
            [rows, columns] => Ok(ResultGrid { rows, columns }),
            _ => Err(format!("`{text}` is not a result grid ROWSxCOLUMNS")),
        }
    }
}

fn parse_parts(text: &str) -> Result<Vec<u32>, String> {
    let number = |part: &str| match part.trim().parse::<u32>() {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(format!("`{part}` in `{text}` is not a positive number")),
    };
    text.split('x').map(number).collect()
}

/// Where an F16 value becomes F143: at its producer, or on each consumer's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CastSite {
    Early,
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmPlan {
    pub grid: Grid,
    pub result: ResultGrid,
}

/// Grids of one attention operation, for each head of each batch member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionPlan {
    /// Query rows x key columns x 1.
    pub qk: Grid,
    /// Query rows x 1 x key partitions.
    pub pv: Grid,
    /// Row parts of the softmax.
    pub softmax_rows: u32,
    /// Key parts on which V is packed.
    pub value_parts: u32,
    /// Row parts that each row part of PV is cut into for the merge.
    pub merge_rows: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub gemm: BTreeMap<String, GemmPlan>,
    #[serde(default)]
    pub attention: BTreeMap<String, AttentionPlan>,
    /// Cast sites by operation and operand: `encoder.mlp_up.x`, `encoder.attention.k`.
    #[serde(default)]
    pub cast: BTreeMap<String, CastSite>,
}
