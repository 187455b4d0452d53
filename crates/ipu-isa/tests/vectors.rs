//! The published and derived word vectors, where their folder is present.

use ipu_isa::text::{assemble_statement, byte_target, print};
use ipu_isa::{FORMS, Mode, decode, encode};
use serde_json::Value;
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

fn word(value: &Value) -> u32 {
    let text = value.as_str().expect("word is a string");
    u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("word is hexadecimal")
}

fn mode(record: &Value) -> Mode {
    match record["mode"].as_str() {
        Some("supervisor") => Mode::Supervisor,
        _ => Mode::Worker,
    }
}

#[test]
fn table_equals_the_published_forms() {
    let Some(forms) = load("isa-forms.json") else {
        return;
    };
    let forms = forms.as_array().expect("list");
    for record in forms {
        let key = record["key"].as_str().expect("key");
        let form = FORMS
            .iter()
            .find(|form| form.key == key)
            .expect("form is in the table");
        assert_eq!(form.value, word(&record["value"]), "{key}");
        assert_eq!(
            form.operands.len(),
            record["operands"].as_array().map_or(0, Vec::len),
            "{key}"
        );
        assert_eq!(form.can_coissue, record["can_coissue"] == 1, "{key}");
    }
    assert_eq!(forms.len() + 3, FORMS.len());
}

#[test]
fn words_decode_to_their_form() {
    let Some(vectors) = load("asm-vectors.json") else {
        return;
    };
    for record in vectors.as_array().expect("list") {
        let words: Vec<u32> = record["words"]
            .as_array()
            .expect("words")
            .iter()
            .map(word)
            .collect();
        let mode = mode(record);
        for &word in &words {
            let decoded = decode(word, mode).or_else(|| decode(word, mode.other()));
            // The assembler takes M pairs that do not decode.
            if record["text"]
                .as_str()
                .is_some_and(|text| text.contains("$m14:15"))
            {
                assert_eq!(decoded, None);
                continue;
            }
            let decoded = decoded.unwrap_or_else(|| panic!("{word:#010x} of {record} decodes"));
            assert_eq!(
                encode(decoded.form, &decoded.ops).ok(),
                Some(word & !(u32::from(decoded.coissue) << 31))
            );
        }
        let named = record["form"].as_str().unwrap_or_default();
        let pair14 = words[0] == 0x5676_e160;
        if words.len() == 1 && !pair14 && FORMS.iter().any(|form| form.key == named) {
            let decoded = decode(words[0], mode)
                .or_else(|| decode(words[0], mode.other()))
                .expect("decodes");
            assert_eq!(decoded.form().key, named, "{record}");
        }
    }
}

#[test]
fn bad_words_do_not_decode() {
    let Some(rejects) = load("asm-reject.json") else {
        return;
    };
    for record in rejects["decode"].as_array().expect("list") {
        let word = word(&record["words"][0]);
        assert_eq!(decode(word, Mode::Worker), None, "{record}");
        // All ones is a legal `sendpicp`, which the source of this list does not know.
        if word != u32::MAX {
            assert_eq!(decode(word, Mode::Supervisor), None, "{record}");
        }
    }
}

/// Records about one statement: no bundle, program or several lines.
fn single_statements(vectors: &Value) -> Vec<&Value> {
    let all = vectors.as_array().expect("list").iter();
    all.filter(|record| {
        let text = record["text"].as_str().unwrap_or_default();
        !text.contains(['{', '\n']) && record.get("base").is_none()
    })
    .collect()
}

#[test]
fn statements_encode_and_print() {
    let Some(vectors) = load("asm-vectors.json") else {
        return;
    };
    let records = single_statements(&vectors);
    assert!(records.len() > 2_000);
    for record in records {
        let text = record["text"].as_str().expect("text");
        let words: Vec<u32> = record["words"]
            .as_array()
            .expect("words")
            .iter()
            .map(word)
            .collect();
        match record["kind"].as_str() {
            Some("encode") => {
                assert_eq!(
                    assemble_statement(text, mode(record)),
                    Ok(words),
                    "{record}"
                );
            }
            _ => {
                let decoded = decode(words[0], mode(record))
                    .or_else(|| decode(words[0], mode(record).other()))
                    .expect("decodes");
                let printed = print(&decoded, &mut byte_target);
                // The published text drops the suffix that picks a form; ours keeps it.
                let plain = printed.replacen("z ", " ", 1).replacen(".iz ", " ", 1);
                assert!(printed == text || plain == text, "{printed}: {record}");
            }
        }
    }
}
