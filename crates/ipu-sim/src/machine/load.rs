//! Package images to tiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_package::{Package, SegmentKind, TileImage};
use ipu_target::TILES;
use rayon::prelude::*;

use crate::code::{Block, CodeMap};
use crate::fault::FaultKind;
use crate::tile::{StepTrack, Tile};

/// Why a package cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("tile {0} does not exist")]
    Tile(u32),
    #[error("tile {0} has two images")]
    Twice(u32),
    #[error("tile {tile}: segment {segment} does not exist")]
    Segment { tile: u32, segment: u32 },
    #[error("tile {tile}: piece at {address:#x}: {kind}")]
    Piece {
        tile: u32,
        address: u32,
        kind: FaultKind,
    },
    #[error("the package has no image")]
    Empty,
}

type Blocks = BTreeMap<(u32, u32), Arc<Block>>;

/// The tiles of a package, by logical number, and the index of each. One tile stands for all that
/// have no image of their own.
pub fn tiles(package: &Package) -> Result<(Vec<Tile>, Vec<Option<u32>>), LoadError> {
    if package.images.is_empty() {
        return Err(LoadError::Empty);
    }
    let mut images: Vec<&TileImage> = package.images.iter().chain(&package.rest).collect();
    images.sort_by_key(|image| image.tile);
    let mut index = vec![None; TILES as usize];
    for (at, image) in images.iter().enumerate() {
        let slot = index
            .get_mut(image.tile as usize)
            .ok_or(LoadError::Tile(image.tile))?;
        if slot.replace(at as u32).is_some() {
            return Err(LoadError::Twice(image.tile));
        }
    }
    let blocks = blocks(package, &images)?;
    let mut tiles = images
        .par_iter()
        .map(|image| tile(package, image, &blocks))
        .collect::<Result<Vec<_>, _>>()?;
    let mut sets = BTreeMap::new();
    for (tile, image) in tiles.iter_mut().zip(&images) {
        let kernels = image.pieces.iter().map(|p| (p.segment, p.address));
        let kernels = kernels.filter(|key| {
            let block = blocks.get(key);
            block.is_some_and(|block| block.kind == SegmentKind::Kernel)
        });
        let next = sets.len() as u32;
        tile.kernels = *sets.entry(kernels.collect::<Vec<_>>()).or_insert(next);
    }
    Ok((tiles, index))
}

/// Code blocks, one for each segment at each address.
fn blocks(package: &Package, images: &[&TileImage]) -> Result<Blocks, LoadError> {
    let mut words: Vec<Option<Arc<[u32]>>> = vec![None; package.segments.len()];
    let mut blocks = Blocks::new();
    for image in images {
        for piece in &image.pieces {
            let segment =
                package
                    .segments
                    .get(piece.segment as usize)
                    .ok_or(LoadError::Segment {
                        tile: image.tile,
                        segment: piece.segment,
                    })?;
            if segment.kind == SegmentKind::Frames {
                continue;
            }
            blocks
                .entry((piece.segment, piece.address))
                .or_insert_with(|| {
                    let words = words[piece.segment as usize]
                        .get_or_insert_with(|| segment.words.as_slice().into());
                    Arc::new(Block::new(piece.address, segment.kind, words.clone()))
                });
        }
    }
    Ok(blocks)
}

fn tile(package: &Package, image: &TileImage, blocks: &Blocks) -> Result<Tile, LoadError> {
    let code = image
        .pieces
        .iter()
        .filter_map(|piece| blocks.get(&(piece.segment, piece.address)).cloned());
    let mut tile = Tile::new(image.tile, CodeMap::new(code.collect()));
    for piece in &image.pieces {
        let words = &package.segments[piece.segment as usize].words;
        tile.memory
            .write_words(piece.address, words)
            .map_err(|kind| LoadError::Piece {
                tile: image.tile,
                address: piece.address,
                kind: *kind,
            })?;
    }
    tile.pc = image.entry;
    tile.steps = StepTrack::new(image.marks.clone());
    Ok(tile)
}
