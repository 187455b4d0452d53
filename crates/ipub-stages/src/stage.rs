//! The form that every stage file gives itself in.

use ipub_base::Digest;
use ipub_engine::{StageFailure, StageImpl, StageInputs, StageOutputs};

use crate::fingerprint;

/// A stage as a name and a function.
pub(crate) struct Stage {
    pub name: &'static str,
    /// What else decides the outputs, beside the code.
    pub identity: fn() -> Option<String>,
    pub run: fn(&StageInputs<'_>) -> Result<StageOutputs, StageFailure>,
}

impl Stage {
    pub const fn new(
        name: &'static str,
        run: fn(&StageInputs<'_>) -> Result<StageOutputs, StageFailure>,
    ) -> Self {
        Self {
            name,
            identity: || None,
            run,
        }
    }
}

impl StageImpl for Stage {
    fn name(&self) -> &str {
        self.name
    }

    fn fingerprint(&self) -> Digest {
        let code = fingerprint::fingerprint(self.name);
        match (self.identity)() {
            None => code,
            Some(identity) => {
                let mut writer = ipub_base::KeyWriter::digest_only("ipub.fingerprint.identity");
                writer.digest("code", code);
                writer.text("identity", &identity);
                writer.finish().digest
            }
        }
    }

    fn run(&self, inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
        (self.run)(inputs)
    }
}
