//! The summary of the small package, figure by figure.

mod support;

use ipu_package::summary::{CallSummary, HostSummary, PackageSummary, Spread, TensorForm};
use ipu_package::{Dtype, StepKind, digest, exchange_table_bytes, section_table, summary, write};
use support::small;

#[test]
fn the_small_package() {
    let package = small();
    let file = write(&package).unwrap();
    let summary = summary(&package, &section_table(&file).unwrap());
    assert_eq!(summary.file_bytes, file.len() as u64);
    assert_eq!(summary.digest, digest(&package).unwrap().to_string());
    assert_eq!((summary.device.as_str(), summary.tiles), ("c600", 2));
    let names: Vec<&str> = summary.sections.iter().map(|s| s.name.as_str()).collect();
    let expected = [
        "program", "segments", "images", "tensors", "bindings", "host", "steps", "words.0",
    ];
    assert_eq!(names, expected);
    let spread = |min, median, max, max_tile| Spread {
        min,
        median,
        max,
        max_tile,
    };
    let row = &summary.segments.row;
    assert_eq!((row.segments, row.bytes, row.pieces), (2, 20, 2));
    assert_eq!(row.tile_bytes, spread(8, 8, 12, 1));
    let kernel = &summary.segments.kernel;
    assert_eq!((kernel.segments, kernel.bytes, kernel.pieces), (1, 80, 2));
    assert_eq!(
        summary.segments.tile_program.tile_bytes,
        spread(40, 40, 40, 0)
    );
    assert_eq!(summary.image_bytes, spread(140, 140, 144, 1));
    assert_eq!(summary.exchange_table_bytes_max, 12);
    assert_eq!(exchange_table_bytes(&package, &package.images[0]), 8);
    assert_eq!(summary.tensor_bytes, spread(1_536, 1_536, 1_536, 0));
    let forms = &summary.tensors[0].forms;
    let form = TensorForm {
        dtype: Dtype::F143,
        scale_exponent: -4,
        bindings: 2,
        bytes: 2_048,
    };
    assert_eq!(forms, &[form]);
    assert_eq!((summary.bindings, summary.steps, summary.marks), (6, 3, 6));
    assert_eq!(summary.steps_by_kind[&StepKind::HostDownload], 1);
    let call = |slices, bytes| CallSummary {
        batches: 1,
        slices,
        bytes,
    };
    let host = HostSummary {
        slots: 2,
        serving_images: 1,
        parameters: call(2, 2_048),
        inputs: call(2, 512),
        outputs: call(2, 512),
    };
    assert_eq!(summary.host, host);
    let json = serde_json::to_string(&summary).unwrap();
    assert_eq!(
        serde_json::from_str::<PackageSummary>(&json).unwrap(),
        summary
    );
}
