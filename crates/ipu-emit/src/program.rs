//! A placed program to a package: kernel code, tile programs, frames, rows, bindings.
//!
//! Input: a placed tile program and kernel objects. Output: a package.
//! Invariants: every word comes from the instruction table or from a row; frames lie in the tables
//! element, code in the boot element and the support reservation; equal inputs give equal bytes.
//! Not here: placement, schedules, admission limits, host packets.

use std::collections::{BTreeMap, HashMap};

use ipu_ir::program::{Placed, Reservations};
use ipu_package::{Binding, Package, Piece, Segment, SegmentKind, TileImage};
use ipu_target::memory::IMAGE_ENTRY;
use rayon::prelude::*;
use thiserror::Error;

use crate::kernels::{KernelImage, SUPPORT_BASE, kernel_image};
use crate::link::LinkError;
use crate::object::Object;
use crate::tile_code::{TileCode, TileWork, per_tile};
use crate::words::Words;

#[derive(Debug, Error)]
pub enum EmitError {
    #[error("no object for the kernel {0}")]
    NoKernel(String),
    #[error("the runtime does not assemble: {0}")]
    Runtime(String),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("code needs {needed} bytes of the {reserved} reserved for support")]
    SupportFull { needed: u32, reserved: u32 },
    #[error("tile {tile}: frames need {needed} bytes of the {available} in the tables element")]
    TablesFull {
        tile: u32,
        needed: u32,
        available: u32,
    },
    #[error("tile {tile}: its program ends at {end:#x}, after the support reservation {limit:#x}")]
    ProgramTooLong { tile: u32, end: u32, limit: u32 },
}

/// Emit the package of a placed program.
pub fn emit(
    placed: &Placed,
    objects: &BTreeMap<String, Object>,
    device: &str,
) -> Result<Package, EmitError> {
    let program = &placed.program;
    let support_end = support_end(placed.reservations);
    let kernels = kernel_image(&program.kernels, objects, support_end)?;
    let work = per_tile(placed);
    let codes: Vec<TileCode> = work
        .par_iter()
        .enumerate()
        .map(|(tile, work)| tile_code(placed, &kernels, tile as u32, work, support_end))
        .collect::<Result<_, _>>()?;
    let mut pool = Pool::default();
    let shared: Vec<Piece> = kernels
        .segments
        .iter()
        .map(|(address, words)| pool.piece(SegmentKind::Kernel, *address, words.clone()))
        .collect();
    let images = codes
        .into_iter()
        .enumerate()
        .map(|(tile, code)| image(&mut pool, &shared, &kernels, tile as u32, code))
        .collect();
    Ok(Package {
        device: device.to_owned(),
        tiles: program.tiles,
        segments: pool.segments,
        images,
        tensors: program.host_tensors.clone(),
        bindings: bindings(placed),
        steps: program.infos.clone(),
    })
}

/// End of the support reservation.
pub fn support_end(reservations: Reservations) -> u32 {
    SUPPORT_BASE + reservations.support_bytes
}

fn tile_code(
    placed: &Placed,
    kernels: &KernelImage,
    tile: u32,
    work: &TileWork<'_>,
    support_end: u32,
) -> Result<TileCode, EmitError> {
    let code = TileCode::new(placed, kernels, tile, work)?;
    let end = code.program.here();
    if end > support_end {
        return Err(EmitError::ProgramTooLong {
            tile,
            end,
            limit: support_end,
        });
    }
    Ok(code)
}

fn image(
    pool: &mut Pool,
    shared: &[Piece],
    kernels: &KernelImage,
    tile: u32,
    code: TileCode,
) -> TileImage {
    let mut boot = Words::new(IMAGE_ENTRY);
    boot.bri(kernels.end);
    let mut pieces = vec![pool.piece(SegmentKind::TileProgram, IMAGE_ENTRY, boot.words)];
    pieces.extend_from_slice(shared);
    pieces.push(pool.piece(SegmentKind::TileProgram, kernels.end, code.program.words));
    if !code.frames.words.is_empty() {
        pieces.push(pool.piece(SegmentKind::Frames, code.frames.base, code.frames.words));
    }
    for (address, words) in code.rows {
        pieces.push(pool.piece(SegmentKind::Row, address, words));
    }
    pieces.sort_by_key(|piece| piece.address);
    TileImage {
        tile,
        entry: IMAGE_ENTRY,
        pieces,
        marks: code.marks,
    }
}

/// Distinct segments, in order of first use.
#[derive(Default)]
struct Pool {
    segments: Vec<Segment>,
    index: HashMap<Segment, u32>,
}

impl Pool {
    fn piece(&mut self, kind: SegmentKind, address: u32, words: Vec<u32>) -> Piece {
        let segment = Segment { kind, words };
        let next = self.segments.len() as u32;
        let segments = &mut self.segments;
        let index = *self.index.entry(segment).or_insert_with_key(|segment| {
            segments.push(segment.clone());
            next
        });
        Piece {
            address,
            segment: index,
        }
    }
}

fn bindings(placed: &Placed) -> Vec<Binding> {
    let address = |binding: &ipu_ir::program::HostBinding| {
        let id = binding.place.allocation.0 as usize;
        let stride = placed.program.allocations[id].stride;
        placed.addresses[id] + binding.place.offset + binding.member * stride
    };
    placed
        .program
        .bindings
        .iter()
        .map(|binding| Binding {
            tensor: binding.tensor,
            tile: placed.program.allocations[binding.place.allocation.0 as usize].tile,
            address: address(binding),
            dtype: binding.dtype,
            scale_exponent: binding.scale_exponent,
            order: binding.order,
            row: binding.row,
            column: binding.column,
            rows: binding.rows,
            columns: binding.columns,
        })
        .collect()
}
