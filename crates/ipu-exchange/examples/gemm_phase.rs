//! Times the scheduling of one operand phase of a matrix product on 1,296 tiles.
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
