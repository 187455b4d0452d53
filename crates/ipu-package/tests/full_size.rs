//! A package of the whole chip: size and time. `cargo test --release -- --ignored --nocapture`.

mod support;

use std::time::Instant;

use ipu_package::{check, digest, read, section_table, summary, write};

#[test]
#[ignore = "measures; takes 160 MB of segments"]
fn a_full_chip_fits_and_is_quick() {
    let package = support::wide(1_472, 96 * 256);
    let words: usize = package
        .segments
        .iter()
        .map(|segment| segment.words.len())
        .sum();
    let start = Instant::now();
    let file = write(&package).unwrap();
    let written = start.elapsed();
    let start = Instant::now();
    let back = read(&file).unwrap();
    let read_time = start.elapsed();
    assert!(back == package);
    let start = Instant::now();
    let digest = digest(&package).unwrap();
    println!(
        "{} tiles, {} segment bytes, {} file bytes; write {written:?}, read {read_time:?}, digest {:?} {digest}",
        package.tiles,
        4 * words,
        file.len(),
        start.elapsed(),
    );
    let start = Instant::now();
    check(&package).unwrap();
    let checked = start.elapsed();
    let start = Instant::now();
    let summary = summary(&package, &section_table(&file).unwrap());
    println!("check {checked:?}, summary {:?}", start.elapsed());
    println!(
        "{:?} {}",
        summary.image_bytes, summary.exchange_table_bytes_max
    );
    for entry in section_table(&file).unwrap().iter().take(8) {
        println!(
            "{:10} {:>10} {:>10}",
            entry.id.to_string(),
            entry.bytes,
            entry.stored_bytes
        );
    }
    assert!(file.len() <= 64 << 20);
}
