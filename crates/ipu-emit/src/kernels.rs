//! Kernel objects placed at the same addresses on every tile.
//!
//! Input: objects of the kernels that a program calls. Output: linked segments, entry addresses,
//! the first free address after them.
//! Invariants: code lies in the boot element and in the support reservation, nowhere else.
//! Not here: tile programs.

use std::collections::BTreeMap;

use ipu_target::memory::{IMAGE_ENTRY, SRAM_BASE};

use crate::asm::{Options, Source, assemble};
use crate::link::{self, link};
use crate::object::Object;
use crate::program::EmitError;

/// First support element: after the tables element.
pub const SUPPORT_BASE: u32 = 0x5c000;
/// Frames start after the runtime state.
pub const TABLES: std::ops::Range<u32> = 0x586e0..SUPPORT_BASE;
/// Boot code: one branch, then kernels.
const BOOT_CODE: std::ops::Range<u32> = IMAGE_ENTRY + 4..0x50000;

/// Linked kernel code.
pub struct KernelImage {
    /// Address and words of each section.
    pub segments: Vec<(u32, Vec<u32>)>,
    /// How many of them are the runtime's; they come first.
    pub runtime: usize,
    pub entries: BTreeMap<String, u32>,
    /// Where tile programs may start.
    pub end: u32,
}

/// Lay out and link the runtime and the named kernels.
pub fn kernel_image(
    names: &[String],
    objects: &BTreeMap<String, Object>,
    support_end: u32,
) -> Result<KernelImage, EmitError> {
    let runtime = assemble(
        Source {
            name: "runtime.S",
            text: include_str!("runtime.S"),
        },
        &Options::default(),
    )
    .map_err(|errors| EmitError::Runtime(errors.to_string()))?
    .object;
    let mut inputs = vec![&runtime];
    for name in names {
        inputs.push(
            objects
                .get(name)
                .ok_or_else(|| EmitError::NoKernel(name.clone()))?,
        );
    }
    let mut space = Space {
        boot: BOOT_CODE.start,
        support: SUPPORT_BASE,
        end: support_end,
    };
    let mut placed = Vec::new();
    for object in inputs {
        let mut addresses = Vec::new();
        for section in &object.sections {
            addresses.push(space.take(section.bytes.len() as u32, section.align.max(8))?);
        }
        placed.push(link::Placed { object, addresses });
    }
    let linked = link(&placed, &BTreeMap::new(), SRAM_BASE)?;
    let filled = || {
        let segments = linked.segments.iter();
        segments.filter(|segment| !segment.bytes.is_empty())
    };
    let runtime = filled().take_while(|segment| segment.object == 0).count();
    let segments = filled()
        .map(|segment| (segment.address, words_of(&segment.bytes)))
        .collect();
    let entries = linked
        .globals
        .iter()
        .map(|(name, value)| (name.clone(), *value as u32))
        .collect();
    Ok(KernelImage {
        segments,
        runtime,
        entries,
        end: space.support.next_multiple_of(8),
    })
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks(4)
        .map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(word)
        })
        .collect()
}

/// Free code memory: the boot element first.
struct Space {
    boot: u32,
    support: u32,
    end: u32,
}

impl Space {
    fn take(&mut self, bytes: u32, align: u32) -> Result<u32, EmitError> {
        let boot = self.boot.next_multiple_of(align);
        if boot + bytes <= BOOT_CODE.end {
            self.boot = boot + bytes;
            return Ok(boot);
        }
        let support = self.support.next_multiple_of(align);
        if support + bytes > self.end {
            return Err(EmitError::SupportFull {
                needed: support + bytes - SUPPORT_BASE,
                reserved: self.end - SUPPORT_BASE,
            });
        }
        self.support = support + bytes;
        Ok(support)
    }
}
