//! The recipe: the decisions of a plan, by names, and nothing that follows from them.
//!
//! Invariants: no addresses, costs or schedules; every name is an operation of the graph; equal
//! recipes have equal text.
//! Not here: how decisions are found (`sweep`), what they mean (`build`), which ones a graph needs
//! (`decisions`).

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

impl fmt::Display for ResultGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

impl From<ResultGrid> for String {
    fn from(grid: ResultGrid) -> String {
        grid.to_string()
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

impl fmt::Display for CastSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CastSite::Early => "early",
            CastSite::Late => "late",
        })
    }
}

impl FromStr for CastSite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "early" => Ok(CastSite::Early),
            "late" => Ok(CastSite::Late),
            _ => Err(format!("`{text}` is neither early nor late")),
        }
    }
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
    #[serde(default)]
    pub gemm: BTreeMap<String, GemmPlan>,
    #[serde(default)]
    pub attention: BTreeMap<String, AttentionPlan>,
    /// Cast sites by operation and operand: `encoder.mlp_up.x`, `encoder.attention.k`.
    #[serde(default)]
    pub cast: BTreeMap<String, CastSite>,
}

/// Sections of a recipe, in the order of its text.
pub const SECTIONS: [&str; 3] = ["gemm", "attention", "cast"];

impl Recipe {
    /// Each decision as the right side of its line in TOML, by section and name.
    pub fn lines(&self) -> [(&'static str, BTreeMap<&str, String>); 3] {
        let gemm = self.gemm.iter().map(|(name, plan)| {
            let GemmPlan { grid, result } = plan;
            let line = format!("{{ grid = \"{grid}\", result = \"{result}\" }}");
            (name.as_str(), line)
        });
        let attention = self.attention.iter().map(|(name, plan)| {
            let parts: Vec<_> = attention_parts(plan)
                .into_iter()
                .map(|(part, value)| match part {
                    "qk" | "pv" => format!("{part} = \"{value}\""),
                    _ => format!("{part} = {value}"),
                })
                .collect();
            (name.as_str(), format!("{{ {} }}", parts.join(", ")))
        });
        let cast = self.cast.iter();
        let cast = cast.map(|(name, site)| (name.as_str(), format!("\"{site}\"")));
        let [first, second, third] = SECTIONS;
        [
            (first, gemm.collect()),
            (second, attention.collect()),
            (third, cast.collect()),
        ]
    }

    /// Each single value by its dotted path, such as `gemm.encoder.mlp_down.grid`.
    pub fn values(&self) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        for (name, plan) in &self.gemm {
            values.insert(format!("gemm.{name}.grid"), plan.grid.to_string());
            values.insert(format!("gemm.{name}.result"), plan.result.to_string());
        }
        for (name, plan) in &self.attention {
            for (part, value) in attention_parts(plan) {
                values.insert(format!("attention.{name}.{part}"), value);
            }
        }
        for (name, site) in &self.cast {
            values.insert(format!("cast.{name}"), site.to_string());
        }
        values
    }
}

/// The recipe as TOML: one line for each decision.
impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (section, lines) in self.lines() {
            if lines.is_empty() {
                continue;
            }
            writeln!(f, "{between}[{section}]")?;
            between = "\n";
            for (name, line) in lines {
                writeln!(f, "\"{name}\" = {line}")?;
            }
        }
        Ok(())
    }
}

fn attention_parts(plan: &AttentionPlan) -> [(&'static str, String); 5] {
    [
        ("qk", plan.qk.to_string()),
        ("pv", plan.pv.to_string()),
        ("softmax_rows", plan.softmax_rows.to_string()),
        ("value_parts", plan.value_parts.to_string()),
        ("merge_rows", plan.merge_rows.to_string()),
    ]
}
