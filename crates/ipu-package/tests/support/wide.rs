//! A package of many tiles whose rows and programs are much like real ones.

use ipu_package::{
    Binding, Mark, Order, Package, Piece, Role, Segment, SegmentKind, StepKind, TileImage,
};

use super::{FRAMES, KERNEL, PROGRAM, ROWS, Rng, binding, planned, small, span, step, tensor};

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
        _ => 0x4100_0000 | (rng.next() % 4),
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
    (package.rest, package.tiles) = (None, tiles);
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
            let left = row_words - (address - ROWS) / 4;
            let words = 20 + (phase * 37) % 200;
            let words = if left < words + 20 { left } else { words };
            let words = row(&mut rng, tile, phase, words);
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
    planned(package)
}
