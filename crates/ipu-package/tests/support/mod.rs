//! Packages for the tests: a small sound one, and one of full size.
#![allow(dead_code)]

use ipu_package::{
    Binding, Dtype, Mark, Order, Package, Piece, Role, Segment, SegmentKind, Span, StepInfo,
    StepKind, Tensor, TileImage,
};

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

/// Two tiles; a parameter of 4 x 40 with padded columns, an input and an output of 6 x 30 with
/// padded rows; the output stands where the input did.
pub fn small() -> Package {
    let image = |tile: u32, row: u32, frames: u32| TileImage {
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
    };
    let io_rows = (6, vec![span(0, 0, 3), span(4, 3, 3)]);
    let weights = Binding {
        dtype: Dtype::F143,
        scale_exponent: -4,
        order: Order::Blocks(32),
        ..binding(0, 0, DATA, (0, 0), (16, 64))
    };
    Package {
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
        images: vec![image(0, 3, 5), image(1, 4, 6)],
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
    }
}

/// One tile's row for one phase: mostly source changes at regular times, sends and pointer changes
/// between them; one word in ten is irregular.
fn row(rng: &mut Rng, tile: u32, phase: u32, words: u32) -> Vec<u32> {
    let (events, stride) = (8 + phase % 48, 1 + phase % 5);
    let word = |index: u32| {
        let irregular = rng.next();
        let jitter = if irregular.is_multiple_of(10) {
            irregular >> 24
        } else {
            0
        };
        let value = (tile * 3 + index * stride + jitter) & 0x1fff;
        match index % 8 {
            0 => 0x7800_0000 | (events & 63) << 21 | (0x8000 + index * events + jitter) << 3 | 4,
            3 => 0x6000_0000 | (events + jitter % 16) << 19 | (value << 2),
            7 => 0x40a0_0000 | (events + jitter),
            _ => 0x6400_0000 | (events + jitter) << 14 | (index & 1) << 13 | value,
        }
    };
    (0..words - 1).map(word).chain([0x43a0_0000]).collect()
}

/// A program: calls and frame loads whose addresses ascend.
fn program(rng: &mut Rng, tile: u32, words: u32) -> Vec<u32> {
    let word = |index: u32| match index % 4 {
        0 => 0x1900_0000 + FRAMES + index * 24,
        1 => 0x4080_0000 | (KERNEL + 64 * (index * 7 % 23)) >> 2,
        2 => 0x1900_0000 | (0x60000 + index * 40 + tile % 16 * 8) >> 2,
        _ => 0x4100_0000 | rng.next() % 4,
    };
    (0..words).map(word).collect()
}

/// Many tiles, each with a program of 2,048 words and about `row_words` words of rows; each has its
/// part of 300 parameters.
pub fn wide(tiles: u32, row_words: u32) -> Package {
    let mut rng = Rng(7);
    let mut package = small();
    package.segments.truncate(2);
    package.images.clear();
    package.bindings.clear();
    package.tensors.clear();
    let operation = |index: u32| {
        step(
            "encoder.mlp_up",
            &format!("gemm {index}"),
            StepKind::Compute,
        )
    };
    package.steps = (0..500).map(operation).collect();
    package.tiles = tiles;
    for tile in 0..tiles {
        let mut pieces = vec![
            Piece {
                address: 0x4c014,
                segment: 0,
            },
            Piece {
                address: KERNEL,
                segment: 1,
            },
        ];
        let mut push = |address, kind, words: Vec<u32>| {
            pieces.push(Piece {
                address,
                segment: package.segments.len() as u32,
            });
            package.segments.push(Segment { kind, words });
        };
        push(FRAMES, SegmentKind::Frames, vec![tile; 600]);
        push(
            PROGRAM,
            SegmentKind::TileProgram,
            program(&mut rng, tile, 2_048),
        );
        let (mut address, mut phase) = (ROWS, 0);
        while address < ROWS + 4 * row_words {
            let words = 20 + (phase * 37) % 200;
            let mut words = row(&mut rng, tile, phase, words);
            words.truncate((row_words - (address - ROWS) / 4) as usize);
            let end = address + 4 * words.len() as u32;
            push(address, SegmentKind::Row, words);
            (address, phase) = (end, phase + 1);
        }
        let mark = |step| Mark {
            address: PROGRAM + step * 16 + tile % 2 * 4,
            step,
        };
        let marks = (0..500).map(mark).collect();
        package.images.push(TileImage {
            tile,
            entry: 0x4c014,
            pieces,
            marks,
        });
    }
    for index in 0..300 {
        let name = format!("encoder.layers.{index}.weight");
        let rows = (tiles * 16, vec![span(0, 0, tiles * 16)]);
        let columns = (32, vec![span(0, 0, 32)]);
        package
            .tensors
            .push(tensor(&name, Role::Parameter, rows, columns));
        let part = |tile: u32| {
            let address = 0x80000 + index * 1_024;
            Binding {
                order: Order::Blocks(16),
                ..binding(index, tile, address, (tile * 16, 0), (16, 32))
            }
        };
        package.bindings.extend((0..tiles).map(part));
    }
    package
}
