//! The blob between `kernel` and `plan`: families of kernels with the digests of their contracts.
//!
//! Invariant: a family's digest depends on what a caller may rely on and must provide, and on
//! nothing else: not on code, cases, summaries or file names.

use std::collections::BTreeMap;

use ipu_ir::contract::Contract;
use ipub_base::{Digest, KeyWriter};
use serde::{Deserialize, Serialize};

/// Families by name.
pub(crate) type Families = BTreeMap<String, FamilyContracts>;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FamilyContracts {
    pub digest: Digest,
    /// Names of its kernels, sorted.
    pub kernels: Vec<String>,
}

/// A family of contracts without cases, summaries and sources. `None` if one cannot be written.
pub(crate) fn family(contracts: &BTreeMap<&str, &Contract>) -> Option<FamilyContracts> {
    let mut writer = KeyWriter::digest_only("ipub.recipe.contract");
    for (name, contract) in contracts {
        writer.text(name, &serde_json::to_string(contract).ok()?);
    }
    let kernels = contracts.keys().map(|name| (*name).to_owned());
    Some(FamilyContracts {
        digest: writer.finish().digest,
        kernels: kernels.collect(),
    })
}
