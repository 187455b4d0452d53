//! Wall and processor time of a package without data (Linux): load and two invocations. With
//! `--check` all kernel calls are executed as well and every tile's clock is compared.
//!
//! `cargo run --release -p ipu-sim --example package -- FILE.ipuexe [--check]`

use std::time::Instant;

use ipu_sim::Session;
use ipu_sim::tile::Tile;

/// Seconds of processor time that the process has had.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

fn main() {
    let file = std::env::args().nth(1).expect("a package file");
    let bytes = std::fs::read(file).expect("package file");
    let package = ipu_package::read(&bytes).expect("package");
    let begin = (Instant::now(), processor_seconds());
    let report = |what: &str| {
        let (wall, processor) = (begin.0.elapsed(), processor_seconds() - begin.1);
        println!(
            "{what}: {:.2} s, processor {processor:.2} s",
            wall.as_secs_f64()
        );
    };
    let mut session = Session::without_data(&package).expect("load");
    report("loaded");
    session.initialize(&mut |_| None).expect("initialize");
    for _ in 0..2 {
        let result = session.invoke(&mut |_| None).expect("invoke");
        report(&format!("{} cycles", result.cycles));
    }
    let machine = session.machine();
    println!("{:?} {:?}", machine.counters(), machine.calls());
    if std::env::args().nth(2).as_deref() == Some("--check") {
        let mut other = Session::executing_each_call(&package).expect("load");
        other.initialize(&mut |_| None).expect("initialize");
        for _ in 0..2 {
            other.invoke(&mut |_| None).expect("invoke");
        }
        report("every call executed");
        let other = other.machine();
        assert_eq!(machine.count(), other.count());
        for id in 0..ipu_target::TILES {
            if let (Some(a), Some(b)) = (machine.tile(id), other.tile(id)) {
                let state = |t: &Tile| (t.time, t.pc, t.last_exit, t.live_end, t.issues.total);
                assert_eq!(state(a), state(b), "tile {id}");
            }
        }
        println!("equal on every tile");
    }
}
