//! Kernel contracts as calls need them: an index, and the extents of a shape, computed once.
//!
//! Input: contracts by name. Output: kernel numbers, pointer extents of a scalar vector.
//! Invariants: numbers follow the order of first use.
//! Not here: which tile calls what.

use std::collections::BTreeMap;

use ipu_ir::contract::{Arg, Contract};

pub(crate) struct Kernels<'a> {
    contracts: &'a BTreeMap<String, Contract>,
    used: Vec<&'a Contract>,
    index: BTreeMap<&'a str, u32>,
    /// Extents of the pointer arguments, in order, for scalars in order.
    shapes: BTreeMap<(u32, Vec<i64>), Vec<u64>>,
}

impl<'a> Kernels<'a> {
    pub fn new(contracts: &'a BTreeMap<String, Contract>) -> Self {
        Kernels {
            contracts,
            used: Vec::new(),
            index: BTreeMap::new(),
            shapes: BTreeMap::new(),
        }
    }

    pub fn find(&mut self, name: &str) -> Option<(u32, &'a Contract)> {
        let (name, contract) = self.contracts.get_key_value(name)?;
        let next = self.used.len() as u32;
        let index = *self.index.entry(name).or_insert(next);
        if index == next {
            self.used.push(contract);
        }
        Some((index, contract))
    }

    /// Byte extents of the pointer arguments, or what the contract refuses.
    pub fn extents(&mut self, kernel: u32, scalars: &[i64]) -> Result<Vec<u64>, String> {
        let key = (kernel, scalars.to_vec());
        if let Some(known) = self.shapes.get(&key) {
            return Ok(known.clone());
        }
        let contract = self.used[kernel as usize];
        let names = contract.args.iter().filter_map(|arg| match arg {
            Arg::Scalar(scalar) => Some(scalar.name.clone()),
            _ => None,
        });
        let values: BTreeMap<String, i64> = names.zip(scalars.iter().copied()).collect();
        let checked = contract.check_scalars(&values).and_then(|()| {
            contract
                .pointers()
                .map(|pointer| contract.bytes(pointer, &values))
                .collect::<Result<Vec<u64>, _>>()
        });
        let extents = checked.map_err(|error| error.to_string())?;
        self.shapes.insert(key, extents.clone());
        Ok(extents)
    }

    pub fn names(&self) -> Vec<String> {
        self.used
            .iter()
            .map(|contract| contract.name.clone())
            .collect()
    }
}
