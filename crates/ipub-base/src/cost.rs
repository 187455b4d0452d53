//! What a kernel call costs, as passes ask for it.

use std::collections::BTreeMap;

use crate::Cycles;

/// Prices kernel calls.
///
/// A price is a pure function of kernel and scalars: asking twice, in any order, from any thread,
/// gives the same.
pub trait KernelCost: Send + Sync {
    /// Simulated cycles of one whole call; what the kernel refuses, as a message.
    fn cycles(&self, kernel: &str, scalars: &BTreeMap<String, i64>) -> Result<Cycles, String>;
}
