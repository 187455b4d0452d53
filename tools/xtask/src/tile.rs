//! Kernels of `kernels/`, assembled, and calls of one on a simulated tile.

use std::collections::BTreeMap;
use std::ops::Range;

use half::f16;
use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::link::{Placed, link};
use ipu_emit::object::Object;
use ipu_ir::contract::{Arg, Contract, Family, MemoryClass, Pointer};
use ipu_package::Dtype;
use ipu_sim::TileRun;
use ipu_target::memory::{
    ELEMENT_BYTES, ELEMENT_PAIR_BYTES, LOADER_LIMIT, REGION_BOUNDARY, SRAM_BASE, element_of,
};

use crate::{Failure, read, root};

/// Kernel code, in an element without data.
const CODE: u32 = 0x5c000;
/// The frame, in the element behind the runtime state.
const FRAME: u32 = 0x58800;
/// Data of region 0 begins here.
const DATA: u32 = 0x60000;

pub type Scalars = BTreeMap<String, i64>;

/// A kernel and the object it was assembled to.
pub struct Kernel {
    pub contract: Contract,
    pub object: Object,
}

/// All kernels, in order of family and contract.
pub fn kernels() -> Result<Vec<Kernel>, Failure> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root().join("kernels"))? {
        folders.push(entry?.path());
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    let mut kernels = Vec::new();
    for folder in folders {
        for contract in Family::parse(&read(&folder.join("kernel.toml"))?)?.kernels {
            let text = read(&folder.join(&contract.source))?;
            let source = Source {
                name: &contract.source,
                text: &text,
            };
            let assembly = assemble(source, &Options::default());
            let assembly = assembly.map_err(|errors| format!("{}: {errors}", contract.source))?;
            let object = assembly.object;
            kernels.push(Kernel { contract, object });
        }
    }
    Ok(kernels)
}

impl Kernel {
    /// A tile with this kernel and a frame for these scalars, and where to call it. With data, the
    /// arguments hold reproducible numbers.
    pub fn tile(&self, scalars: &Scalars, data: bool) -> Result<(TileRun, u32), Failure> {
        let placed = Placed {
            object: &self.object,
            addresses: self.object.addresses_from(CODE),
        };
        let linked = link(&[placed], &BTreeMap::new(), SRAM_BASE)?;
        let segments = linked
            .segments
            .iter()
            .filter(|segment| !segment.bytes.is_empty());
        let code: Vec<_> = segments
            .map(|segment| (segment.address, words(&segment.bytes)))
            .collect();
        let entry = linked.globals[&self.contract.name] as u32;
        let mut tile = TileRun::new(&code).map_err(|fault| fault.to_string())?;
        if !data {
            tile.without_data();
        }
        let spans = self.place(scalars)?;
        let value = |arg: &Arg| match arg.pointer() {
            Some(pointer) => spans[&*pointer.name].start,
            None => scalars[arg.name()] as u32,
        };
        let frame: Vec<u32> = self.contract.args.iter().map(value).collect();
        tile.frame(FRAME, &frame)
            .map_err(|fault| fault.to_string())?;
        let mut random = Random(1);
        for arg in self.contract.args.iter().filter(|_| data) {
            if let Arg::In(pointer) | Arg::Inout(pointer) = arg {
                let span = &spans[&*pointer.name];
                let bytes = random.bytes(pointer.dtype, span.len().next_multiple_of(4));
                let written = tile.write(span.start, &bytes);
                written.map_err(|fault| fault.to_string())?;
            }
        }
        Ok((tile, entry))
    }

    /// Every argument at the start of an element, standard ones in region 0 where they fit.
    fn place(&self, scalars: &Scalars) -> Result<BTreeMap<&str, Range<u32>>, Failure> {
        let mut spans: BTreeMap<&str, Range<u32>> = BTreeMap::new();
        let mut cursors = [DATA, REGION_BOUNDARY];
        for pointer in self.contract.pointers() {
            let bytes = self.contract.bytes(pointer, scalars)? as u32;
            let rivals = self.rivals(pointer, &spans);
            let mut region = usize::from(pointer.class == MemoryClass::Interleaved);
            let start = loop {
                let size = [ELEMENT_BYTES, ELEMENT_PAIR_BYTES][region];
                let limit = [REGION_BOUNDARY, LOADER_LIMIT][region];
                let mut start = cursors[region].next_multiple_of(size);
                while rivals.contains(&element_of(start)) {
                    start += size;
                }
                if start + bytes + pointer.over_read <= limit {
                    break start;
                }
                if region == 1 {
                    return Err(format!("{}: no room", self.contract.name).into());
                }
                region = 1;
            };
            cursors[region] = start + bytes + pointer.over_read;
            spans.insert(&pointer.name, start..start + bytes);
        }
        Ok(spans)
    }

    /// Elements in which arguments end that must be distinct from this one.
    fn rivals(&self, pointer: &Pointer, spans: &BTreeMap<&str, Range<u32>>) -> Vec<u32> {
        let other = |args: &[String; 2]| match args {
            [a, b] if *a == pointer.name => spans.get(&**b),
            [a, b] if *b == pointer.name => spans.get(&**a),
            _ => None,
        };
        let edges = self.contract.distinct.iter();
        let rivals = edges.filter_map(|edge| other(&edge.args));
        rivals.map(|span| element_of(span.end - 1)).collect()
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |four: &[u8]| u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

/// Reproducible numbers: one step of a linear congruence each.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 32) as u32
    }

    /// Finite numbers of a type, those of the float types at most 1 in size, or F143 codes of at
    /// most 120.
    fn bytes(&mut self, dtype: Dtype, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 4);
        while bytes.len() < count {
            let bits = self.next();
            let unit = bits as i32 as f32 / 2_147_483_648.0;
            match dtype {
                Dtype::F16 => bytes.extend(f16::from_f32(unit).to_le_bytes()),
                Dtype::F32 => bytes.extend(unit.to_le_bytes()),
                Dtype::F143 => bytes.push((bits & 0x80) as u8 | (1 + (bits >> 8) as u8 % 119)),
                Dtype::U32 => bytes.extend(bits.to_le_bytes()),
            }
        }
        bytes
    }
}
