//! `results.json` and the table at the end of a build.
//!
//! Input: what a build did, and the blobs that it made. Both views are only ever written, never
//! read by a rule.

use std::fmt::Write as _;

use ipub_base::{Bytes, Cycles, Diagnostic};
use ipub_engine::{BuildResult, Engine, StageResult, StageStatus, Target};
use serde_json::{Map, Value, json};

/// Simulated cycles of a millisecond.
const CYCLES_A_MILLISECOND: f64 = 1.5e6;

/// Version of `docs/results.schema.json`.
const SCHEMA: u64 = 1;

/// Everything known of a build as one document.
pub fn document(
    engine: &Engine,
    target: &Target,
    build: &BuildResult,
) -> Result<Value, Diagnostic> {
    let mut root = Map::new();
    root.insert("schema".to_owned(), SCHEMA.into());
    root.insert("target".to_owned(), target.label.to_string().into());
    let attributes = target.attributes.iter();
    let attributes = attributes.map(|(key, attribute)| (key.clone(), json!(attribute.value)));
    let attributes: Map<String, Value> = attributes.collect();
    root.insert("batch".to_owned(), attributes["batch"].clone());
    root.insert("attributes".to_owned(), attributes.into());
    for part in figures(engine, build)? {
        root.extend(part);
    }
    let mut seconds = Map::new();
    let mut status = Map::new();
    let mut digests = Map::new();
    for stage in &build.stages {
        status.insert(stage.rule.clone(), json!(stage.status));
        if stage.key.is_some() {
            seconds.insert(stage.rule.clone(), stage.made_seconds.into());
        }
        let outputs = stage.outputs.iter();
        let outputs = outputs.map(|output| (output.name.clone(), json!(output.digest)));
        if !stage.outputs.is_empty() {
            digests.insert(stage.rule.clone(), Value::Object(outputs.collect()));
        }
    }
    if let Some(run) = build.stage("run") {
        root.insert(
            "simulator".to_owned(),
            json!({ "seconds": run.made_seconds }),
        );
    }
    root.insert(
        "build".to_owned(),
        json!({ "seconds": seconds, "status": status }),
    );
    root.insert("digests".to_owned(), digests.into());
    if let Some((rule, failure)) = build.failure() {
        let failure = json!({
            "stage": rule,
            "kind": failure.kind,
            "message": failure.message,
        });
        root.insert("failure".to_owned(), failure);
    }
    Ok(root.into())
}

/// Figures from the metrics, or from as much as was made.
fn figures(engine: &Engine, build: &BuildResult) -> Result<Vec<Map<String, Value>>, Diagnostic> {
    if let Some(Value::Object(mut metrics)) = blob(engine, build, "metrics", "metrics")? {
        if let Some(cycles) = metrics.get_mut("cycles")
            && let Some(cropped) = cycles["cropped"].as_u64()
        {
            cycles["milliseconds"] = json!(cropped as f64 / CYCLES_A_MILLISECOND);
        }
        return Ok(vec![metrics]);
    }
    let mut parts = Vec::new();
    let timing = match blob(engine, build, "run", "samples")? {
        Some(samples) => Some(samples),
        None => blob(engine, build, "time", "timing")?,
    };
    if let Some(timing) = timing {
        let cropped = timing["cycles"].as_u64().unwrap_or(0);
        let cycles = json!({
            "unit": "simulated cycles",
            "cropped": cropped,
            "milliseconds": cropped as f64 / CYCLES_A_MILLISECOND,
        });
        parts.push(Map::from_iter([("cycles".to_owned(), cycles)]));
    }
    if let Some(sizes) = blob(engine, build, "package", "sizes")? {
        let table = json!({ "table_bytes_max": sizes["exchange_table_bytes_max"] });
        parts.push(Map::from_iter([("exchange".to_owned(), table)]));
    }
    if let Some(memory) = blob(engine, build, "place", "memory")? {
        let free = json!({ "free_bytes_min": memory["free_bytes"]["min"] });
        parts.push(Map::from_iter([("memory".to_owned(), free)]));
    }
    let failed = build
        .stage("verify")
        .and_then(|stage| stage.failure.as_ref());
    let payload = failed.and_then(|failure| failure.payload.as_deref());
    if let Some(report) = payload.and_then(|bytes| serde_json::from_slice(bytes).ok()) {
        parts.push(Map::from_iter([("verify".to_owned(), report)]));
    } else if let Some(report) = blob(engine, build, "verify", "report")? {
        parts.push(Map::from_iter([("verify".to_owned(), report)]));
    }
    Ok(parts)
}

fn blob(
    engine: &Engine,
    build: &BuildResult,
    rule: &str,
    output: &str,
) -> Result<Option<Value>, Diagnostic> {
    let Some(output) = build.stage(rule).and_then(|stage| stage.output(output)) else {
        return Ok(None);
    };
    let bytes = engine.store().get_blob(output.digest)?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| Diagnostic::bug(format!("{rule} {}: {error}", output.name)))
}

/// The table at the end of a build.
pub fn table(build: &BuildResult, document: &Value) -> String {
    let mut text = format!("{}\n", build.label);
    for stages in build.stages.chunks(4) {
        let cells: Vec<String> = stages.iter().map(stage_cell).collect();
        // Writing to a text cannot fail.
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<22} {value}");
        }
    };
    let cycles = &document["cycles"];
    let bytes = |value: &Value| value.as_u64().map(|bytes| Bytes(bytes).to_string());
    let real = |value: &Value| value.as_f64();
    row(
        "simulated cycles",
        cycles["cropped"].as_u64().map(|count| {
            let ms = count as f64 / CYCLES_A_MILLISECOND;
            format!("{} ({ms:.4} ms at 1.5 GHz)", Cycles(count))
        }),
    );
    let verify = &document["verify"];
    row(
        "cosine against FP32",
        real(&verify["cosine_min"]).map(|cosine| {
            let verdict = match verify["passed"].as_bool() {
                Some(true) => "passed",
                _ => "failed",
            };
            format!("{cosine:.6} ({verdict})")
        }),
    );
    row(
        "max error",
        real(&verify["max_abs_error"]).map(|error| {
            let device = real(&verify["max_abs_error_device"]).unwrap_or(f64::NAN);
            format!("{error:.6} (against device precision {device:.6})")
        }),
    );
    row(
        "exchange table",
        bytes(&document["exchange"]["table_bytes_max"]),
    );
    row(
        "free on fullest tile",
        bytes(&document["memory"]["free_bytes_min"]),
    );
    row("package", bytes(&document["package"]["file_bytes"]));
    text
}

fn stage_cell(stage: &StageResult) -> String {
    let state = match stage.status {
        StageStatus::Hit => "hit".to_owned(),
        StageStatus::Ran => format!("{:.2} s", stage.seconds),
        StageStatus::Failed | StageStatus::FailedBefore => "failed".to_owned(),
        StageStatus::Skipped => "skipped".to_owned(),
    };
    format!("{:<9} {state:>8}", stage.rule)
}
