//! Stage `package`: placed program and kernels to an `.ipuexe` file, admitted by its sizes.
//!
//! Inputs: `placed`, `objects`. Parameter: `limits.exchange_table_bytes`.
//! Outputs: `package` (the file), `sizes` (JSON).
//! Invariants: limits decide only whether there is a package; nothing of them is in it.

use std::collections::BTreeMap;

use ipu_emit::EmitError;
use ipu_emit::object::Object;
use ipu_ir::program::Placed;
use ipu_package::{Package, SegmentKind};
use ipub_engine::{FailureKind, StageFailure, StageInputs, StageOutputs};
use serde::Serialize;

use crate::codec::{to_json, unpack};
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("package", run);

/// Measured sizes.
#[derive(Serialize)]
struct Sizes {
    file_bytes: u64,
    segments: usize,
    images: usize,
    bindings: usize,
    steps: usize,
    /// Exchange rows of the tile that has most, and the tile.
    exchange_table_bytes_max: u64,
    exchange_table_tile: u32,
    exchange_table_bytes_total: u64,
    /// Bytes of the tile that has most, by kind of segment.
    bytes_max: BTreeMap<&'static str, u64>,
}

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let placed: Placed = unpack("placed", &inputs.input("placed")?)?;
    let objects: BTreeMap<String, Object> = unpack("objects", &inputs.input("objects")?)?;
    let package = ipu_emit::emit(&placed, &objects, &inputs.target().name).map_err(refuse)?;
    let mut sizes = measure(&package);
    admit(inputs.params().int("limits.exchange_table_bytes")?, &sizes)?;
    let file = ipu_package::write(&package)
        .map_err(|error| StageFailure::bug(format!("the package cannot be written: {error}")))?;
    sizes.file_bytes = file.len() as u64;
    Ok(StageOutputs::new()
        .with("sizes", to_json("sizes", &sizes)?)
        .with("package", file)
        .note("exchange_table_bytes_max", sizes.exchange_table_bytes_max))
}

fn admit(limit: i64, sizes: &Sizes) -> Result<(), StageFailure> {
    let measured = sizes.exchange_table_bytes_max;
    if i128::from(measured) <= i128::from(limit) {
        return Ok(());
    }
    let message = format!(
        "tile {}: the exchange table has {measured} bytes; `limits.exchange_table_bytes` is {limit}",
        sizes.exchange_table_tile
    );
    let mut failure = StageFailure::new(FailureKind::Rejected, message);
    failure.payload = to_json("sizes", sizes).ok();
    failure.help = Some("raise the limit if the device's memory allows it".to_owned());
    Err(failure)
}

fn measure(package: &Package) -> Sizes {
    let mut sizes = Sizes {
        file_bytes: 0,
        segments: package.segments.len(),
        images: package.images.len(),
        bindings: package.bindings.len(),
        steps: package.steps.len(),
        exchange_table_bytes_max: 0,
        exchange_table_tile: 0,
        exchange_table_bytes_total: 0,
        bytes_max: BTreeMap::new(),
    };
    for image in &package.images {
        let mut bytes: BTreeMap<&'static str, u64> = BTreeMap::new();
        for piece in &image.pieces {
            let segment = &package.segments[piece.segment as usize];
            *bytes.entry(kind_name(segment.kind)).or_default() += 4 * segment.words.len() as u64;
        }
        let rows = bytes.get(kind_name(SegmentKind::Row)).copied();
        let rows = rows.unwrap_or(0);
        sizes.exchange_table_bytes_total += rows;
        if rows > sizes.exchange_table_bytes_max {
            sizes.exchange_table_bytes_max = rows;
            sizes.exchange_table_tile = image.tile;
        }
        for (kind, count) in bytes {
            let most = sizes.bytes_max.entry(kind).or_default();
            *most = count.max(*most);
        }
    }
    sizes
}

fn kind_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Kernel => "kernel",
        SegmentKind::TileProgram => "tile_program",
        SegmentKind::Row => "row",
        SegmentKind::Frames => "frames",
    }
}

fn refuse(error: EmitError) -> StageFailure {
    match error {
        EmitError::SupportFull { .. } | EmitError::ProgramTooLong { .. } => {
            let mut failure = StageFailure::new(FailureKind::Rejected, error.to_string());
            failure.help = Some("raise `reserve.support_bytes`".to_owned());
            failure
        }
        EmitError::TablesFull { .. } => StageFailure::new(FailureKind::Rejected, error.to_string()),
        EmitError::Link(_) => StageFailure::usage(error.to_string()),
        EmitError::NoKernel(_) | EmitError::Runtime(_) => StageFailure::bug(error.to_string()),
    }
}
