//! One call of a kernel on a tile of its own, arranged by its contract.
//!
//! Input: contract, object, scalars. Output: a tile with code, frame and room for every argument.
//! Invariants: every argument starts an element of its memory class; distinct edges hold at the
//! ends of the arguments.
//! Not here: what the arguments hold, what the time is used for.

use std::collections::BTreeMap;
use std::ops::Range;

use ipu_emit::link::{Placed, link};
use ipu_emit::object::Object;
use ipu_ir::contract::{Arg, Contract, MemoryClass, Pointer};
use ipu_sim::TileRun;
use ipu_target::memory::{
    ELEMENT_BYTES, ELEMENT_PAIR_BYTES, LOADER_LIMIT, REGION_BOUNDARY, SRAM_BASE, element_of,
};

/// Kernel code, in an element without data.
const CODE: u32 = 0x5c000;
/// The frame, in the element behind the runtime state.
const FRAME: u32 = 0x58800;
/// Data of region 0 begins here.
const DATA: u32 = 0x60000;

/// Values of the scalar arguments by name.
pub type Scalars = BTreeMap<String, i64>;

/// A tile that is ready to call.
pub struct KernelCall<'a> {
    /// The tile; arguments are undefined.
    pub tile: TileRun,
    /// Where it is called.
    pub entry: u32,
    /// Addresses of the pointer arguments by name.
    pub spans: BTreeMap<&'a str, Range<u32>>,
}

impl<'a> KernelCall<'a> {
    /// Arrange a call; the error says what the kernel refuses.
    pub fn new(contract: &'a Contract, object: &Object, scalars: &Scalars) -> Result<Self, String> {
        contract
            .check_scalars(scalars)
            .map_err(|error| error.to_string())?;
        let placed = Placed {
            object,
            addresses: object.addresses_from(CODE),
        };
        let linked = link(&[placed], &BTreeMap::new(), SRAM_BASE);
        let linked = linked.map_err(|error| error.to_string())?;
        let segments = linked
            .segments
            .iter()
            .filter(|segment| !segment.bytes.is_empty());
        let code: Vec<_> = segments
            .map(|segment| (segment.address, words(&segment.bytes)))
            .collect();
        let entry = linked.globals.get(&contract.name).copied();
        let entry = entry.ok_or_else(|| format!("there is no symbol {}", contract.name))? as u32;
        let mut tile = TileRun::new(&code).map_err(|fault| fault.to_string())?;
        let spans = place(contract, scalars)?;
        let value = |arg: &Arg| match arg.pointer() {
            Some(pointer) => spans[&*pointer.name].start,
            None => scalars[arg.name()] as u32,
        };
        let frame: Vec<u32> = contract.args.iter().map(value).collect();
        tile.frame(FRAME, &frame)
            .map_err(|fault| fault.to_string())?;
        Ok(Self { tile, entry, spans })
    }
}

/// Every argument at the start of an element, standard ones in region 0 where they fit.
fn place<'a>(
    contract: &'a Contract,
    scalars: &Scalars,
) -> Result<BTreeMap<&'a str, Range<u32>>, String> {
    let mut spans: BTreeMap<&str, Range<u32>> = BTreeMap::new();
    let mut cursors = [DATA, REGION_BOUNDARY];
    for pointer in contract.pointers() {
        let bytes = contract.bytes(pointer, scalars);
        let bytes = bytes.map_err(|error| error.to_string())? as u32;
        let rivals = rivals(contract, pointer, &spans);
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
                return Err(format!("{}: no room on one tile", contract.name));
            }
            region = 1;
        };
        cursors[region] = start + bytes + pointer.over_read;
        spans.insert(&pointer.name, start..start + bytes);
    }
    Ok(spans)
}

/// Elements in which arguments end that must be distinct from this one.
fn rivals(contract: &Contract, pointer: &Pointer, spans: &BTreeMap<&str, Range<u32>>) -> Vec<u32> {
    let other = |args: &[String; 2]| match args {
        [a, b] if *a == pointer.name => spans.get(&**b),
        [a, b] if *b == pointer.name => spans.get(&**a),
        _ => None,
    };
    let edges = contract.distinct.iter();
    let rivals = edges.filter_map(|edge| other(&edge.args));
    rivals.map(|span| element_of(span.end - 1)).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |four: &[u8]| u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    bytes.chunks_exact(4).map(word).collect()
}
