//! Times the scheduling of one operand phase of a matrix product on 1,296 tiles, and of changes of
//! layout on all tiles.
//!
//! The grid is 3 x 54 x 8: each tile receives 244 rows of 64 words, sent to the 54 tiles of its
//! row and contraction part, and weight panels of 128 words, sent to 3 tiles.
//! `cargo run --release -p ipu-exchange --example gemm_phase [pairing|plain] [chunk words]`

use ipu_exchange::{SchedulePolicy, Transfer, Width, check, schedule};
use std::time::Instant;

const GRID: (u32, u32, u32) = (3, 54, 8);
const ROWS: u32 = 729;
const PANELS: u32 = 32;

fn tile(m: u32, n: u32, k: u32) -> u32 {
    (m * GRID.2 + k) * GRID.1 + n
}

fn transfer(source: u32, source_address: u32, words: u32, to: Vec<(u32, u32)>) -> Transfer {
    Transfer {
        source,
        source_address,
        words,
        destinations: to,
        width: Width::Word32,
        moving: None,
    }
}

fn rows() -> Vec<Transfer> {
    let mut out = Vec::new();
    for row in 0..ROWS {
        let (m, local) = (row / 244, row % 244);
        for k in 0..GRID.2 {
            let to = (0..GRID.1)
                .map(|n| (tile(m, n, k), 0x90000 + 256 * local))
                .collect();
            out.push(transfer(2 * row, 0x60000 + 256 * k, 64, to));
        }
    }
    out
}

fn panels() -> Vec<Transfer> {
    let mut out = Vec::new();
    let total = GRID.1 * GRID.2 * PANELS;
    let homes = total.div_ceil(ipu_target::TILES);
    for n in 0..GRID.1 {
        for k in 0..GRID.2 {
            for panel in 0..PANELS {
                let index = (n * GRID.2 + k) * PANELS + panel;
                let to = (0..GRID.0)
                    .map(|m| (tile(m, n, k), 0xa8000 + 512 * panel))
                    .collect();
                let from = 0xd0000 + 512 * (index % homes);
                out.push(transfer(index / homes, from, 128, to));
            }
        }
    }
    out
}

/// Runs of `words` words from tiles all over the chip: a change of layout.
fn scattered(count: u32, words: u32, gap: u32) -> Vec<Transfer> {
    let tiles = ipu_target::TILES;
    let mut out = Vec::new();
    for d in 0..tiles {
        for i in 0..count {
            let source = (d + 1 + i * 677 % (tiles - 1)) % tiles;
            let to = vec![(d, 0x80000 + 4 * i * (words + gap))];
            out.push(transfer(source, 0x60000 + 4 * words * (i % 64), words, to));
        }
    }
    out
}

/// Each tile takes `count` separate pieces of `words` words from each of 8 neighbours.
fn pieces(count: u32, words: u32) -> Vec<Transfer> {
    let tiles = ipu_target::TILES;
    let mut out = Vec::new();
    for d in 0..tiles {
        for i in 0..8 {
            for p in 0..count {
                let address = 0x80000 + 4 * (p * 8 + i) * words;
                let from = 0x60000 + 4 * p * words;
                out.push(transfer(
                    (d + 1 + i * 11) % tiles,
                    from,
                    words,
                    vec![(d, address)],
                ));
            }
        }
    }
    out
}

fn main() {
    let pairing = std::env::args().nth(1).as_deref() != Some("plain");
    let chunk_words = std::env::args()
        .nth(2)
        .and_then(|w| w.parse().ok())
        .unwrap_or(1_024);
    let policy = SchedulePolicy {
        chunk_words,
        pairing,
    };
    for (name, transfers) in [
        ("rows", rows()),
        ("panels", panels()),
        ("both", rows().into_iter().chain(panels()).collect()),
        ("scattered 300 x 16", scattered(300, 16, 2)),
        ("scattered 40 x 256", scattered(40, 256, 2)),
        ("pieces 8 x 32 x 8", pieces(32, 8)),
        ("pieces 8 x 64 x 1", pieces(64, 1)),
    ] {
        let receives: usize = transfers.iter().map(|t| t.destinations.len()).sum();
        let begin = Instant::now();
        let made = schedule(&transfers, &policy).expect("the phase has rows");
        let scheduled = begin.elapsed();
        let inputs = ipu_exchange::check::inputs(&made.rows);
        let events = check(&transfers, &inputs).expect("the rows do what was asked");
        let checked = begin.elapsed() - scheduled;
        let bytes = made
            .rows
            .iter()
            .map(|r| 4 * r.words.len())
            .max()
            .unwrap_or(0);
        println!(
            "{name}: {} transfers, {receives} receives, {} messages: horizon {} bound {} \
             ({:.1}% over), longest row {bytes} bytes, {} copy runs, schedule {:.0} ms, check {:.0} ms",
            transfers.len(),
            made.messages,
            made.horizon,
            made.bound,
            100.0 * f64::from(made.horizon) / f64::from(made.bound) - 100.0,
            events.copies.len(),
            scheduled.as_secs_f64() * 1e3,
            checked.as_secs_f64() * 1e3,
        );
    }
}
