//! Runs contract cases of kernels on one simulated tile.
//!
//! A kernel is assembled from `kernels/<family>`, linked at a code element and called with its
//! arguments at legal addresses. All other memory holds NaN bits and is undefined; after the call
//! nothing outside the `out` arguments may have changed.
#![allow(dead_code)]

pub mod judged;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::link::{Placed, link};
use ipu_ir::contract::{Arg, Case, Contract, Family, MemoryClass, Pointer};
use ipu_sim::{CallResult, TileRun};
use ipu_target::memory::{LOADER_LIMIT, REGION_BOUNDARY, SRAM_BASE, SRAM_END, element_of};

/// Kernel code, in an element without data.
const CODE: u32 = 0x5c000;
/// The frame, in the tables element behind the runtime state.
const FRAME: u32 = 0x58800;
/// Data of region 0 begins here.
const REGION0_DATA: u32 = 0x60000;
/// What all memory holds at first: two F16 NaN.
pub const POISON: u32 = 0xfe5a_fe5a;
/// Untouched bytes before and behind every argument.
const GUARD: u32 = 64;

pub type Scalars = BTreeMap<String, i64>;

/// How arguments are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Every argument at the start of an element, standard ones in region 0 where they fit.
    Elements,
    /// Close together in region 1 with the least alignment allowed.
    DenseRegion1,
    /// Standard arguments close together in region 0 with the least alignment allowed.
    DenseRegion0,
    /// As `Elements`, but the pointer argument of this index ends, over-read included, where
    /// memory ends, so that a longer over-read is a fault.
    End(usize),
}

/// Bytes of an argument. Ranges in `holes` are gaps: undefined in an input, unwritten in an output.
#[derive(Clone, Debug, Default)]
pub struct Data {
    pub bytes: Vec<u8>,
    pub holes: Vec<Range<u32>>,
}

impl Data {
    pub fn new(bytes: Vec<u8>) -> Data {
        Data {
            bytes,
            holes: Vec::new(),
        }
    }

    pub fn halves(values: impl IntoIterator<Item = u16>) -> Data {
        Data::new(values.into_iter().flat_map(u16::to_le_bytes).collect())
    }

    pub fn words(values: impl IntoIterator<Item = u32>) -> Data {
        Data::new(values.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    /// Rows of `used` bytes at a distance of `pitch` bytes: the gaps become holes.
    pub fn rows(mut self, used: usize, pitch: usize) -> Data {
        let length = self.bytes.len();
        self.holes = (0..length)
            .step_by(pitch)
            .map(|row| (row + used) as u32..(row + pitch).min(length) as u32)
            .filter(|hole| hole.start < hole.end)
            .collect();
        self
    }
}

/// A linked kernel.
pub struct Kernel {
    pub contract: Contract,
    code: Vec<(u32, Vec<u32>)>,
    entry: u32,
}

fn family_path(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../kernels")
        .join(family)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Assemble and link all kernels of a family.
pub fn family(name: &str) -> Vec<Kernel> {
    let path = family_path(name);
    let family = Family::parse(&text(&path.join("kernel.toml"))).expect("contract");
    assert_eq!(family.family, name);
    let load = |contract| Kernel::load(&path, contract);
    family.kernels.into_iter().map(load).collect()
}

impl Kernel {
    fn load(path: &Path, contract: Contract) -> Kernel {
        let source = text(&path.join(&contract.source));
        let source = Source {
            name: &contract.source,
            text: &source,
        };
        let assembly = assemble(source, &Options::default())
            .unwrap_or_else(|errors| panic!("{}: {errors}", contract.source));
        assert_eq!(assembly.warnings, [], "{}", contract.source);
        let placed = Placed {
            object: &assembly.object,
            addresses: assembly.object.addresses_from(CODE),
        };
        let linked = link(&[placed], &BTreeMap::new(), SRAM_BASE).expect("link");
        let words = |bytes: &[u8]| -> Vec<u32> {
            let word = |w: &[u8]| u32::from_le_bytes(w.try_into().expect("whole words"));
            bytes.chunks(4).map(word).collect()
        };
        let code: Vec<_> = linked
            .segments
            .iter()
            .filter(|segment| !segment.bytes.is_empty())
            .map(|segment| (segment.address, words(&segment.bytes)))
            .collect();
        let entry = linked.globals[&contract.name] as u32;
        Kernel {
            contract,
            code,
            entry,
        }
    }

    /// Words of code.
    pub fn code_words(&self) -> usize {
        self.code.iter().map(|(_, words)| words.len()).sum()
    }

    /// Every way of placing the arguments that the tests run.
    pub fn layouts(&self) -> Vec<Layout> {
        let mut layouts = vec![Layout::Elements, Layout::DenseRegion1, Layout::DenseRegion0];
        layouts.extend((0..self.contract.pointers().count()).map(Layout::End));
        layouts
    }

    fn bytes(&self, pointer: &Pointer, scalars: &Scalars) -> u32 {
        self.contract.bytes(pointer, scalars).expect("extent") as u32
    }

    /// Addresses of all pointer arguments.
    fn place(&self, layout: Layout, scalars: &Scalars) -> BTreeMap<String, u32> {
        let mut placed: Vec<(String, Range<u32>)> = Vec::new();
        let mut cursors = [REGION0_DATA, REGION_BOUNDARY];
        for (index, pointer) in self.contract.pointers().enumerate() {
            let bytes = self.bytes(pointer, scalars);
            if layout == Layout::End(index) {
                let start = SRAM_END - bytes - pointer.over_read;
                let start = start / pointer.align * pointer.align;
                placed.push((pointer.name.clone(), start..SRAM_END));
                continue;
            }
            let standard = pointer.class == MemoryClass::Standard;
            let mut region = usize::from(!standard || layout == Layout::DenseRegion1);
            let rivals: Vec<u32> = placed
                .iter()
                .filter(|(name, _)| self.is_distinct(name, &pointer.name))
                .map(|(_, range)| element_of(range.end - 1))
                .collect();
            let span = loop {
                let span = candidate(layout, cursors[region], pointer, bytes, &rivals);
                let limit = [REGION_BOUNDARY, LOADER_LIMIT][region];
                if span.end + GUARD <= limit {
                    break span;
                }
                assert_eq!(region, 0, "{}: no room", self.contract.name);
                region = 1;
            };
            cursors[region] = span.end + GUARD;
            placed.push((pointer.name.clone(), span));
        }
        placed
            .into_iter()
            .map(|(name, span)| (name, span.start))
            .collect()
    }

    fn is_distinct(&self, a: &str, b: &str) -> bool {
        let mut edges = self.contract.distinct.iter();
        edges.any(|edge| edge.args == [a, b] || edge.args == [b, a])
    }

    fn frame(&self, scalars: &Scalars, addresses: &BTreeMap<String, u32>) -> Vec<u32> {
        let word = |arg: &Arg| match arg.pointer() {
            Some(pointer) => addresses[&pointer.name],
            None => scalars[arg.name()] as u32,
        };
        self.contract.args.iter().map(word).collect()
    }

    /// Run a shape; check that `expected` is what the `out` arguments hold and that nothing else
    /// changed. The call is repeated on the same tile. The result is that of the first call.
    pub fn check(
        &self,
        layout: Layout,
        scalars: &Scalars,
        inputs: &BTreeMap<&str, Data>,
        expected: &BTreeMap<&str, Data>,
    ) -> CallResult {
        self.contract.check_scalars(scalars).expect("legal scalars");
        let addresses = self.place(layout, scalars);
        let mut tile = TileRun::new(&self.code).expect("code");
        poison(&mut tile, &self.code);
        for pointer in self.contract.pointers() {
            let Some(data) = inputs.get(&*pointer.name) else {
                continue;
            };
            let (name, address) = (&pointer.name, addresses[&pointer.name]);
            assert_eq!(
                data.bytes.len() as u32,
                self.bytes(pointer, scalars),
                "{name}"
            );
            tile.write(address, &data.bytes).expect("input");
            for hole in &data.holes {
                let words = (hole.end - hole.start) / 4;
                tile.write_words(address + hole.start, &vec![POISON; words as usize])
                    .and_then(|tile| tile.poison(address + hole.start, words))
                    .expect("hole");
            }
        }
        tile.frame(FRAME, &self.frame(scalars, &addresses))
            .expect("frame");
        let before = memory(&tile);
        let place = format!(
            "{} {scalars:?} {layout:?} {addresses:x?}",
            self.contract.name
        );
        let mut results = (0..2).map(|round| {
            let result = tile.call(self.entry);
            let result = result.unwrap_or_else(|fault| panic!("{place}: {fault}"));
            let place = format!("{place} round {round}");
            self.compare(&tile, &before, &addresses, expected, scalars, &place);
            result
        });
        let (first, second) = (results.next(), results.next());
        assert_eq!(first, second, "{place}: a repeated call differs");
        let first = first.expect("first call");
        assert_eq!(first, self.time(layout, scalars), "{place}: without data");
        first
    }

    /// A call of which no data is computed.
    pub fn time(&self, layout: Layout, scalars: &Scalars) -> CallResult {
        let frame = self.frame(scalars, &self.place(layout, scalars));
        let mut tile = TileRun::new(&self.code).expect("code");
        tile.without_data().frame(FRAME, &frame).expect("frame");
        let result = tile.call(self.entry);
        result.unwrap_or_else(|fault| panic!("{}: {fault}", self.contract.name))
    }

    fn compare(
        &self,
        tile: &TileRun,
        before: &[u32],
        addresses: &BTreeMap<String, u32>,
        expected: &BTreeMap<&str, Data>,
        scalars: &Scalars,
        place: &str,
    ) {
        let mut wanted = before.to_vec();
        for arg in self.contract.args.iter().filter(|arg| arg.writes()) {
            let pointer = arg.pointer().expect("a pointer is written");
            let (address, data) = (addresses[&pointer.name], &expected[&*pointer.name]);
            assert_eq!(data.bytes.len() as u32, self.bytes(pointer, scalars));
            assert_eq!(data.bytes.len() % 4, 0);
            for (i, four) in data.bytes.chunks(4).enumerate() {
                let offset = 4 * i as u32;
                if data.holes.iter().any(|hole| hole.contains(&offset)) {
                    continue;
                }
                let at = address + offset;
                assert!(
                    tile.is_defined(at, 1),
                    "{place}: {} word {i} at {at:#x} is undefined",
                    pointer.name
                );
                let word = u32::from_le_bytes(four.try_into().expect("four bytes"));
                wanted[((at - SRAM_BASE) / 4) as usize] = word;
            }
        }
        let found = memory(tile);
        let Some(i) = (0..found.len()).find(|&i| found[i] != wanted[i]) else {
            return;
        };
        let count = (0..found.len()).filter(|&i| found[i] != wanted[i]).count();
        panic!(
            "{place}: {count} words differ, first at {:#x}: {:#010x}, expected {:#010x}",
            SRAM_BASE + 4 * i as u32,
            found[i],
            wanted[i]
        );
    }
}

/// The next legal span at or behind a cursor.
fn candidate(
    layout: Layout,
    cursor: u32,
    pointer: &Pointer,
    bytes: u32,
    rivals: &[u32],
) -> Range<u32> {
    let element = |address: u32| match address {
        0..REGION_BOUNDARY => 0x4000,
        _ => 0x8000,
    };
    let mut start = cursor;
    loop {
        start = match layout {
            Layout::Elements | Layout::End(_) => start.next_multiple_of(element(start)),
            _ => (start + GUARD).next_multiple_of(2 * pointer.align) + pointer.align,
        };
        if !rivals.contains(&element_of(start)) {
            return start..start + bytes + pointer.over_read;
        }
        start = (start + 1).next_multiple_of(element(start));
    }
}

/// Everything but code holds NaN bits and is undefined.
fn poison(tile: &mut TileRun, code: &[(u32, Vec<u32>)]) {
    let words = ipu_target::memory::SRAM_BYTES / 4;
    tile.write_words(SRAM_BASE, &vec![POISON; words as usize])
        .and_then(|tile| tile.poison(SRAM_BASE, words))
        .expect("whole memory");
    for (address, words) in code {
        tile.write_words(*address, words).expect("code");
    }
}

fn memory(tile: &TileRun) -> Vec<u32> {
    let words = ipu_target::memory::SRAM_BYTES / 4;
    tile.peek_words(SRAM_BASE, words).expect("whole memory")
}

/// A line of the table of measured and published cycles; fails above 1.05 times the published.
pub fn report(kernel: &Kernel, case: &Case, result: &CallResult) {
    let issues = result.issues.iter().max().expect("six workers");
    let name = format!("{} {}", kernel.contract.name, case.name);
    let Some(record) = &case.record else {
        println!("{name:40} {:>8} cycles {issues:>7} issues", result.cycles);
        return;
    };
    let ratio = result.cycles as f64 / record.cycles as f64;
    println!(
        "{name:40} {:>8} cycles {issues:>7} issues  {} {:>8} {ratio:.3}",
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
}
