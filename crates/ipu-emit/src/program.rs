//! A placed program to a package: kernel code, tile programs, frames, rows, bindings.
//!
//! Input: a placed tile program and kernel objects. Output: a package.
//! Invariants: every word comes from the instruction table or from a row; frames lie in the tables
//! element, code in the boot element and the support reservation; equal inputs give equal bytes.
//! Not here: placement, schedules, admission limits.

use std::collections::{BTreeMap, HashMap};

use ipu_ir::program::{Placed, Reservations};
use ipu_package::{Binding, HostPlan, Package, Piece, Segment, SegmentKind, TileImage};
use ipu_target::TILES;
use ipu_target::memory::IMAGE_ENTRY;
use ipu_target::topology::physical;
use rayon::prelude::*;
use thiserror::Error;

use crate::host_calls::HostCalls;
use crate::kernels::{KernelImage, SUPPORT_BASE, kernel_image};
use crate::link::LinkError;
use crate::object::Object;
use crate::tile_code::{TileCode, per_tile};
use crate::words::{ANSWERS_MAX, Words, ZONE_ANSWERED};

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
    let bindings = bindings(placed);
    let plan = HostPlan::new(&program.host_tensors, &bindings, physical);
    let host = HostCalls::new(&plan);
    let limited = |tile, code| within(tile, code, support_end);
    let codes: Vec<TileCode> = work
        .par_iter()
        .zip(0u32..program.tiles)
        .map(|(work, tile)| limited(tile, TileCode::new(placed, &kernels, tile, work, &host)?))
        .collect::<Result<_, _>>()?;
    let mut pool = Pool::default();
    let shared: Vec<Piece> = kernels
        .segments
        .iter()
        .map(|(address, words)| pool.piece(SegmentKind::Kernel, *address, words.clone()))
        .collect();
    let mut images: Vec<TileImage> = codes
        .into_iter()
        .zip(0..)
        .map(|(code, tile)| image(&mut pool, &shared, &kernels, tile, code))
        .collect();
    for tile in host.serving_tiles() {
        if tile >= program.tiles {
            let code = limited(tile, TileCode::serving(placed, &kernels, tile, &host)?)?;
            let runtime = &shared[..kernels.runtime];
            images.push(image(&mut pool, runtime, &kernels, tile, code));
        }
    }
    let rest = rest_image(&mut pool, &images);
    Ok(Package {
        device: device.to_owned(),
        tiles: program.tiles,
        segments: pool.segments,
        images,
        rest,
        tensors: program.host_tensors.clone(),
        bindings,
        host: plan,
        steps: program.infos.clone(),
    })
}

/// End of the support reservation.
pub fn support_end(reservations: Reservations) -> u32 {
    SUPPORT_BASE + reservations.support_bytes
}

fn within(tile: u32, code: TileCode, support_end: u32) -> Result<TileCode, EmitError> {
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

/// What all other tiles run: they answer every sync for ever.
fn rest_image(pool: &mut Pool, images: &[TileImage]) -> Option<TileImage> {
    let taken = images
        .iter()
        .zip(0..)
        .take_while(|(image, tile)| image.tile == *tile);
    let tile = taken.count() as u32;
    if tile == TILES {
        return None;
    }
    let mut words = Words::new(IMAGE_ENTRY);
    words.sans(ANSWERS_MAX as i32 - 1);
    words.sync(ZONE_ANSWERED);
    words.bri(IMAGE_ENTRY);
    Some(TileImage {
        tile,
        entry: IMAGE_ENTRY,
        pieces: vec![pool.piece(SegmentKind::TileProgram, IMAGE_ENTRY, words.words)],
        marks: Vec::new(),
    })
}

fn image(
    pool: &mut Pool,
    shared: &[Piece],
    kernels: &KernelImage,
    tile: u32,
    code: TileCode,
) -> TileImage {
    let mut boot = Words::new(IMAGE_ENTRY);
    boot.bri(code.entry);
    let mut pieces = vec![pool.piece(SegmentKind::TileProgram, IMAGE_ENTRY, boot.words)];
    pieces.extend_from_slice(shared);
    pieces.push(pool.piece(SegmentKind::TileProgram, kernels.end, code.program.words));
    if !code.frames.words.is_empty() {
        pieces.push(pool.piece(SegmentKind::Frames, code.frames.base, code.frames.words));
    }
    for (address, words) in code.rows {
        pieces.push(pool.piece(SegmentKind::Row, address, words));
    }
    // Phases with equal rows share one.
    pieces.sort_by_key(|piece| (piece.address, piece.segment));
    pieces.dedup();
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
