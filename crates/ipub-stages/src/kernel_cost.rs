//! Kernel costs by simulation: one call on one tile, without data.
//!
//! Input: contracts and objects by kernel name; a memo. Output: simulated cycles of a call.
//! Invariants: a cost is a function of object, contract and scalars.
//! Not here: how calls add up (`ipu-plan`).

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use ipu_emit::object::Object;
use ipu_ir::contract::Contract;
use ipub_base::{CostError, Cycles, Digest, KernelCost, KeyWriter, Memo};

use crate::kernel_call::{KernelCall, Scalars};

const MEMO: &str = "kernel-cost.v1";

/// A kernel with the digest of what decides its costs.
struct Kernel<'a> {
    contract: &'a Contract,
    object: &'a Object,
    digest: Digest,
}

/// Costs of the kernels that it is given.
pub struct SimulatedCosts<'a> {
    kernels: BTreeMap<&'a str, Kernel<'a>>,
    memo: &'a dyn Memo,
    known: RwLock<BTreeMap<(String, Scalars), Result<Cycles, CostError>>>,
}

impl<'a> SimulatedCosts<'a> {
    /// Costs of `objects` under their contracts.
    pub fn new(
        contracts: &'a BTreeMap<String, Contract>,
        objects: &'a BTreeMap<String, Object>,
        memo: &'a dyn Memo,
    ) -> Self {
        let kernel = |(name, contract): (&'a String, &'a Contract)| {
            let object = objects.get(name)?;
            let mut key = KeyWriter::digest_only(MEMO);
            key.bytes("contract", &serde_json::to_vec(contract).ok()?);
            key.bytes("object", &postcard::to_stdvec(object).ok()?);
            let digest = key.finish().digest;
            let kernel = Kernel {
                contract,
                object,
                digest,
            };
            Some((name.as_str(), kernel))
        };
        Self {
            kernels: contracts.iter().filter_map(kernel).collect(),
            memo,
            known: RwLock::default(),
        }
    }

    fn ask(&self, name: &str, scalars: &Scalars) -> Result<Cycles, CostError> {
        let kernel = self.kernels.get(name);
        let kernel =
            kernel.ok_or_else(|| CostError::Refused(format!("there is no kernel {name}")))?;
        let mut key = KeyWriter::digest_only(MEMO);
        key.digest("kernel", kernel.digest);
        for (scalar, value) in scalars {
            key.i64(scalar, *value);
        }
        let key = key.finish().digest;
        let known = self.memo.get(MEMO, key);
        if let Some(Ok(bytes)) = known.map(<[u8; 8]>::try_from) {
            return Ok(Cycles(u64::from_le_bytes(bytes)));
        }
        let cycles = simulate(kernel, scalars)?;
        self.memo
            .put(MEMO, key, cycles.get().to_le_bytes().to_vec());
        Ok(cycles)
    }
}

fn simulate(kernel: &Kernel, scalars: &Scalars) -> Result<Cycles, CostError> {
    let call = KernelCall::new(kernel.contract, kernel.object, scalars);
    let mut call = call.map_err(CostError::Refused)?;
    call.tile.without_data();
    let result = call.tile.call(call.entry);
    let result =
        result.map_err(|fault| CostError::Fault(format!("{}: {fault}", kernel.contract.name)))?;
    Ok(Cycles(result.cycles))
}

impl KernelCost for SimulatedCosts<'_> {
    fn cycles(&self, kernel: &str, scalars: &Scalars) -> Result<Cycles, CostError> {
        let key = (kernel.to_owned(), scalars.clone());
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(cost) = known.get(&key) {
            return cost.clone();
        }
        drop(known);
        let cost = self.ask(kernel, scalars);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, cost.clone());
        cost
    }
}
