//! The host plan of a package, for `ipub inspect`.
//!
//! Input: a package. Output: for each call, what it moves: batches, programs, packets, endpoints,
//! bytes.
//! Invariants: a figure counts one call; `run` is called once for each input.
//! Not here: which tensor elements stand in a run (bindings say).

use std::collections::{BTreeMap, BTreeSet};

use ipu_emit::host::{Chunk, Direction, split};
use ipu_package::Package;
use ipu_package::host::{HostRun, HostSlice, batches};
use ipu_target::host::slot_offset;
use ipu_target::memory::HOST_STAGING;
use ipu_target::topology::{physical, serving_tile};
use ipub_base::Bytes;
use serde_json::{Value, json};

/// The document of a plan.
pub fn document(package: &Package) -> Value {
    let plan = &package.host;
    let slots = plan.slots.iter().copied().zip(0..).collect();
    let transfer = |what: &str, direction, runs: &[HostRun]| {
        let mut value = figures(&slots, direction, runs);
        value["what"] = what.into();
        value["direction"] = match direction {
            Direction::ToTile => "to device".into(),
            Direction::ToHost => "to host".into(),
        };
        value
    };
    json!({
        "slots": plan.slots.len(),
        "initialize": [transfer("parameters", Direction::ToTile, &plan.parameters)],
        "run": [
            transfer("inputs", Direction::ToTile, &plan.inputs),
            transfer("outputs", Direction::ToHost, &plan.outputs),
        ],
    })
}

fn figures(slots: &BTreeMap<u32, u32>, direction: Direction, runs: &[HostRun]) -> Value {
    let batches = batches(runs);
    let (mut programs, mut packets) = (0, 0);
    let (mut endpoints, mut serving) = (BTreeSet::new(), BTreeSet::new());
    for batch in &batches {
        let targets: BTreeSet<u32> = batch.iter().map(|slice| physical(slice.tile)).collect();
        let servers: BTreeSet<u32> = targets.iter().map(|tile| serving_tile(*tile)).collect();
        programs += targets.union(&servers).count();
        packets += batch
            .iter()
            .map(|slice| packets_of(slots, direction, slice))
            .sum::<usize>();
        endpoints.extend(targets);
        serving.extend(servers);
    }
    json!({
        "runs": runs.len(),
        "batches": batches.len(),
        "programs": programs,
        "packets": packets,
        "endpoints": endpoints.len(),
        "serving_tiles": serving.len(),
        "bytes": runs.iter().map(|run| u64::from(run.bytes)).sum::<u64>(),
    })
}

/// Packets that move a slice; a download ends with a read of no bytes.
fn packets_of(slots: &BTreeMap<u32, u32>, direction: Direction, slice: &HostSlice) -> usize {
    let chunk = Chunk {
        tile_address: match direction {
            Direction::ToTile => HOST_STAGING,
            Direction::ToHost => slice.address,
        },
        // A tile without a slot is a fault that the checker of packages tells.
        host_offset: slot_offset(slots.get(&slice.tile).copied().unwrap_or(0)),
        bytes: slice.bytes,
    };
    split(direction, chunk).len() + usize::from(direction == Direction::ToHost)
}

/// The rows of a plan: name and text.
pub fn rows(document: &Value) -> Vec<(&'static str, String)> {
    let mut rows = vec![("host slots", document["slots"].to_string())];
    for call in ["initialize", "run"] {
        for transfer in document[call].as_array().into_iter().flatten() {
            let number = |key: &str| transfer[key].as_u64().unwrap_or(0);
            let word = |key: &str| transfer[key].as_str().unwrap_or_default().to_owned();
            let text = format!(
                "{call:<10} {:<10} {:<9} {} batches, {} programs, {} packets, {} endpoints, {}",
                word("what"),
                word("direction"),
                number("batches"),
                number("programs"),
                number("packets"),
                number("endpoints"),
                Bytes(number("bytes")),
            );
            rows.push(("host call", text));
        }
    }
    rows
}
