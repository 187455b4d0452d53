//! Issues per second of the interpreter on kernels of the repository, one tile, one thread, by
//! the processor time of the thread (Linux).
//!
//! `cargo run --release -p ipu-sim --example speed -- [CALLS]`

use std::collections::BTreeMap;
use std::path::Path;

use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::link::{Placed, link};
use ipu_sim::TileRun;
use ipu_target::memory::SRAM_BASE;

const CODE: u32 = 0x5c000;
const FRAME: u32 = 0x58800;

/// Seconds of processor time that this thread has had.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    nanoseconds.expect("nanoseconds") as f64 / 1e9
}

fn kernel(family: &str, name: &str) -> (TileRun, u32) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let file = format!("{family}/{name}.S");
    let text = std::fs::read_to_string(path.join(&file)).expect("kernel source");
    let source = Source {
        name: &file,
        text: &text,
    };
    let assembly = assemble(source, &Options::default()).expect("assembly");
    let placed = Placed {
        object: &assembly.object,
        addresses: assembly.object.addresses_from(CODE),
    };
    let linked = link(&[placed], &BTreeMap::new(), SRAM_BASE).expect("link");
    let words = |bytes: &[u8]| {
        let word = |w: &[u8]| u32::from_le_bytes(w.try_into().expect("whole words"));
        bytes.chunks(4).map(word).collect()
    };
    let code: Vec<_> = linked
        .segments
        .iter()
        .filter(|segment| !segment.bytes.is_empty())
        .map(|segment| (segment.address, words(&segment.bytes)))
        .collect();
    let run = TileRun::new(&code).expect("code");
    (run, linked.globals[name] as u32)
}

fn measure(family: &str, name: &str, frame: &[u32]) {
    for data in [true, false] {
        let (mut run, entry) = kernel(family, name);
        run.write(0x60000, &vec![0x3c; 0x1c000]).expect("data");
        run.write(0x80000, &vec![0x3c; 0x60000]).expect("data");
        run.frame(FRAME, frame).expect("frame");
        if !data {
            run.without_data();
        }
        let calls = std::env::args()
            .nth(1)
            .map_or(200, |n| n.parse().expect("calls"));
        let begin = processor_seconds();
        let mut issues = 0;
        let mut cycles = 0;
        for _ in 0..calls {
            let result = run.call(entry).unwrap_or_else(|fault| panic!("{fault}"));
            issues += result.issues.iter().sum::<u64>();
            cycles = result.cycles;
        }
        let seconds = processor_seconds() - begin;
        println!(
            "{name:12} data {data:5}: {cycles:8} cycles, {:7.1} M issues/s, {:.1} us a call",
            issues as f64 / seconds / 1e6,
            seconds / f64::from(calls) * 1e6
        );
    }
}

fn main() {
    let left = 0x90000;
    measure(
        "gemm",
        "gemm_f16",
        &[left, 0x80000, 0xb0000, 182, 256, 64, 4, 182],
    );
    measure(
        "gemm",
        "gemm_f143",
        &[left, 0x80000, 0xb0000, 182, 512, 64, 4, 182, 0],
    );
    // The shape of K196.
    measure(
        "gemm",
        "gemm_f143",
        &[left, 0x80000, 0xb0000, 82, 192, 160, 4, 82, 0],
    );
    measure("reduce", "reduce_f16", &[0x90000, 0xb0000, 4096, 8, 8192]);
    // The shapes of K104, K006 and K181.
    measure("reduce", "reduce_f16", &[left, 0xb0000, 2208, 4, 2208]);
    let epsilon = 1e-6_f32.to_bits();
    measure(
        "layernorm",
        "layernorm_f16",
        &[left, 0xa0000, 0xa8000, 0xb0000, 1, 1152, epsilon],
    );
    measure(
        "softmax",
        "softmax_f16",
        &[left, 0xa0000, 0xb0000, 8, 729, 768],
    );
}
