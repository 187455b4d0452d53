//! Packages for the tests: a small sound one, and one of full size.
#![allow(dead_code, unused_imports)]

mod wide;

use ipu_package::{
    Binding, Dtype, HostPlan, Mark, Order, Package, Piece, Role, Segment, SegmentKind, Span,
    StepInfo, StepKind, Tensor, TileImage,
};

pub use wide::wide;

/// A linear congruential generator: the upper 32 bits are fair enough for tests.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963);
        (self.0 >> 32) as u32
    }
}

fn segment(kind: SegmentKind, words: impl IntoIterator<Item = u32>) -> Segment {
    Segment {
        kind,
        words: words.into_iter().collect(),
    }
}

fn span(device: u32, logical: u32, count: u32) -> Span {
    Span {
        device,
        logical,
        count,
    }
}

fn step(operation: &str, label: &str, kind: StepKind) -> StepInfo {
    StepInfo {
        operation: operation.to_owned(),
        label: label.to_owned(),
        kind,
    }
}

fn tensor(name: &str, role: Role, rows: (u32, Vec<Span>), columns: (u32, Vec<Span>)) -> Tensor {
    Tensor {
        name: name.to_owned(),
        role,
        rows: rows.0,
        columns: columns.0,
        row_spans: rows.1,
        column_spans: columns.1,
    }
}

fn binding(tensor: u32, tile: u32, address: u32, at: (u32, u32), extent: (u32, u32)) -> Binding {
    Binding {
        tensor,
        tile,
        address,
        dtype: Dtype::F16,
        scale_exponent: 0,
        order: Order::Panels(16),
        row: at.0,
        column: at.1,
        rows: extent.0,
        columns: extent.1,
    }
}

pub const KERNEL: u32 = 0x4c018;
pub const PROGRAM: u32 = 0x5c000;
pub const FRAMES: u32 = 0x586e0;
pub const ROWS: u32 = 0x60000;
pub const DATA: u32 = 0x64000;

fn image(tile: u32, row: u32, frames: u32) -> TileImage {
    TileImage {
        tile,
        entry: 0x4c014,
        pieces: vec![
            Piece {
                address: 0x4c014,
                segment: 0,
            },
            Piece {
                address: KERNEL,
                segment: 1,
            },
            Piece {
                address: FRAMES,
                segment: frames,
            },
            Piece {
                address: PROGRAM,
                segment: 2,
            },
            Piece {
                address: ROWS,
                segment: row,
            },
        ],
        marks: vec![
            Mark {
                address: PROGRAM,
                step: 0,
            },
            Mark {
                address: PROGRAM + 8,
                step: 1,
            },
            Mark {
                address: PROGRAM + 20,
                step: 2,
            },
        ],
    }
}

/// Two tiles; a parameter of 4 x 40 with padded columns, an input and an output of 6 x 30 with
/// padded rows; the output stands where the input did.
pub fn small() -> Package {
    let other = |tile| TileImage {
        tile,
        entry: 0x4c014,
        pieces: vec![Piece {
            address: 0x4c014,
            segment: 0,
        }],
        marks: vec![],
    };
    let (serving, rest) = (other(90), other(2));
    let io_rows = (6, vec![span(0, 0, 3), span(4, 3, 3)]);
    let weights = Binding {
        dtype: Dtype::F143,
        scale_exponent: -4,
        order: Order::Blocks(32),
        ..binding(0, 0, DATA, (0, 0), (16, 64))
    };
    let package = Package {
        device: "c600".to_owned(),
        tiles: 2,
        segments: vec![
            segment(SegmentKind::TileProgram, [0x4200_0000]),
            segment(SegmentKind::Kernel, (0..20).map(|i| 0x1900_0000 + i * i)),
            segment(
                SegmentKind::TileProgram,
                (0..9).map(|i| 0x1900_0040 + (i << 20)),
            ),
            segment(SegmentKind::Row, [0x40a0_0010, 0x43a0_0000]),
            segment(SegmentKind::Row, [0x7800_0123, 0x40a0_0005, 0x43a0_0000]),
            segment(SegmentKind::Frames, [DATA, 0x8_0000, 40]),
            segment(SegmentKind::Frames, [DATA, 0x8_1000, 40]),
        ],
        images: vec![image(0, 3, 5), image(1, 4, 6), serving],
        rest: Some(rest),
        tensors: vec![
            tensor(
                "w",
                Role::Parameter,
                (4, vec![span(0, 0, 4)]),
                (40, vec![span(0, 0, 40)]),
            ),
            tensor(
                "x",
                Role::Input,
                io_rows.clone(),
                (30, vec![span(0, 0, 30)]),
            ),
            tensor("y", Role::Output, io_rows, (30, vec![span(0, 0, 30)])),
        ],
        bindings: vec![
            weights,
            Binding { tile: 1, ..weights },
            binding(1, 0, 0x80000, (0, 0), (4, 32)),
            binding(1, 1, 0x80000, (4, 0), (4, 32)),
            binding(2, 0, 0x80000, (0, 0), (4, 32)),
            binding(2, 1, 0x80040, (4, 0), (4, 32)),
        ],
        steps: vec![
            step("x", "upload", StepKind::HostUpload),
            step("mlp", "gemm", StepKind::Compute),
            step("y", "download", StepKind::HostDownload),
        ],
        host: HostPlan::default(),
    };
    planned(package)
}

/// A package with the host plan of its bindings.
pub fn planned(mut package: Package) -> Package {
    plan(&mut package);
    package
}

/// Make the host plan of the bindings.
pub fn plan(package: &mut Package) {
    package.host = HostPlan::new(&package.tensors, &package.bindings, |tile| tile);
}

/// Set one number of a package, chosen by `which`.
pub fn set_field(package: &mut Package, which: u32, value: u32) {
    let at = |length: usize| which as usize / 32 % length;
    let marked = package
        .images
        .iter()
        .filter(|image| !image.marks.is_empty());
    let image = at(marked.count());
    let binding = at(package.bindings.len());
    let tensor = at(package.tensors.len());
    let image = &mut package.images[image];
    let (piece, mark) = (at(image.pieces.len()), at(image.marks.len()));
    let binding = &mut package.bindings[binding];
    let tensor = &mut package.tensors[tensor];
    let row = at(tensor.row_spans.len());
    let host = &mut package.host;
    if host.inputs.is_empty() {
        host.inputs = host.parameters.clone();
    }
    let slot = which as usize / 32 % host.slots.len();
    let run = which as usize / 32 % host.inputs.len();
    let run = &mut host.inputs[run];
    *match which % 26 {
        0 => &mut package.tiles,
        1 => &mut image.tile,
        2 => &mut image.entry,
        3 => &mut image.pieces[piece].address,
        4 => &mut image.pieces[piece].segment,
        5 => &mut image.marks[mark].address,
        6 => &mut image.marks[mark].step,
        7 => &mut tensor.rows,
        8 => &mut tensor.columns,
        9 => &mut tensor.row_spans[row].device,
        10 => &mut tensor.row_spans[row].logical,
        11 => &mut tensor.row_spans[row].count,
        12 => &mut tensor.column_spans[0].device,
        13 => &mut tensor.column_spans[0].logical,
        14 => &mut tensor.column_spans[0].count,
        15 => &mut binding.tensor,
        16 => &mut binding.tile,
        17 => &mut binding.address,
        18 => &mut binding.row,
        19 => &mut binding.column,
        20 => &mut binding.rows,
        21 => &mut binding.columns,
        22 => &mut host.slots[slot],
        23 => &mut run.tile,
        24 => &mut run.address,
        _ => &mut run.bytes,
    } = value;
}
