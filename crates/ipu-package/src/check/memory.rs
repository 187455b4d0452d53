//! Who holds which bytes of a tile.
//!
//! Input: a package whose indices are in range. Output: the first overlap, by tile and address.
//! Invariants: nothing overlaps but inputs with outputs; no tensor stands in an element that holds
//! code or rows, even in bytes that these leave free.
//! Not here: where a kind may stand (`images`, `tensors`).

use super::error::{CheckError, Occupant};
use super::{ELEMENT_BYTES, REGION0_END, SRAM_BASE};
use crate::types::{Binding, Package, Role, SegmentKind};

#[derive(Clone, Copy)]
enum Holder {
    Piece(SegmentKind),
    Tensor(u32),
}

/// Occupied bytes of a tile.
#[derive(Clone, Copy)]
struct Run {
    start: u32,
    end: u32,
    class: usize,
    holder: Holder,
}

/// Pieces and parameters: they overlap with nothing.
const FIXED: usize = 0;
const INPUT: usize = 1;
const OUTPUT: usize = 2;

pub(super) fn check_memory(package: &Package) -> Result<(), CheckError> {
    let mut bindings: Vec<&Binding> = package.bindings.iter().collect();
    bindings.sort_by_key(|binding| binding.tile);
    let mut bindings = bindings.into_iter().peekable();
    let mut runs: Vec<Run> = Vec::new();
    for image in package.images.iter().chain(&package.rest) {
        runs.clear();
        let mut code = 0u32;
        for piece in &image.pieces {
            let segment = &package.segments[piece.segment as usize];
            let (start, end) = (
                piece.address,
                piece.address + 4 * segment.words.len() as u32,
            );
            if segment.kind != SegmentKind::Frames {
                code |= elements(start, end);
            }
            runs.push(Run {
                start,
                end,
                class: FIXED,
                holder: Holder::Piece(segment.kind),
            });
        }
        while let Some(binding) = bindings.next_if(|binding| binding.tile == image.tile) {
            let run = run_of(package, binding);
            if code & elements(run.start, run.end) != 0 {
                return Err(CheckError::CodeElement {
                    tile: image.tile,
                    occupant: occupant(package, run.holder),
                    address: run.start,
                    bytes: run.end - run.start,
                });
            }
            runs.push(run);
        }
        runs.sort_by_key(|run| (run.start, run.end));
        check_overlaps(package, image.tile, &runs)?;
    }
    Ok(())
}

fn run_of(package: &Package, binding: &Binding) -> Run {
    Run {
        start: binding.address,
        end: binding.address + binding.bytes(),
        class: match package.tensors[binding.tensor as usize].role {
            Role::Parameter => FIXED,
            Role::Input => INPUT,
            Role::Output => OUTPUT,
        },
        holder: Holder::Tensor(binding.tensor),
    }
}

fn occupant(package: &Package, holder: Holder) -> Occupant {
    match holder {
        Holder::Piece(kind) => Occupant::Piece(kind),
        Holder::Tensor(tensor) => Occupant::Tensor(package.tensors[tensor as usize].name.clone()),
    }
}

/// Elements of region 0 that a run touches, one bit each.
fn elements(start: u32, end: u32) -> u32 {
    let end = end.min(REGION0_END);
    if start >= end {
        return 0;
    }
    let first = (start - SRAM_BASE) / ELEMENT_BYTES;
    let last = (end - 1 - SRAM_BASE) / ELEMENT_BYTES;
    (2 << last) - (1 << first)
}

/// `runs` ascend: a run overlaps with an earlier one when the furthest of these reaches into it.
fn check_overlaps(package: &Package, tile: u32, runs: &[Run]) -> Result<(), CheckError> {
    let mut furthest: [Option<Run>; 3] = [None; 3];
    for &run in runs {
        for class in [FIXED, INPUT, OUTPUT] {
            let lives_meet = class == run.class || class == FIXED || run.class == FIXED;
            let Some(before) = furthest[class].filter(|before| before.end > run.start) else {
                continue;
            };
            if lives_meet {
                return Err(CheckError::Overlap {
                    tile,
                    first: occupant(package, before.holder),
                    second: occupant(package, run.holder),
                    address: run.start,
                    bytes: before.end.min(run.end) - run.start,
                });
            }
        }
        let reach = &mut furthest[run.class];
        if reach.is_none_or(|before| before.end < run.end) {
            *reach = Some(run);
        }
    }
    Ok(())
}
