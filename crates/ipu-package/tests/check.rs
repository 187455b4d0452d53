//! The checker: the small package is sound, and every single fault is named.

mod support;

use ipu_package::check::{Axis, Occupant};
use ipu_package::{CheckError, Package, Piece, Role, Segment, SegmentKind, Span, check};
use support::{DATA, FRAMES, PROGRAM, ROWS, small};

fn fault(change: impl FnOnce(&mut Package)) -> CheckError {
    let mut package = small();
    change(&mut package);
    check(&package).expect_err("the change breaks the package")
}

/// The change gives an error of this pattern.
macro_rules! faults {
    ($($change:expr => $pattern:pat,)*) => {
        $(
            let error = fault($change);
            assert!(matches!(error, $pattern), "{} gives {error}", stringify!($change));
        )*
    };
}

fn name(text: &str) -> Occupant {
    Occupant::Tensor(text.to_owned())
}

#[test]
fn sound_packages_pass() {
    check(&small()).unwrap();
    check(&support::wide(40, 4_000)).unwrap();
}

#[test]
fn images_and_segments() {
    use CheckError::*;
    faults! {
        |p| p.tiles = 0 => TileCount { tiles: 0 },
        |p| p.tiles = 1_473 => TileCount { tiles: 1_473 },
        |p| p.tiles = 4 => ImageCount { images: 3, tiles: 4 },
        |p| p.images.swap(0, 1) => ImageOrder { index: 0, tile: 1 },
        |p| p.segments[3].words.clear() => SegmentEmpty { segment: 3 },
        |p| p.segments[6] = p.segments[5].clone() => SegmentRepeated { first: 5, second: 6 },
        |p| p.segments.push(Segment { kind: SegmentKind::Row, words: vec![1] })
            => SegmentUnused { segment: 7 },
        |p| p.images[1].pieces.push(Piece { address: ROWS, segment: 7 })
            => SegmentIndex { tile: 1, address: ROWS, segment: 7, segments: 7 },
        |p| p.images[1].pieces[4].address += 2
            => Misaligned { tile: 1, occupant: Occupant::Piece(SegmentKind::Row), address: 0x60002 },
        |p| p.images[1].entry = 0x4c010 => Entry { tile: 1, entry: 0x4c010 },
        |p| p.images[1].entry = FRAMES => Entry { tile: 1, entry: FRAMES },
        |p| p.images[1].entry += 2 => Entry { tile: 1, .. },
        |p| p.images[0].marks[1].address = PROGRAM
            => MarkOrder { tile: 0, address: PROGRAM, before: PROGRAM },
        |p| p.images[0].marks[2].address = PROGRAM + 36 => MarkOutside { tile: 0, .. },
        |p| p.images[0].marks[2].address = ROWS => MarkOutside { tile: 0, .. },
        |p| p.images[0].marks[2].address += 1 => MarkOutside { tile: 0, .. },
        |p| p.images[0].marks[2].step = 3 => MarkStep { tile: 0, step: 3, steps: 3, .. },
    }
}

#[test]
fn places_of_pieces() {
    use CheckError::OutOfMemory;
    let places = [
        (1, 0x4bffc),
        (1, 0x4fffc),
        (1, 0x58000),
        (1, 0x80000),
        (4, 0x7fff8),
        (4, 0x4c100),
        (2, 0x586dc),
        (2, 0x5bff8),
        (3, u32::MAX - 3),
    ];
    for (piece, address) in places {
        let error = fault(|p| p.images[1].pieces[piece].address = address);
        assert!(
            matches!(error, OutOfMemory { tile: 1, address: at, .. } if at == address),
            "{error}"
        );
    }
}

#[test]
fn overlaps() {
    use CheckError::{CodeElement, Overlap};
    let error = fault(|p| p.images[0].pieces[4].address = PROGRAM + 32);
    let expected = Overlap {
        tile: 0,
        first: Occupant::Piece(SegmentKind::TileProgram),
        second: Occupant::Piece(SegmentKind::Row),
        address: PROGRAM + 32,
        bytes: 4,
    };
    assert_eq!(error, expected);
    let error = fault(|p| p.bindings[3].address = DATA + 1_000);
    let expected = Overlap {
        tile: 1,
        first: name("w"),
        second: name("x"),
        address: DATA + 1_000,
        bytes: 24,
    };
    assert_eq!(error, expected);
    let error = fault(|p| p.bindings[5].address = DATA);
    assert!(
        matches!(
            error,
            Overlap {
                tile: 1,
                bytes: 256,
                ..
            }
        ),
        "{error}"
    );
    let error = fault(|p| p.bindings[0].address = FRAMES);
    assert!(
        matches!(
            error,
            Overlap {
                tile: 0,
                bytes: 12,
                ..
            }
        ),
        "{error}"
    );
    let error = fault(|p| p.bindings[4].address = ROWS + 0x3fc0 - 0xc0);
    assert!(
        matches!(
            error,
            CodeElement {
                tile: 0,
                bytes: 256,
                ..
            }
        ),
        "{error}"
    );
    // Two inputs.
    let error = fault(|p| {
        let mut again = p.bindings[3];
        again.address += 0xfc;
        p.bindings.push(again);
    });
    assert!(
        matches!(
            error,
            Overlap {
                tile: 1,
                bytes: 4,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn tensors_and_bindings() {
    use CheckError::*;
    let long = 0xe7bb0 - 1_024;
    faults! {
        |p| p.tensors[0].rows = 0 => TensorEmpty { .. },
        |p| p.tensors[0].row_spans[0].count = 0 => SpanRange { axis: Axis::Rows, .. },
        |p| p.tensors[0].column_spans[0].count = 41 => SpanRange { axis: Axis::Columns, .. },
        |p| p.tensors[0].column_spans[0].device = u32::MAX - 3 => SpanRange { .. },
        |p| p.tensors[1].rows = 7 => SpanCover { axis: Axis::Rows, logical: 6, .. },
        |p| p.tensors[1].row_spans[1].logical = 2 => SpanCover { logical: 3, .. },
        |p| p.tensors[1].row_spans.push(Span { device: 9, logical: 1, count: 2 })
            => SpanCover { .. },
        |p| p.tensors[1].row_spans[1].device = 2 => SpanOverlap { device: 2, .. },
        |p| p.bindings[1].tensor = 3 => TensorIndex { binding: 1, tensor: 3, tensors: 3 },
        |p| p.bindings[1].tile = 2 => BindingTile { binding: 1, tile: 2, tiles: 2, .. },
        |p| p.bindings[1].rows = 15 => BindingShape { binding: 1, rows: 15, .. },
        |p| p.bindings[1].columns = 0 => BindingShape { columns: 0, .. },
        |p| p.bindings[2].order = ipu_package::Order::Panels(0) => BindingShape { .. },
        |p| p.bindings[2].row = u32::MAX => BindingShape { .. },
        |p| p.bindings[1].address += 2 => Misaligned { tile: 1, .. },
        |p| p.bindings[1].address = 0x586dc => OutOfMemory { tile: 1, bytes: 1_024, .. },
        |p| p.bindings[1].address = long + 4 => OutOfMemory { bytes: 1_024, .. },
        |p| { p.bindings[1].rows = 1 << 31; p.bindings[1].columns = 1 << 31 }
            => OutOfMemory { .. },
    }
    let mut package = small();
    package.bindings[1].address = long;
    support::plan(&mut package);
    check(&package).unwrap();
}

#[test]
fn coverage() {
    use CheckError::{CoveredTwice, Uncovered};
    faults! {
        |p| { p.bindings.remove(3); } => Uncovered { row: 3, column: 0, .. },
        |p| { p.bindings.remove(1); p.bindings[0].column = 32 } => Uncovered { .. },
        |p| p.bindings[5].column = 1 => Uncovered { row: 3, column: 0, .. },
        |p| p.bindings[5].row = 5 => Uncovered { row: 3, column: 0, .. },
        |p| { p.bindings.remove(0); p.bindings.remove(0); } => Uncovered { row: 0, .. },
        |p| { let mut again = p.bindings[4]; again.address += 0x1000; p.bindings.push(again) }
            => CoveredTwice { row: 0, column: 0, bindings: 2, .. },
    }
    // One replica of a parameter may go; padding of an output may be held twice.
    let mut package = small();
    package.bindings.remove(0);
    support::plan(&mut package);
    check(&package).unwrap();
    let mut package = small();
    package.bindings[5].row = 3;
    package.bindings[5].rows = 5;
    support::plan(&mut package);
    check(&package).unwrap();
}

#[test]
fn host_plan() {
    use CheckError::{HostBytes, HostRun, HostSlot, ImageOrder};
    faults! {
        |p| p.host.slots[1] = 0 => HostSlot { slot: 1, tile: 0 },
        |p| p.host.slots.push(2) => HostSlot { slot: 2, tile: 2 },
        |p| { p.host.slots.pop(); } => HostRun { tile: 1, .. },
        |p| p.host.inputs.swap(0, 1) => HostRun { tile: 0, .. },
        |p| p.host.inputs[0].tile = 2 => HostRun { tile: 2, .. },
        |p| p.host.inputs[0].bytes = 0 => HostRun { tile: 0, bytes: 0, .. },
        |p| p.host.inputs[0].address += 2 => HostRun { tile: 0, .. },
        |p| p.host.inputs[1].bytes -= 4 => HostBytes { tile: 1, role: Role::Input, .. },
        |p| { p.host.parameters.pop(); } => HostBytes { tile: 1, address: DATA, .. },
        |p| p.host.outputs[0].address += 4 => HostBytes { tile: 0, .. },
        |p| p.images[2].tile = 1 => ImageOrder { index: 2, tile: 1 },
        |p| p.images[2].tile = 1_472 => ImageOrder { index: 2, tile: 1_472 },
        |p| p.rest.as_mut().unwrap().tile = 3 => ImageOrder { index: 3, tile: 3 },
    }
}

#[test]
fn no_field_makes_the_checker_panic() {
    let mut rng = support::Rng(3);
    let extremes = [
        0,
        1,
        2,
        3,
        15,
        16,
        0x4c000,
        0x7ffff,
        0x80000,
        1 << 31,
        u32::MAX - 3,
        u32::MAX,
    ];
    let mut broken = 0;
    for _ in 0..20_000 {
        let mut package = small();
        for _ in 0..1 + rng.next() % 2 {
            support::set_field(&mut package, rng.next(), extremes[rng.next() as usize % 12]);
        }
        broken += u32::from(check(&package).is_err());
        if package.tiles < 4 {
            ipu_package::summary(&package, &[]);
        }
    }
    assert!(broken > 15_000, "{broken}");
}
