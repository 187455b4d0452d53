//! Published row vectors, read into transfers.
#![allow(dead_code)]

use ipu_exchange::{Moving, Transfer, Width};
use serde_json::Value;
use std::path::PathBuf;

pub fn vectors() -> Option<Vec<Value>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = ["../shared/reference", "../../shared/reference"].map(|f| root.join(f));
    let folder = std::env::var_os("IPUB_SHARED").map(PathBuf::from);
    let texts = folder
        .into_iter()
        .chain(beside)
        .map(|f| std::fs::read_to_string(f.join("exchange-rows.json")));
    let Some(text) = texts.flatten().next() else {
        println!("skipped: vector folder absent");
        return None;
    };
    let mut file: Value = serde_json::from_str(&text).expect("vector file is JSON");
    let Value::Array(list) = file["vectors"].take() else {
        panic!("vectors is a list")
    };
    Some(list)
}

pub fn number(value: &Value) -> u32 {
    value.as_u64().expect("a number") as u32
}

pub fn transfers(vector: &Value) -> (Vec<Transfer>, Vec<u32>) {
    let list = vector["transfers"].as_array().unwrap();
    let requested = list
        .iter()
        .map(|t| number(&t["requested_offset"]))
        .collect();
    (list.iter().map(transfer).collect(), requested)
}

fn transfer(t: &Value) -> Transfer {
    let (source_address, words) = (number(&t["source_address"]), number(&t["words"]));
    let destinations = t["destinations"].as_array().unwrap();
    Transfer {
        source: number(&t["source"]),
        source_address,
        words,
        destinations: destinations
            .iter()
            .map(|d| (number(&d[0]), number(&d[1])))
            .collect(),
        width: if t["width"] == "paired64" {
            Width::Paired64
        } else {
            Width::Word32
        },
        moving: t["outgoing_base"].as_u64().map(|base| Moving {
            base: base as u32,
            extent: source_address..source_address + 4 * words,
        }),
    }
}

pub fn words(tile: &Value) -> Vec<u32> {
    let hex = tile["row_hex"].as_array().unwrap();
    hex.iter()
        .map(|w| u32::from_str_radix(w.as_str().unwrap(), 16).unwrap())
        .collect()
}
