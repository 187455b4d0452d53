//! Segments and tile images.
//!
//! Input: a package. Output: the first fault in segments, pieces, entries or marks.
//! Invariants: after this pass every index of an image is in range and every piece stands where its
//! kind may stand; later passes rely on that.
//! Not here: overlaps (`memory`).

use std::collections::HashMap;

use super::error::{CheckError, Occupant};
use super::{BOOT_END, REGION0_END, RUNTIME_END, SRAM_BASE, TABLES_END};
use crate::limits::TILES_MAX;
use crate::types::{Mark, Package, Segment, SegmentKind, TileImage};

/// Segments are distinct, not empty, and used.
pub(super) fn check_segments(package: &Package) -> Result<(), CheckError> {
    let mut known: HashMap<&Segment, usize> = HashMap::with_capacity(package.segments.len());
    for (index, segment) in package.segments.iter().enumerate() {
        if segment.words.is_empty() {
            return Err(CheckError::SegmentEmpty { segment: index });
        }
        if let Some(first) = known.insert(segment, index) {
            return Err(CheckError::SegmentRepeated {
                first,
                second: index,
            });
        }
    }
    let mut used = vec![false; package.segments.len()];
    let images = package.images.iter().chain(&package.rest);
    for piece in images.flat_map(|image| &image.pieces) {
        if let Some(used) = used.get_mut(piece.segment as usize) {
            *used = true;
        }
    }
    match used.iter().position(|used| !used) {
        Some(segment) => Err(CheckError::SegmentUnused { segment }),
        None => Ok(()),
    }
}

/// One image for each logical tile, then others, in order, each sound by itself; then the image of
/// all other tiles, which names the first of them.
pub(super) fn check_images(package: &Package) -> Result<(), CheckError> {
    if package.images.len() < package.tiles as usize {
        return Err(CheckError::ImageCount {
            images: package.images.len(),
            tiles: package.tiles,
        });
    }
    let mut next = 0;
    for (index, image) in package.images.iter().enumerate() {
        let logical = index < package.tiles as usize;
        let sound = match logical {
            true => image.tile == next,
            false => image.tile >= next && image.tile < TILES_MAX,
        };
        if !sound {
            return Err(CheckError::ImageOrder {
                index,
                tile: image.tile,
            });
        }
        next = image.tile + 1;
        check_image(package, image)?;
    }
    let Some(rest) = &package.rest else {
        return Ok(());
    };
    let tiles = package.images.iter().map(|image| image.tile);
    let first = tiles.zip(0..).take_while(|(tile, index)| tile == index);
    let first = first.count() as u32;
    if rest.tile != first || first >= TILES_MAX {
        return Err(CheckError::ImageOrder {
            index: package.images.len(),
            tile: rest.tile,
        });
    }
    check_image(package, rest)
}

fn check_image(package: &Package, image: &TileImage) -> Result<(), CheckError> {
    check_pieces(package, image)?;
    check_entry(package, image)?;
    check_marks(package, image)
}

fn check_pieces(package: &Package, image: &TileImage) -> Result<(), CheckError> {
    let tile = image.tile;
    for piece in &image.pieces {
        let address = piece.address;
        let Some(segment) = package.segments.get(piece.segment as usize) else {
            return Err(CheckError::SegmentIndex {
                tile,
                address,
                segment: piece.segment,
                segments: package.segments.len(),
            });
        };
        let occupant = || Occupant::Piece(segment.kind);
        if !address.is_multiple_of(4) {
            return Err(CheckError::Misaligned {
                tile,
                occupant: occupant(),
                address,
            });
        }
        let bytes = 4 * segment.words.len() as u64;
        let end = u64::from(address) + bytes;
        let inside = |start: u32, limit: u32| start <= address && end <= u64::from(limit);
        let sound = match segment.kind {
            SegmentKind::Kernel | SegmentKind::TileProgram => {
                inside(SRAM_BASE, BOOT_END) || inside(TABLES_END, REGION0_END)
            }
            SegmentKind::Row => inside(TABLES_END, REGION0_END),
            SegmentKind::Frames => inside(RUNTIME_END, TABLES_END),
        };
        if !sound {
            return Err(CheckError::OutOfMemory {
                tile,
                occupant: occupant(),
                address,
                bytes,
            });
        }
    }
    Ok(())
}

/// Whether an aligned address is a word of a piece of one of these kinds.
fn is_word(package: &Package, image: &TileImage, address: u32, kinds: &[SegmentKind]) -> bool {
    let holds = |piece: &crate::types::Piece| {
        let segment = &package.segments[piece.segment as usize];
        let bytes = 4 * segment.words.len() as u32;
        kinds.contains(&segment.kind) && (piece.address..piece.address + bytes).contains(&address)
    };
    address.is_multiple_of(4) && image.pieces.iter().any(holds)
}

fn check_entry(package: &Package, image: &TileImage) -> Result<(), CheckError> {
    let code = [SegmentKind::Kernel, SegmentKind::TileProgram];
    if is_word(package, image, image.entry, &code) {
        return Ok(());
    }
    Err(CheckError::Entry {
        tile: image.tile,
        entry: image.entry,
    })
}

fn check_marks(package: &Package, image: &TileImage) -> Result<(), CheckError> {
    let tile = image.tile;
    let mut before: Option<u32> = None;
    // The part of the program that holds the marks seen last: they ascend.
    let mut program = 0..0;
    for &Mark { address, step } in &image.marks {
        if let Some(before) = before.filter(|&before| before >= address) {
            return Err(CheckError::MarkOrder {
                tile,
                address,
                before,
            });
        }
        before = Some(address);
        if !program.contains(&address) {
            program = program_part(package, image, address);
        }
        if !program.contains(&address) || !address.is_multiple_of(4) {
            return Err(CheckError::MarkOutside { tile, address });
        }
        if step as usize >= package.steps.len() {
            return Err(CheckError::MarkStep {
                tile,
                address,
                step,
                steps: package.steps.len(),
            });
        }
    }
    Ok(())
}

/// Bytes of the piece of tile program that holds an address; empty when none does.
fn program_part(package: &Package, image: &TileImage, address: u32) -> std::ops::Range<u32> {
    let parts = image.pieces.iter().filter_map(|piece| {
        let segment = &package.segments[piece.segment as usize];
        let end = piece.address + 4 * segment.words.len() as u32;
        (segment.kind == SegmentKind::TileProgram).then_some(piece.address..end)
    });
    let mut parts = parts.filter(|part| part.contains(&address));
    parts.next().unwrap_or(0..0)
}
