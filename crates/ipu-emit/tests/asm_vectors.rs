//! The published and derived statements, where their folder is present.

use ipu_emit::asm::{Assembly, Options, Source, assemble, disassemble};
use ipu_emit::link::{LinkError, Placed, link};
use ipu_isa::Mode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn load(name: &str) -> Option<Value> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = match std::env::var_os("IPUB_SHARED") {
        Some(folder) => vec![
            PathBuf::from(&folder),
            PathBuf::from(folder).join("reference"),
        ],
        None => vec![
            root.join("../shared/reference"),
            root.join("../../shared/reference"),
        ],
    };
    let found = folders
        .iter()
        .find_map(|folder| std::fs::read_to_string(folder.join(name)).ok());
    let Some(text) = found else {
        println!("skipped: vector folder absent");
        return None;
    };
    Some(serde_json::from_str(&text).expect("vector file is JSON"))
}

fn number(value: &Value) -> u32 {
    let text = value.as_str().expect("number is a string");
    u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("number is hexadecimal")
}

fn words_of(record: &Value) -> Vec<u32> {
    record["words"]
        .as_array()
        .expect("words")
        .iter()
        .map(number)
        .collect()
}

fn mode_of(record: &Value) -> Mode {
    if record["mode"] == "supervisor" {
        Mode::Supervisor
    } else {
        Mode::Worker
    }
}

fn try_assemble(text: &str, mode: Mode) -> Result<Assembly, String> {
    let options = Options {
        mode,
        ..Options::default()
    };
    assemble(
        Source {
            name: "test.S",
            text,
        },
        &options,
    )
    .map_err(|errors| errors.to_string())
}

fn link_words(
    assembly: &Assembly,
    base: u32,
    symbols: &[(&str, i64)],
) -> Result<Vec<u32>, LinkError> {
    let object = &assembly.object;
    let placed = Placed {
        object,
        addresses: object.addresses_from(base),
    };
    let externals = symbols
        .iter()
        .map(|&(name, value)| (name.to_string(), value))
        .collect();
    let linked = link(&[placed], &externals, 0x4_0000)?;
    let bytes: Vec<u8> = linked
        .segments
        .into_iter()
        .flat_map(|segment| segment.bytes)
        .collect();
    Ok(bytes
        .chunks(4)
        .map(|b| u32::from_le_bytes(b.try_into().expect("whole words")))
        .collect())
}

#[test]
fn statements_assemble_to_their_words() {
    let Some(vectors) = load("asm-vectors.json") else {
        return;
    };
    let mut count = 0;
    for record in vectors
        .as_array()
        .expect("list")
        .iter()
        .filter(|r| r["kind"] == "encode")
    {
        let text = record["text"].as_str().expect("text");
        // A lone rpt has no body to align.
        let lone = text.starts_with("rpt");
        let text = if lone {
            format!(".allow_invalid_repeat\n{text}")
        } else {
            text.to_string()
        };
        let assembly = try_assemble(&text, mode_of(record))
            .unwrap_or_else(|error| panic!("{record}: {error}"));
        let base = record.get("base").map_or(0, number);
        assert_eq!(
            link_words(&assembly, base, &[]),
            Ok(words_of(record)),
            "{record}"
        );
        count += 1;
    }
    assert!(count > 1_000);
}

#[test]
fn disassembly_assembles_to_the_same_words() {
    let Some(vectors) = load("asm-vectors.json") else {
        return;
    };
    for record in vectors.as_array().expect("list") {
        let words = words_of(record);
        for base in [0, 0x4_c000] {
            let lines = disassemble(&words, base, mode_of(record), &BTreeMap::new()).join("\n");
            let assembly = try_assemble(&lines, Mode::Worker)
                .unwrap_or_else(|error| panic!("{record}: {error}\n{lines}"));
            assert_eq!(
                link_words(&assembly, base, &[]),
                Ok(words.clone()),
                "{record}\n{lines}"
            );
        }
    }
}

#[test]
fn bad_statements_are_refused() {
    let Some(rejects) = load("asm-reject.json") else {
        return;
    };
    for record in rejects["assemble"].as_array().expect("list") {
        let text = record["text"].as_str().expect("text");
        let mode = mode_of(record);
        if let Some((text, note)) = text.split_once("   (") {
            let value = note
                .split("0x")
                .nth(1)
                .and_then(|note| note.split(',').next());
            let value = i64::from_str_radix(value.expect("value"), 16).expect("hexadecimal");
            let assembly = try_assemble(text, mode).expect("assembles");
            assert!(
                link_words(&assembly, 0, &[("foo", value)]).is_err(),
                "{record}"
            );
            continue;
        }
        let result = try_assemble(text, mode);
        if record["basis"] == "conflict" {
            assert!(result.is_ok(), "{record}");
            continue;
        }
        let error = result.err().unwrap_or_else(|| panic!("accepted: {record}"));
        assert!(error.starts_with("test.S:"), "{error}");
    }
}

/// Rows of exchange words: supervisor code that no public assembler writes.
#[test]
fn exchange_rows_survive_disassembly() {
    let Some(rows) = load("exchange-rows.json") else {
        return;
    };
    let mut found = Vec::new();
    collect_words(&rows, &mut found);
    println!("{} rows", found.len());
    assert!(!found.is_empty());
    for words in found.iter().take(400) {
        let lines = disassemble(words, 0x5_0000, Mode::Supervisor, &BTreeMap::new()).join("\n");
        assert!(!lines.contains(".long"), "{lines}");
        let assembly =
            try_assemble(&lines, Mode::Worker).unwrap_or_else(|e| panic!("{e}\n{lines}"));
        assert_eq!(link_words(&assembly, 0x5_0000, &[]).as_ref(), Ok(words));
    }
}

fn collect_words(value: &Value, found: &mut Vec<Vec<u32>>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_array().filter(|_| key == "row_hex") {
                    Some(list) if list.iter().all(|w| w.is_string() || w.is_u64()) => {
                        let word = |w: &Value| w.as_u64().map_or_else(|| number(w), |w| w as u32);
                        found.push(list.iter().map(word).collect());
                    }
                    _ => collect_words(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_words(value, found)),
        _ => {}
    }
}
