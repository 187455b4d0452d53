//! The words every other crate uses: digests and keys, units, the traits by which passes
//! ask for remembered results and kernel costs, diagnostics.
//!
//! Input: plain values.
//! Output: `Digest`, `Key`, `Bytes`, `Cycles`, `Diagnostic`.
//! Invariants: a key's digest and its explanation come from one traversal; nothing here does I/O.
//! Not here: stages, stores, targets, or anything that knows a machine.

mod cost;
mod diagnostic;
mod digest;
mod key;
mod memo;
mod units;

pub use cost::{CostError, KernelCost};
pub use diagnostic::{Diagnostic, DiagnosticKind, Location};
pub use digest::{Digest, DigestParseError, Hasher};
pub use key::{Key, KeyLine, KeyWriter, Keyed};
pub use memo::{Memo, NoMemo};
pub use units::{Bytes, Cycles};
