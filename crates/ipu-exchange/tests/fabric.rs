//! The row decoder and the fabric against published events, and rows through the checker.

mod support;

use ipu_exchange::check::inputs;
use ipu_exchange::fabric::{RowInput, decode};
use ipu_exchange::{Row, check};
use serde_json::Value;
use std::collections::BTreeMap;
use support::{number, transfers, vectors, words};

/// The rows of a vector, from its published words alone.
fn rows(vector: &Value) -> Vec<Row> {
    let (list, _) = transfers(vector);
    let bases = list
        .iter()
        .filter_map(|t| Some((t.source, t.moving.as_ref()?.base)));
    let bases: BTreeMap<u32, u32> = bases.collect();
    let tiles = vector["tiles"].as_object().unwrap();
    let row = |(tile, value): (&String, &Value)| {
        let tile = tile.parse().unwrap();
        Row {
            tile,
            words: words(value),
            horizon: number(&value["horizon"]),
            incoming_base: number(&value["incoming_base"]),
            moving_base: bases.get(&tile).copied(),
        }
    };
    tiles.iter().map(row).collect()
}

#[test]
fn published_rows_deliver_what_they_say() {
    let Some(list) = vectors() else { return };
    let (mut passed, mut copies, mut failed) = (0, 0, Vec::new());
    for vector in list.iter().filter(|v| v.get("expect_error").is_none()) {
        let (wanted, _) = transfers(vector);
        let rows = rows(vector);
        match check(&wanted, &inputs(&rows)) {
            Ok(events) => {
                assert_eq!(events.horizon as u32, number(&vector["horizon"]));
                passed += 1;
                copies += events.copies.len();
            }
            Err(error) => failed.push(format!("{} {}: {error}", vector["id"], vector["kind"])),
        }
    }
    println!("{passed} vectors, {copies} copy runs");
    assert!(
        failed.is_empty(),
        "{} differ:\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert_eq!(passed, 377);
}

#[test]
fn published_events() {
    let Some(list) = vectors() else { return };
    let (mut controls, mut sends) = (0, 0);
    for vector in list.iter().filter(|v| v.get("expect_error").is_none()) {
        for (row, tile) in rows(vector)
            .iter()
            .zip(vector["tiles"].as_object().unwrap().values())
        {
            // Bases of 0, so that pointers and addresses read as the fields of the words.
            let input = RowInput {
                tile: row.tile,
                words: &row.words,
                incoming_base: 0,
                outgoing_base: 0,
                moving_base: 0,
                row_address: None,
            };
            let events = decode(&input).unwrap();
            assert_eq!(events.duration as u32, row.horizon);
            let mut got: Vec<(i32, bool, u32, u32)> = Vec::new();
            got.extend(events.sources.iter().map(|c| (c.0, false, 0, c.1)));
            got.extend(events.paired_sources.iter().map(|c| (c.0, false, 1, c.1)));
            got.extend(events.pointers.iter().map(|c| (c.0, true, 0, c.1 / 4)));
            got.extend(events.formats.iter().map(|c| (c.0, true, 1, c.1)));
            let control = |c: &Value| {
                let (event, value) = (number(&c["event"]) as i32, number(&c["value"]));
                (event, c["stream"] == "PIC", number(&c["selector"]), value)
            };
            let list = tile["receive_controls"].as_array().unwrap();
            let mut want: Vec<_> = list.iter().map(control).collect();
            got.sort_unstable();
            want.sort_unstable();
            assert_eq!(got, want, "{} tile {}", vector["id"], row.tile);
            controls += want.len();
            for send in tile["sends"].as_array().unwrap() {
                let start = number(&send["start"]) as i32;
                let inside = |r: &&ipu_exchange::fabric::SendRun| r.start <= start && start < r.end;
                let run = events
                    .sends
                    .iter()
                    .find(inside)
                    .expect("a run covers the send");
                assert!(number(&send["end"]) as i32 <= run.end);
                assert_eq!(number(&send["direction"]), run.directions);
                assert_eq!(send["width64"], Value::Bool(run.wide));
                let address = run.address + (start - run.start) as u32 * run.item_bytes();
                assert_eq!(number(&send["source_field_byte_address"]), address);
                sends += 1;
            }
        }
    }
    println!("{controls} controls and {sends} sends equal");
    assert!(controls > 1000 && sends > 1000);
}
