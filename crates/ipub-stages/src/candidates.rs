//! The blob between `plan` and `place`: candidates, cheapest estimate first.

use ipu_ir::mid::Mid;
use serde::{Deserialize, Serialize};

/// A candidate as `place` reads it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PlannedCandidate {
    /// The recipe as TOML.
    pub recipe: String,
    pub mid: Mid,
}
