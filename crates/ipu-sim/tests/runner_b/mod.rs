//! Runs contract cases on one simulated tile when results are judged by tolerance.
//!
//! A kernel is assembled from `kernels/<family>`, linked at a code element and called with its
//! arguments at legal addresses. All other memory holds NaN bits and is undefined; after the call
//! nothing outside the `out` arguments and the worker frames may have changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::f16;
use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::link::{Placed, link};
use ipu_ir::contract::{Arg, Case, Contract, Family, MemoryClass};
use ipu_sim::{CallResult, TileRun};
use ipu_target::memory::{LOADER_LIMIT, REGION_BOUNDARY, SRAM_BASE, SRAM_BYTES};

const CODE: u32 = 0x5c000;
const FRAME: u32 = 0x58800;
/// Six worker frames that any kernel may use.
const SCRATCH: std::ops::Range<u32> = 0x580e0..0x586e0;
/// Two F16 NaN.
const POISON: u32 = 0xfe5a_fe5a;
const GUARD: u32 = 64;

pub type Scalars = BTreeMap<String, i64>;

/// How arguments are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each at the start of an element, standard ones in region 0 while there is room.
    Elements,
    /// Close together in region 1 with the least alignment.
    Dense,
    /// As `Dense`; this output stands on this input.
    InPlace(&'static str, &'static str),
}

/// An input: its bytes, and which of its 32-bit words are defined.
#[derive(Clone, Debug)]
pub struct Data {
    pub words: Vec<u32>,
    pub defined: Vec<bool>,
}

impl Data {
    pub fn halves(values: &[f16]) -> Data {
        let words: Vec<u32> = values
            .chunks(2)
            .map(|pair| {
                let high = pair.get(1).map_or(0xfe5a, |h| h.to_bits());
                u32::from(pair[0].to_bits()) | u32::from(high) << 16
            })
            .collect();
        let defined = vec![true; words.len()];
        Data { words, defined }
    }

    pub fn singles(values: &[f32]) -> Data {
        let words: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
        let defined = vec![true; words.len()];
        Data { words, defined }
    }
}

/// Words of an output as halves, singles or bytes.
pub struct Output(pub Vec<u32>);

impl Output {
    pub fn halves(&self) -> Vec<f16> {
        let halves = |&w: &u32| [f16::from_bits(w as u16), f16::from_bits((w >> 16) as u16)];
        self.0.iter().flat_map(halves).collect()
    }

    pub fn singles(&self) -> Vec<f32> {
        self.0.iter().map(|&w| f32::from_bits(w)).collect()
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|w| w.to_le_bytes()).collect()
    }
}

pub struct Kernel {
    pub contract: Contract,
    code: Vec<(u32, Vec<u32>)>,
    entry: u32,
}

/// Assemble and link all kernels of a family.
pub fn family(name: &str) -> Vec<Kernel> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../kernels")
        .join(name);
    let text = |file: &str| std::fs::read_to_string(path.join(file)).expect("kernel file");
    let family = Family::parse(&text("kernel.toml")).expect("contract");
    let load = |contract: Contract| {
        let source = text(&contract.source);
        Kernel::load(contract, &source)
    };
    family.kernels.into_iter().map(load).collect()
}

impl Kernel {
    fn load(contract: Contract, text: &str) -> Kernel {
        let name = &contract.source;
        let source = Source { name, text };
        let assembly = assemble(source, &Options::default())
            .unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(assembly.warnings, [], "{name}");
        let placed = Placed {
            object: &assembly.object,
            addresses: assembly.object.addresses_from(CODE),
        };
        let linked = link(&[placed], &BTreeMap::new(), SRAM_BASE).expect("link");
        let word = |w: &[u8]| u32::from_le_bytes(w.try_into().expect("whole words"));
        let code: Vec<(u32, Vec<u32>)> = linked
            .segments
            .iter()
            .filter(|segment| !segment.bytes.is_empty())
            .map(|segment| (segment.address, segment.bytes.chunks(4).map(word).collect()))
            .collect();
        let entry = linked.globals[&contract.name] as u32;
        Kernel {
            contract,
            code,
            entry,
        }
    }

    pub fn code_words(&self) -> usize {
        self.code.iter().map(|(_, words)| words.len()).sum()
    }

    fn place(&self, layout: Layout, scalars: &Scalars) -> BTreeMap<String, u32> {
        let mut placed = BTreeMap::new();
        let mut low = 0x60000;
        let mut high = REGION_BOUNDARY;
        for pointer in self.contract.pointers() {
            if let Layout::InPlace(out, input) = layout
                && pointer.name == out
            {
                placed.insert(pointer.name.clone(), placed[input]);
                continue;
            }
            let bytes = self.contract.bytes(pointer, scalars).expect("extent") as u32;
            let span = bytes + pointer.over_read + GUARD;
            let standard = pointer.class == MemoryClass::Standard;
            let start = if layout == Layout::Elements && standard && low + span <= REGION_BOUNDARY {
                let start = low;
                low = (start + span).next_multiple_of(0x4000);
                start
            } else if layout == Layout::Elements {
                let start = high;
                high = (start + span).next_multiple_of(0x8000);
                start
            } else {
                let start = (high + GUARD).next_multiple_of(2 * pointer.align) + pointer.align;
                high = start + span;
                start
            };
            assert!(start + span <= LOADER_LIMIT, "no room");
            placed.insert(pointer.name.clone(), start);
        }
        placed
    }

    /// Run a shape and give the outputs; everything else must be as it was.
    pub fn run(
        &self,
        layout: Layout,
        scalars: &Scalars,
        inputs: &BTreeMap<&str, Data>,
    ) -> (BTreeMap<String, Output>, CallResult) {
        self.contract.check_scalars(scalars).expect("legal scalars");
        let addresses = self.place(layout, scalars);
        let place = format!(
            "{} {scalars:?} {layout:?} {addresses:x?}",
            self.contract.name
        );
        let mut tile = TileRun::new(&self.code).expect("code");
        self.fill(&mut tile, &addresses, inputs);
        let word = |arg: &Arg| match arg.pointer() {
            Some(pointer) => addresses[&pointer.name],
            None => scalars[arg.name()] as u32,
        };
        let frame: Vec<u32> = self.contract.args.iter().map(word).collect();
        tile.frame(FRAME, &frame).expect("frame");
        let before = tile.peek_words(SRAM_BASE, SRAM_BYTES / 4).expect("memory");

        let mut timer = TileRun::new(&self.code).expect("code");
        timer.frame(FRAME, &frame).expect("frame");
        let timed = timer.without_data().call(self.entry);
        let result = tile
            .call(self.entry)
            .unwrap_or_else(|fault| panic!("{place}: {fault}"));
        assert_eq!(timed.as_ref().ok(), Some(&result), "{place}: {timed:?}");

        let after = tile.peek_words(SRAM_BASE, SRAM_BYTES / 4).expect("memory");
        let mut writable = vec![SCRATCH];
        let mut outputs = BTreeMap::new();
        for arg in self.contract.args.iter().filter(|arg| arg.writes()) {
            let pointer = arg.pointer().expect("a pointer is written");
            let at = addresses[&pointer.name];
            let bytes = self.contract.bytes(pointer, scalars).expect("extent") as u32;
            writable.push(at..at + bytes);
            let words = tile.read_words(at, bytes / 4);
            let words = words.unwrap_or_else(|fault| panic!("{place}: {fault}"));
            outputs.insert(pointer.name.clone(), Output(words));
        }
        for i in (0..before.len()).filter(|&i| before[i] != after[i]) {
            let at = SRAM_BASE + 4 * i as u32;
            let legal = writable.iter().any(|range| range.contains(&at));
            assert!(legal, "{place}: wrote {:#x} at {at:#x}", after[i]);
        }
        (outputs, result)
    }

    fn fill(
        &self,
        tile: &mut TileRun,
        addresses: &BTreeMap<String, u32>,
        inputs: &BTreeMap<&str, Data>,
    ) {
        tile.write_words(SRAM_BASE, &vec![POISON; (SRAM_BYTES / 4) as usize])
            .and_then(|tile| tile.poison(SRAM_BASE, SRAM_BYTES / 4))
            .expect("whole memory");
        for (address, words) in &self.code {
            tile.write_words(*address, words).expect("code");
        }
        for (name, data) in inputs {
            let at = addresses[*name];
            tile.write_words(at, &data.words).expect("input");
            for (i, _) in data
                .defined
                .iter()
                .enumerate()
                .filter(|(_, defined)| !**defined)
            {
                tile.poison(at + 4 * i as u32, 1).expect("hole");
            }
        }
    }
}

/// A line of the table of measured and published cycles; fails above 1.05 times the published.
pub fn report(kernel: &Kernel, case: &Case, result: &CallResult) {
    let issues = result.issues.iter().max().expect("six workers");
    let name = format!("{} {}", kernel.contract.name, case.name);
    let Some(record) = &case.record else {
        println!("{name:42} {:>8} cycles {issues:>7} issues", result.cycles);
        return;
    };
    let ratio = result.cycles as f64 / record.cycles as f64;
    println!(
        "{name:42} {:>8} cycles {issues:>7} issues  {} {:>8} {ratio:.3}",
        result.cycles, record.id, record.cycles
    );
    assert!(ratio <= 1.05, "{name}: {} cycles", result.cycles);
}

/// Reproducible numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Uniform in -1..1.
    pub fn unit(&mut self) -> f32 {
        self.next() as i32 as f32 / 2_147_483_648.0
    }

    /// About normal with this spread.
    pub fn normal(&mut self, spread: f32) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() / 1.414 * spread
    }
}
