//! `ipub inspect`: the contents of a package, and its action record.

use std::collections::BTreeMap;
use std::path::Path;

use ipu_package::{Package, Role};
use ipub_base::{Bytes, Diagnostic};
use ipub_store::Record;
use serde_json::{Value, json};

use super::host_plan;
use crate::cli::Inspect;
use crate::exit::Outcome;
use crate::{files, open};

pub fn inspect(args: &Inspect) -> Outcome {
    let (file, record) = match args.what.starts_with("//") {
        true => of_target(args)?,
        false => (files::read(Path::new(&args.what))?, None),
    };
    let refuse = |error| Diagnostic::usage(format!("{}: {error}", args.what));
    let table = ipu_package::section_table(&file).map_err(refuse)?;
    let package = ipu_package::read(&file).map_err(refuse)?;
    let digest = ipu_package::digest_of_sections(&table);
    let mut document = summary(&package);
    document["digest"] = digest.to_string().into();
    document["file_bytes"] = file.len().into();
    document["sections"] = table
        .iter()
        .map(|section| {
            json!({
                "name": section.id.to_string(),
                "bytes": section.bytes,
                "stored_bytes": section.stored_bytes,
            })
        })
        .collect();
    if let Some(record) = record {
        document["provenance"] = json!({
            "key": record.key,
            "label": record.label,
            "seconds": record.wall_seconds(),
            "made_unix_ms": record.provenance.made_unix_ms,
            "tool": record.provenance.tool,
            "executed": record.provenance.executed,
        });
    }
    if args.json {
        println!("{document:#}");
    } else {
        print(&document);
    }
    Ok(())
}

fn of_target(args: &Inspect) -> Result<(Vec<u8>, Option<Record>), Diagnostic> {
    let engine = open::engine()?;
    let label = args.what.parse()?;
    let explanation = engine.explain(&label, &args.sets, "package")?;
    let record = match explanation.key {
        Some(key) => engine.store().get_record(key)?,
        None => None,
    };
    let output = record
        .as_ref()
        .and_then(|record| record.blobs().iter().find(|blob| blob.name == "package"));
    let Some(output) = output else {
        let message = format!("{label} has no package in the store");
        let help = format!("run: ipub build {label} --until package");
        return Err(Diagnostic::usage(message).help(help));
    };
    Ok((engine.store().get_blob(output.digest)?, record))
}

fn summary(package: &Package) -> Value {
    let mut segments: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for segment in &package.segments {
        let sum = segments.entry(format!("{:?}", segment.kind)).or_default();
        *sum = (sum.0 + 1, sum.1 + 4 * segment.words.len() as u64);
    }
    let segments: BTreeMap<_, _> = segments
        .into_iter()
        .map(|(kind, (count, bytes))| (kind, json!({ "count": count, "bytes": bytes })))
        .collect();
    let mut bound = vec![0_u64; package.tensors.len()];
    for binding in &package.bindings {
        bound[binding.tensor as usize] += u64::from(binding.bytes());
    }
    let tensors = |role: Role| -> Vec<Value> {
        let all = package.tensors.iter().zip(&bound);
        all.filter(|(tensor, _)| tensor.role == role)
            .map(|(tensor, bytes)| {
                let (rows, columns) = (tensor.rows, tensor.columns);
                json!({ "name": tensor.name, "shape": [rows, columns], "device_bytes": bytes })
            })
            .collect()
    };
    json!({
        "device": package.device,
        "tiles": package.tiles,
        "images": package.images.len(),
        "segments": segments,
        "inputs": tensors(Role::Input),
        "outputs": tensors(Role::Output),
        "parameters": tensors(Role::Parameter),
        "bindings": package.bindings.len(),
        "host": host_plan::document(package),
        "steps": package.steps.iter().map(|step| {
            json!({ "operation": step.operation, "label": step.label, "kind": step.kind })
        }).collect::<Vec<_>>(),
    })
}

fn print(document: &Value) {
    let row = |name: &str, text: String| println!("{name:<14} {text}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bytes = |value: &Value| Bytes(value.as_u64().unwrap_or(0)).to_string();
    row("device", text(&document["device"]));
    row("digest", text(&document["digest"]));
    row("file", bytes(&document["file_bytes"]));
    row("tiles", document["tiles"].to_string());
    for section in document["sections"].as_array().into_iter().flatten() {
        let (plain, stored) = (bytes(&section["bytes"]), bytes(&section["stored_bytes"]));
        row(
            "section",
            format!(
                "{:<12} {plain:>16} stored {stored:>14}",
                text(&section["name"])
            ),
        );
    }
    for (kind, sum) in document["segments"].as_object().into_iter().flatten() {
        let count = &sum["count"];
        row(
            "segments",
            format!("{kind:<12} {count:>8} {:>16}", bytes(&sum["bytes"])),
        );
    }
    for role in ["inputs", "outputs", "parameters"] {
        for tensor in document[role].as_array().into_iter().flatten() {
            let name = text(&tensor["name"]);
            let shape = &tensor["shape"];
            let size = bytes(&tensor["device_bytes"]);
            row(
                role,
                format!("{name} [{}, {}] {size} on the device", shape[0], shape[1]),
            );
        }
    }
    row("bindings", document["bindings"].to_string());
    for (name, text) in host_plan::rows(&document["host"]) {
        row(name, text);
    }
    for step in document["steps"].as_array().into_iter().flatten() {
        let (operation, label) = (text(&step["operation"]), text(&step["label"]));
        row(
            "step",
            format!("{:<14} {operation} {label}", text(&step["kind"])),
        );
    }
    if let Some(made) = document["provenance"].as_object() {
        let key = text(&made["key"]);
        let seconds = made["seconds"].as_f64().unwrap_or(0.0);
        row(
            "made",
            format!("in {seconds:.2} s by {}, key {key}", text(&made["tool"])),
        );
    }
}
