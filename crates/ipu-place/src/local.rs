//! Copies that stay on their tile, as kernel calls.
//!
//! Input: pieces in bytes between two allocations of one tile. Output: calls of `copy_u64` and
//! `copy_strided`, regular runs joined, ascending by tile.
//! Invariants: every place, width and step is whole units of 8 bytes.
//! Not here: which copies stay on their tile (`copies`).

use ipu_ir::contract::MemoryClass;
use ipu_ir::program::{AllocId, Allocation, Call, Life, Place, Word};

use crate::build::Build;
use crate::error::{PlaceError, Site};
use crate::runs::{Piece, join_strided};

/// Bytes that one step of a local copy moves.
const UNIT: u32 = 8;

/// A piece, in bytes, between two allocations of one tile.
pub(crate) struct Local {
    pub tile: u32,
    pub source: AllocId,
    pub destination: AllocId,
    pub piece: Piece,
}

/// A scratch area that takes what only its sender needs.
pub(crate) struct Scratch {
    pub tile: u32,
    pub words: u32,
    pub tensor: u32,
}

impl Build<'_> {
    pub fn add_scratch(&mut self, area: &Scratch) {
        self.allocations.push(Allocation {
            tile: area.tile,
            tensor: area.tensor,
            bytes: 4 * area.words,
            members: 1,
            stride: 0,
            align: UNIT,
            class: MemoryClass::Standard,
            over_read: 0,
            life: Life::Events { first: 0, last: 0 },
            distinct: Vec::new(),
        });
        self.defined.push(false);
    }

    /// Calls for the local copies, regular runs joined, ascending by tile.
    pub fn local_calls(
        &mut self,
        site: &Site,
        mut locals: Vec<Local>,
    ) -> Result<Vec<Call>, PlaceError> {
        locals.sort_by_key(|local| (local.tile, local.destination, local.source));
        let same = |a: &Local, b: &Local| (a.source, a.destination) == (b.source, b.destination);
        let mut calls = Vec::new();
        for group in locals.chunk_by(same) {
            let runs: Vec<Piece> = group.iter().map(|local| local.piece).collect();
            for piece in join_strided(&runs) {
                calls.push(self.local_call(site, &group[0], piece)?);
            }
        }
        Ok(calls)
    }

    fn local_call(&mut self, site: &Site, local: &Local, piece: Piece) -> Result<Call, PlaceError> {
        let name = match piece.count {
            1 => "copy_u64",
            _ => "copy_strided",
        };
        let Some((kernel, contract)) = self.kernels.find(name) else {
            return Err(PlaceError::UnknownKernel {
                site: site.clone(),
                kernel: name.to_owned(),
            });
        };
        let refused = |what: String| PlaceError::Shape {
            site: site.clone(),
            kernel: name.to_owned(),
            tile: local.tile,
            what,
        };
        let mut scalars = Vec::new();
        let mut frame = Vec::new();
        for arg in &contract.args {
            let place = |allocation, offset| Word::Address(Place { allocation, offset });
            let value = match arg.name() {
                "source" => {
                    frame.push(place(local.source, piece.source));
                    continue;
                }
                "out" => {
                    frame.push(place(local.destination, piece.destination));
                    continue;
                }
                "count" | "units" => piece.width / UNIT,
                "rows" => piece.count,
                "source_stride" => piece.source_step / UNIT,
                "out_stride" => piece.destination_step / UNIT,
                other => return Err(refused(format!("argument {other} is not known"))),
            };
            scalars.push(i64::from(value));
            frame.push(Word::Scalar(value));
        }
        let extents = self.kernels.extents(kernel, &scalars).map_err(&refused)?;
        for (pointer, extent) in contract.pointers().zip(extents) {
            let (id, offset) = match pointer.name.as_str() {
                "source" => (local.source, piece.source),
                _ => (local.destination, piece.destination),
            };
            let room = self.allocation(id).bytes.saturating_sub(offset);
            if extent > u64::from(room) || offset % pointer.align != 0 {
                let what = format!(
                    "{} of {extent} bytes at {offset} does not fit",
                    pointer.name
                );
                return Err(refused(what));
            }
            self.demand(id, pointer, offset, extent);
        }
        self.separate(site.clone(), contract, &frame)?;
        Ok(Call {
            tile: local.tile,
            kernel,
            frame,
        })
    }
}

/// Whether a piece is whole units in every respect.
pub(crate) fn local_copy_can(piece: &Piece) -> bool {
    let places = piece.source | piece.destination | piece.width;
    let steps = if piece.count > 1 {
        piece.source_step | piece.destination_step
    } else {
        0
    };
    (places | steps).is_multiple_of(UNIT)
}
