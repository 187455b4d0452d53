//! Rows bit for bit against published vectors, and refusals against published error vectors.

mod support;

use ipu_exchange::{ExchangeError, place_in_order};
use serde_json::Value;
use support::{number, transfers, vectors, words};

fn compare(vector: &Value) -> Result<usize, String> {
    let (list, requested) = transfers(vector);
    let phase = place_in_order(&list, &requested).map_err(|e| e.to_string())?;
    let expected = vector["schedule"].as_array().unwrap();
    for (p, e) in phase.placed.iter().zip(expected) {
        if p.offset as u32 != number(&e["offset"])
            || p.send_start as u32 != number(&e["send_start"])
        {
            return Err(format!(
                "transfer {}: offset {} not {}",
                p.transfer, p.offset, e["offset"]
            ));
        }
    }
    if phase.horizon != number(&vector["horizon"]) {
        return Err(format!(
            "horizon {} not {}",
            phase.horizon, vector["horizon"]
        ));
    }
    let tiles = vector["tiles"].as_object().unwrap();
    if tiles.len() != phase.rows.len() {
        return Err(format!("{} rows not {}", phase.rows.len(), tiles.len()));
    }
    for row in &phase.rows {
        let tile = tiles.get(&row.tile.to_string()).ok_or("a tile too many")?;
        if row.words != words(tile) {
            let (got, want) = (&row.words, words(tile));
            return Err(format!(
                "tile {}: words {got:08x?} not {want:08x?}",
                row.tile
            ));
        }
        if row.horizon != number(&tile["horizon"]) {
            return Err(format!("tile {}: horizon {}", row.tile, row.horizon));
        }
        if row.incoming_base != number(&tile["incoming_base"]) {
            return Err(format!("tile {}: base {:x}", row.tile, row.incoming_base));
        }
    }
    Ok(phase.rows.len())
}

#[test]
fn published_rows() {
    let Some(list) = vectors() else { return };
    let (mut passed, mut rows, mut failed) = (0, 0, Vec::new());
    for vector in list.iter().filter(|v| v.get("expect_error").is_none()) {
        match compare(vector) {
            Ok(count) => {
                passed += 1;
                rows += count;
            }
            Err(text) => failed.push(format!("{} {}: {text}", vector["id"], vector["kind"])),
        }
    }
    println!("{passed} vectors, {rows} rows equal");
    assert!(
        failed.is_empty(),
        "{} differ:\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert_eq!(passed, 377);
}

#[test]
fn published_refusals() {
    let Some(list) = vectors() else { return };
    let mut refused = 0;
    for vector in list.iter().filter(|v| v.get("expect_error").is_some()) {
        let (list, requested) = transfers(vector);
        let error = place_in_order(&list, &requested).expect_err("an error vector");
        let kind = vector["kind"].as_str().unwrap();
        let right = match kind {
            "illegal_self_only" | "illegal_self_same_element" => {
                matches!(error, ExchangeError::Loopback { .. })
            }
            "illegal_count_zero" | "illegal_paired_odd_words" => {
                matches!(error, ExchangeError::Payload { .. })
            }
            "illegal_count_4149" => matches!(error, ExchangeError::Count { items: 4149, .. }),
            "illegal_duplicate_receiver" | "illegal_paired_incomplete" => {
                matches!(error, ExchangeError::Receivers { .. })
            }
            "illegal_paired_coincident" | "paired_point" => {
                matches!(error, ExchangeError::Coincident { .. })
            }
            _ => matches!(error, ExchangeError::Address { .. }),
        };
        assert!(right, "{kind}: {error}");
        refused += 1;
    }
    println!("{refused} vectors refused");
    assert_eq!(refused, 12);
}
