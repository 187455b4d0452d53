//! Stage `metrics`: the figures of a build in one document.
//!
//! Inputs: `samples`, `timing`, `report`, `sizes`, `memory`, `chosen`. Output: `metrics` (JSON).
//! Invariants: it holds no time, place or count of this build: equal packages and outputs have
//! equal metrics. `time` and `run` count the same cycles.

use ipub_engine::{StageFailure, StageInputs, StageOutputs};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::codec::{from_json, to_json};
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("metrics", run);

/// What `time` and `run` both count.
#[derive(PartialEq, Deserialize)]
struct Counted {
    cycles: u64,
    by_kind: Vec<Value>,
    by_operation: Vec<Value>,
    by_step: Vec<Value>,
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let document = |name: &str| from_json::<Value>(name, &inputs.input(name)?);
    let samples: Counted = from_json("samples", &inputs.input("samples")?)?;
    let timing: Counted = from_json("timing", &inputs.input("timing")?)?;
    if samples != timing {
        return Err(StageFailure::bug(format!(
            "`time` counts {} simulated cycles, `run` {}, or other parts of them",
            timing.cycles, samples.cycles
        )));
    }
    let (sizes, memory, chosen) = (document("sizes")?, document("memory")?, document("chosen")?);
    let by = |parts: &[Value], name: &str| {
        let pairs = parts.iter().map(|part| {
            let key = part[name].as_str().unwrap_or_default();
            let key = if key.is_empty() { "outside" } else { key };
            (key.to_owned(), part["cycles"].clone())
        });
        Value::Object(pairs.collect())
    };
    let metrics = json!({
        "cycles": {
            "unit": "simulated cycles",
            "cropped": samples.cycles,
            "by_kind": by(&samples.by_kind, "kind"),
            "by_operation": by(&samples.by_operation, "operation"),
        },
        "verify": document("report")?,
        "exchange": {
            "table_bytes_max": sizes["exchange_table_bytes_max"],
            "table_tile": sizes["exchange_table_tile"],
            "table_bytes_total": sizes["exchange_table_bytes_total"],
        },
        "memory": {
            "free_bytes_min": memory["free_bytes"]["min"],
            "free_bytes_median": memory["free_bytes"]["median"],
            "used_bytes_max": memory["used_bytes"]["max"],
        },
        "package": {
            "file_bytes": sizes["file_bytes"],
            "segments": sizes["segments"],
            "tiles": memory["tiles"],
        },
        "candidate": chosen["candidate"],
    });
    Ok(StageOutputs::new().with("metrics", to_json("metrics", &metrics)?))
}
