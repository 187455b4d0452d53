//! What a kernel call costs, as passes ask for it.

use std::collections::BTreeMap;

use crate::Cycles;

/// Why a kernel call has no price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostError {
    /// The kernel does not take these scalars.
    Refused(String),
    /// The call does not end as it should.
    Fault(String),
}

/// Prices kernel calls.
///
/// A price is a pure function of kernel and scalars: asking twice, in any order, from any thread,
/// gives the same.
pub trait KernelCost: Send + Sync {
    /// Simulated cycles of one whole call.
    fn cycles(&self, kernel: &str, scalars: &BTreeMap<String, i64>) -> Result<Cycles, CostError>;
}
