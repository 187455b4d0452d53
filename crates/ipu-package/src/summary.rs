//! What a package holds, in figures, for people and for admission.
//!
//! Input: a package and its section table. Output: counts, bytes by kind, tensors, digests.
//! Invariants: equal packages give equal summaries; indices out of range count as nothing, so that
//! an unsound package can be looked at too. Medians are of the lower middle.
//! Not here: limits, provenance, printing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::container::{SectionEntry, header_bytes};
use crate::file::{digest_of_sections, hex};
use crate::host::{HostRun, SLOT_BYTES, batch_count};
use crate::order::Dtype;
use crate::types::{Package, Role, SegmentKind, StepKind, TileImage};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSummary {
    pub device: String,
    pub tiles: u32,
    /// BLAKE3 over the uncompressed contents.
    pub digest: String,
    pub file_bytes: u64,
    pub sections: Vec<SectionSummary>,
    pub segments: SegmentsSummary,
    /// Bytes of all pieces of a tile.
    pub image_bytes: Spread,
    /// Bytes of exchange rows on the tile that has most.
    pub exchange_table_bytes_max: u32,
    /// Bytes of tensors that the host fills or reads, by tile.
    pub tensor_bytes: Spread,
    pub tensors: Vec<TensorSummary>,
    pub bindings: u64,
    pub host: HostSummary,
    pub steps: u64,
    pub steps_by_kind: BTreeMap<StepKind, u64>,
    pub marks: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionSummary {
    pub name: String,
    pub bytes: u64,
    pub stored_bytes: u64,
    /// BLAKE3 of the uncompressed bytes.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsSummary {
    pub kernel: KindSummary,
    pub tile_program: KindSummary,
    pub row: KindSummary,
    pub frames: KindSummary,
}

/// Segments of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindSummary {
    /// Distinct segments and their bytes.
    pub segments: u64,
    pub bytes: u64,
    /// Pieces of all tiles.
    pub pieces: u64,
    /// Bytes on a tile.
    pub tile_bytes: Spread,
}

/// Transfers of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSummary {
    /// Tiles that exchange data with the host.
    pub slots: u64,
    /// Tiles beyond the logical ones that serve the host.
    pub serving_images: u64,
    pub parameters: CallSummary,
    pub inputs: CallSummary,
    pub outputs: CallSummary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSummary {
    pub batches: u64,
    pub slices: u64,
    pub bytes: u64,
}

/// A figure over all tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    pub min: u64,
    pub median: u64,
    pub max: u64,
    /// The first tile with the greatest value.
    pub max_tile: u32,
}

impl Spread {
    /// Of one value for each tile.
    fn of(values: &[u64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Spread::default();
        };
        Spread {
            min,
            median: sorted[(sorted.len() - 1) / 2],
            max,
            max_tile: values.iter().position(|&value| value == max).unwrap_or(0) as u32,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSummary {
    pub name: String,
    pub role: Role,
    pub rows: u32,
    pub columns: u32,
    /// How it is stored; most have one form.
    pub forms: Vec<TensorForm>,
}

/// All bindings of a tensor with one element type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorForm {
    pub dtype: Dtype,
    pub scale_exponent: i8,
    pub bindings: u64,
    /// Bytes on all tiles, replicas and padding included.
    pub bytes: u64,
}

/// Bytes of exchange rows in a tile's image, each address once.
pub fn exchange_table_bytes(package: &Package, image: &TileImage) -> u32 {
    let mut rows: Vec<(u32, u32)> = pieces_of(package, image)
        .filter(|piece| piece.0 == SegmentKind::Row)
        .map(|(_, address, bytes)| (address, bytes))
        .collect();
    rows.sort_unstable();
    rows.dedup_by_key(|row| row.0);
    rows.iter().map(|row| row.1).sum()
}

/// Summarise a package that has these sections.
pub fn summary(package: &Package, sections: &[SectionEntry]) -> PackageSummary {
    let images = logical(package);
    let image_bytes = |image: &TileImage| {
        let bytes = pieces_of(package, image).map(|piece| u64::from(piece.2));
        bytes.sum()
    };
    let mut steps_by_kind = BTreeMap::new();
    for step in &package.steps {
        *steps_by_kind.entry(step.kind).or_default() += 1;
    }
    let stored: u64 = sections.iter().map(|section| section.stored_bytes).sum();
    let rows = images
        .iter()
        .map(|image| exchange_table_bytes(package, image));
    PackageSummary {
        device: package.device.clone(),
        tiles: package.tiles,
        digest: digest_of_sections(sections).to_string(),
        file_bytes: header_bytes(sections.len()) as u64 + stored,
        sections: sections.iter().map(section).collect(),
        segments: SegmentsSummary {
            kernel: kind_summary(package, SegmentKind::Kernel),
            tile_program: kind_summary(package, SegmentKind::TileProgram),
            row: kind_summary(package, SegmentKind::Row),
            frames: kind_summary(package, SegmentKind::Frames),
        },
        image_bytes: Spread::of(&images.iter().map(image_bytes).collect::<Vec<_>>()),
        exchange_table_bytes_max: rows.max().unwrap_or(0),
        tensor_bytes: tensor_bytes(package),
        tensors: tensors(package),
        bindings: package.bindings.len() as u64,
        host: host_summary(package),
        steps: package.steps.len() as u64,
        steps_by_kind,
        marks: images.iter().map(|image| image.marks.len() as u64).sum(),
    }
}

fn host_summary(package: &Package) -> HostSummary {
    let call = |runs: &[HostRun]| CallSummary {
        batches: batch_count(runs),
        slices: runs
            .iter()
            .map(|run| u64::from(run.bytes.div_ceil(SLOT_BYTES)))
            .sum(),
        bytes: runs.iter().map(|run| u64::from(run.bytes)).sum(),
    };
    let plan = &package.host;
    let images = package.images.len() as u64;
    HostSummary {
        slots: plan.slots.len() as u64,
        serving_images: images.saturating_sub(package.tiles.into()),
        parameters: call(&plan.parameters),
        inputs: call(&plan.inputs),
        outputs: call(&plan.outputs),
    }
}

/// Images of the logical tiles: figures by tile are over these.
fn logical(package: &Package) -> &[TileImage] {
    let count = package.images.len().min(package.tiles as usize);
    &package.images[..count]
}

/// Kind, address and bytes of each piece.
fn pieces_of<'a>(
    package: &'a Package,
    image: &'a TileImage,
) -> impl Iterator<Item = (SegmentKind, u32, u32)> + 'a {
    image.pieces.iter().filter_map(|piece| {
        let segment = package.segments.get(piece.segment as usize)?;
        Some((segment.kind, piece.address, 4 * segment.words.len() as u32))
    })
}

fn section(entry: &SectionEntry) -> SectionSummary {
    SectionSummary {
        name: entry.id.to_string(),
        bytes: entry.bytes,
        stored_bytes: entry.stored_bytes,
        digest: hex(&entry.digest),
    }
}

fn kind_summary(package: &Package, kind: SegmentKind) -> KindSummary {
    let segments = package
        .segments
        .iter()
        .filter(|segment| segment.kind == kind);
    let of_kind = |image| pieces_of(package, image).filter(move |piece| piece.0 == kind);
    let tile_bytes: Vec<u64> = logical(package)
        .iter()
        .map(|image| of_kind(image).map(|piece| u64::from(piece.2)).sum())
        .collect();
    KindSummary {
        segments: segments.clone().count() as u64,
        bytes: segments.map(|segment| 4 * segment.words.len() as u64).sum(),
        pieces: package
            .images
            .iter()
            .map(|image| of_kind(image).count() as u64)
            .sum(),
        tile_bytes: Spread::of(&tile_bytes),
    }
}

/// Bytes of a binding; extents of an unsound one may exceed 32 bits.
fn binding_bytes(binding: &crate::types::Binding) -> u64 {
    let elements = u64::from(binding.rows) * u64::from(binding.columns);
    elements.saturating_mul(binding.dtype.bytes().into())
}

fn tensor_bytes(package: &Package) -> Spread {
    let mut tiles = vec![0u64; package.tiles as usize];
    for binding in &package.bindings {
        if let Some(bytes) = tiles.get_mut(binding.tile as usize) {
            *bytes = bytes.saturating_add(binding_bytes(binding));
        }
    }
    Spread::of(&tiles)
}

fn tensors(package: &Package) -> Vec<TensorSummary> {
    let mut forms: Vec<BTreeMap<(Dtype, i8), (u64, u64)>> = Vec::new();
    forms.resize_with(package.tensors.len(), BTreeMap::new);
    for binding in &package.bindings {
        if let Some(forms) = forms.get_mut(binding.tensor as usize) {
            let (bindings, bytes) = forms
                .entry((binding.dtype, binding.scale_exponent))
                .or_default();
            *bindings += 1;
            *bytes = bytes.saturating_add(binding_bytes(binding));
        }
    }
    let form = |((dtype, scale_exponent), (bindings, bytes))| TensorForm {
        dtype,
        scale_exponent,
        bindings,
        bytes,
    };
    let tensors = package.tensors.iter().zip(forms);
    tensors
        .map(|(tensor, forms)| TensorSummary {
            name: tensor.name.clone(),
            role: tensor.role,
            rows: tensor.rows,
            columns: tensor.columns,
            forms: forms.into_iter().map(form).collect(),
        })
        .collect()
}
