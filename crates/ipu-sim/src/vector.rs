//! The interpreter compiled for wide vectors, where the processor has them.
//!
//! The code is the same as the portable one: no sum is reordered and no product is fused that is
//! not written as fused, so results are equal bit for bit. Not here: any semantics.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use crate::context::Context;
use crate::exec::Shared;
use crate::worker::{Launch, Launched, WorkerFault};

/// Whether the processor has AVX2 and FMA.
pub fn has_wide_vectors() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
}

/// Run a launch with wide vectors. Call only where [`has_wide_vectors`] holds.
pub fn run_wide(
    launch: &Launch,
    w: &mut Context,
    shared: &mut Shared,
) -> Result<Launched, WorkerFault> {
    assert!(has_wide_vectors());
    // SAFETY: the processor has the features that the function is compiled for.
    unsafe { interpret_wide(launch, w, shared) }
}

#[target_feature(enable = "avx2,fma")]
fn interpret_wide(
    launch: &Launch,
    w: &mut Context,
    shared: &mut Shared,
) -> Result<Launched, WorkerFault> {
    launch.interpret::<true>(w, shared)
}
