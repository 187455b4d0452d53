//! Kernel contracts, read from `kernels/<family>/kernel.toml`.
//!
//! The contract is the sole source of a kernel's alignment, over-read, memory class, distinct
//! elements, padding and shapes: planner, placer, emission and simulator read it.
//! Invariants: argument names are unique; extents use scalar arguments only; `distinct` names
//! pointer arguments; each case gives every scalar a legal value.
//! Not here: cost (it is simulated) and meaning (the family's lowering gives it).

use std::collections::{BTreeMap, BTreeSet};

use ipu_package::Dtype;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::expr::{Expr, ExprError};

/// One `kernel.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    pub family: String,
    #[serde(rename = "kernel")]
    pub kernels: Vec<Contract>,
}

/// What a caller of one kernel may rely on and must provide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Symbol of the supervisor entry.
    pub name: String,
    pub source: String,
    pub summary: String,
    #[serde(rename = "arg")]
    pub args: Vec<Arg>,
    #[serde(default)]
    pub distinct: Vec<Distinct>,
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One word of the call frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arg {
    In(Pointer),
    Out(Pointer),
    Inout(Pointer),
    Scalar(Scalar),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pointer {
    pub name: String,
    pub dtype: Dtype,
    /// Bytes that belong to the argument.
    pub bytes: Expr,
    pub align: u32,
    /// Bytes past the extent that may be read and are never used.
    #[serde(default)]
    pub over_read: u32,
    #[serde(default)]
    pub class: MemoryClass,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalar {
    pub name: String,
    pub min: i64,
    pub max: i64,
    #[serde(default = "one")]
    pub multiple: i64,
}

fn one() -> i64 {
    1
}

/// Standard data may live in either region, interleaved data only in region 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum MemoryClass {
    #[default]
    Standard,
    Interleaved,
}

/// Arguments that are accessed at the same time and must lie in different memory elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distinct {
    pub args: [String; 2],
}

/// A shape the tests run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub args: BTreeMap<String, i64>,
    /// Published measurement of this shape, such as `K104`, and its cycles.
    #[serde(default)]
    pub record: Option<Record>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub id: String,
    pub cycles: u64,
}

#[derive(Debug, Error)]
pub enum ContractError {
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("kernel {kernel}: {source}")]
    Expr { kernel: String, source: ExprError },
    #[error("kernel {kernel}: {what}")]
    Invalid { kernel: String, what: String },
}

impl Family {
    /// Parse and check one `kernel.toml`.
    pub fn parse(text: &str) -> Result<Self, ContractError> {
        let family: Family = toml::from_str(text)?;
        family.kernels.iter().try_for_each(Contract::verify)?;
        Ok(family)
    }
}

impl Arg {
    pub fn name(&self) -> &str {
        match self {
            Arg::In(pointer) | Arg::Out(pointer) | Arg::Inout(pointer) => &pointer.name,
            Arg::Scalar(scalar) => &scalar.name,
        }
    }

    pub fn pointer(&self) -> Option<&Pointer> {
        match self {
            Arg::In(pointer) | Arg::Out(pointer) | Arg::Inout(pointer) => Some(pointer),
            Arg::Scalar(_) => None,
        }
    }

    pub fn writes(&self) -> bool {
        matches!(self, Arg::Out(_) | Arg::Inout(_))
    }
}

impl Contract {
    pub fn arg(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.name() == name)
    }

    pub fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.args.iter().filter_map(Arg::pointer)
    }

    /// Extent of a pointer argument in bytes for the given scalars.
    pub fn bytes(
        &self,
        pointer: &Pointer,
        scalars: &BTreeMap<String, i64>,
    ) -> Result<u64, ContractError> {
        let fault = |source| ContractError::Expr {
            kernel: self.name.clone(),
            source,
        };
        let value = pointer.bytes.value(scalars).map_err(fault)?;
        u64::try_from(value)
            .map_err(|_| self.invalid(format!("{} has a negative extent", pointer.name)))
    }

    /// Whether the scalars are a shape this kernel accepts.
    pub fn check_scalars(&self, scalars: &BTreeMap<String, i64>) -> Result<(), ContractError> {
        for arg in &self.args {
            let Arg::Scalar(scalar) = arg else { continue };
            let value = *scalars
                .get(&scalar.name)
                .ok_or_else(|| self.invalid(format!("{} has no value", scalar.name)))?;
            if value < scalar.min || value > scalar.max || value % scalar.multiple != 0 {
                let Scalar {
                    name,
                    min,
                    max,
                    multiple,
                } = scalar;
                return Err(self.invalid(format!(
                    "{name} = {value} is not a multiple of {multiple} in {min}..={max}"
                )));
            }
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), ContractError> {
        let mut names = BTreeSet::new();
        if let Some(arg) = self.args.iter().find(|arg| !names.insert(arg.name())) {
            return Err(self.invalid(format!("the argument {} stands twice", arg.name())));
        }
        for name in self.distinct.iter().flat_map(|edge| &edge.args) {
            if self.arg(name).and_then(Arg::pointer).is_none() {
                return Err(self.invalid(format!("distinct names {name}, not a pointer argument")));
            }
        }
        if self.cases.is_empty() {
            return Err(self.invalid("it has no case".to_owned()));
        }
        for case in &self.cases {
            self.check_scalars(&case.args)?;
            for pointer in self.pointers() {
                self.bytes(pointer, &case.args)?;
            }
        }
        Ok(())
    }

    fn invalid(&self, what: String) -> ContractError {
        ContractError::Invalid {
            kernel: self.name.clone(),
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        family = "cast"
        [[kernel]]
        name = "cast_f16_f143"
        source = "cast.S"
        summary = "linear"
        arg = [
            { kind = "in", name = "source", dtype = "f16", bytes = "2 * count", align = 8 },
            { kind = "out", name = "out", dtype = "f143", bytes = "count", align = 8 },
            { kind = "scalar", name = "count", min = 8, max = 64, multiple = 8 },
        ]
        distinct = [{ args = ["source", "out"] }]
        case = [{ name = "tail", args = { count = 40 }, record = { id = "K1", cycles = 5 } }]
    "#;

    #[test]
    fn a_contract_is_read_and_checked() {
        let family = Family::parse(TEXT).unwrap();
        let kernel = &family.kernels[0];
        let scalars = BTreeMap::from([("count".to_owned(), 40)]);
        let sizes: Vec<u64> = kernel
            .pointers()
            .map(|pointer| kernel.bytes(pointer, &scalars).unwrap())
            .collect();
        assert_eq!(sizes, [80, 40]);
        assert!(
            kernel
                .check_scalars(&BTreeMap::from([("count".to_owned(), 41)]))
                .is_err()
        );
        assert!(Family::parse(&TEXT.replace("\"out\"] }", "\"count\"] }")).is_err());
    }
}
