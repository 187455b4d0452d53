//! Random small programs: random cuts, orders, owners, replicas, views and padding, judged by the
//! checker, the replay and the row checker.

mod support;

use ipu_ir::contract::MemoryClass;
use ipu_ir::layout::{Cuts, Extent, Layout, Owner, Replicas, Split, Tiling};
use ipu_ir::mid::*;
use ipu_package::{Dtype, Order};
use ipu_place::PlaceError;
use support::*;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % u64::from(n)) as u32
    }

    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize].clone()
    }
}

type Shape = (u32, Extent, Extent);

/// A random layout of a shape; `unit` elements are one or two words.
fn random_layout(dice: &mut Dice, tiles: u32, shape: Shape, dtype: Dtype, unit: u32) -> Layout {
    let (rows, columns) = (shape.1.size(), shape.2.size());
    let mut orders = vec![(Order::RowMajor, 1, unit)];
    for g in [4u32, 8, 16] {
        if g % unit == 0 && columns % g == 0 {
            orders.push((Order::Panels(g), 1, g));
            if rows % 16 == 0 {
                orders.push((Order::Blocks(g), 16, g));
            }
        }
    }
    let (order, row_grain, column_grain) = dice.pick(&orders);
    let mut room = tiles;
    let split = |dice: &mut Dice, size: u32, grain: u32, room: &mut u32| {
        let most = (size / grain).max(1).min(*room);
        let parts = dice.between(1, most);
        *room /= parts;
        Split::new(parts, grain)
    };
    let groups = split(dice, shape.0, 1, &mut room);
    let mut cuts = |dice: &mut Dice, size: u32, grain: u32| {
        let outer = split(dice, size, grain, &mut room);
        // The last outer part is the smallest: what fits there fits everywhere.
        let last = outer.part(&(0..size), outer.parts - 1);
        let inner = split(dice, last.end - last.start, grain, &mut room);
        Cuts { outer, inner }
    };
    let (rows, columns) = (
        cuts(dice, rows, row_grain),
        cuts(dice, columns, column_grain),
    );
    let replicas = dice.between(1, room.min(3));
    // Mixed radix strides, in a random nesting of axes and replicas.
    let parts = [
        groups.parts,
        rows.outer.parts,
        rows.inner.parts,
        columns.outer.parts,
        columns.inner.parts,
        replicas,
    ];
    let mut nesting = [0, 1, 2, 3, 4, 5];
    for at in (1..6).rev() {
        nesting.swap(at, dice.below(at as u32 + 1) as usize);
    }
    let mut strides = [0; 6];
    let mut stride = 1;
    for axis in nesting {
        strides[axis] = stride;
        stride *= parts[axis];
    }
    Layout {
        dtype,
        order,
        class: dice.pick(&[MemoryClass::Standard, MemoryClass::Interleaved]),
        tiling: Tiling {
            groups,
            rows,
            columns,
            owner: Owner {
                base: dice.below(tiles),
                group: strides[0],
                row: (strides[1], strides[2]),
                column: (strides[3], strides[4]),
                replica: Replicas {
                    outer: (1, 0),
                    inner: (replicas, strides[5]),
                },
            },
        },
    }
}

fn random_extent(dice: &mut Dice, units: u32, unit: u32) -> Extent {
    let logical = unit * dice.between(1, units);
    let multiple = unit * dice.pick(&[1, 2, 4, 8]);
    Extent {
        groups: 1,
        logical,
        padded: logical.next_multiple_of(multiple),
    }
}

fn repeated(extent: Extent, groups: u32) -> Extent {
    Extent { groups, ..extent }
}

/// A destination shape and a view of `source` that covers it.
fn random_view(dice: &mut Dice, source: Shape, unit: u32) -> (Shape, View) {
    let (groups, rows, columns) = source;
    let choice = dice.below(3);
    if choice == 0 && groups == 1 {
        let (heads, tokens, depth) = (columns.groups, rows.padded, columns.padded);
        let shape = (rows.groups * heads, repeated(rows, 1), repeated(columns, 1));
        let view = View::SplitHeads {
            heads,
            tokens,
            depth,
            column: 0,
        };
        return (shape, view);
    }
    if choice == 1 && rows.groups == 1 && columns.groups == 1 {
        let divisors: Vec<u32> = (1..=groups).filter(|by| groups % by == 0).collect();
        let heads = dice.pick(&divisors);
        let shape = (1, repeated(rows, groups / heads), repeated(columns, heads));
        let view = View::JoinHeads {
            heads,
            tokens: rows.padded,
            depth: columns.padded,
        };
        return (shape, view);
    }
    let group = dice.below(groups);
    let mut shape = (dice.between(1, groups - group), rows, columns);
    if rows.groups == 1 {
        let logical = dice.between(1, rows.logical);
        let padded = logical.next_multiple_of(dice.pick(&[1, 4, 16]));
        shape.1 = Extent {
            groups: 1,
            logical,
            padded,
        };
    }
    let mut column = 0;
    if columns.groups == 1 {
        column = unit * dice.below(columns.logical / unit);
        let left = (columns.logical - column) / unit;
        shape.2 = random_extent(dice, left, unit);
    }
    (shape, View::Same { group, column })
}

fn random_shape(dice: &mut Dice, unit: u32) -> Shape {
    let (rows, columns) = (random_extent(dice, 20, 1), random_extent(dice, 12, unit));
    if dice.below(2) == 0 {
        return (1, repeated(rows, 2), repeated(columns, dice.between(1, 3)));
    }
    (dice.between(1, 4), rows, columns)
}

fn random_mid(dice: &mut Dice) -> Mid {
    let tiles = dice.between(1, 8);
    let dtype = dice.pick(&[Dtype::F16, Dtype::F32, Dtype::F143]);
    let unit = dice.pick(&[4, 8]) / dtype.bytes();
    let looped = dice.below(3) == 0;
    let mut shape = random_shape(dice, unit);
    let names = (0..if looped { 2 } else { 1 }).map(|at| format!("p.{at}"));
    let parameter = Storage::Parameter(names.collect());
    let storage = if dice.below(2) == 0 {
        parameter
    } else {
        Storage::Input("in".into())
    };
    let first = random_layout(dice, tiles, shape, dtype, unit);
    let mut tensors = vec![tensor("first", shape, first, storage)];
    let mut body = Vec::new();
    let mut last = 0u32;
    for hop in 0..dice.between(1, 4) {
        let source = shape;
        let (next, view) = random_view(dice, source, unit);
        shape = next;
        let layout = random_layout(dice, tiles, shape, dtype, unit);
        let id = tensors.len() as u32;
        tensors.push(tensor(
            &format!("t{hop}"),
            shape,
            layout,
            Storage::Transient,
        ));
        if dice.below(2) == 0 {
            body.push(fill(&format!("fill{hop}"), id, Filter::Padded));
        }
        let mut copies = vec![(last, id, view)];
        if dice.below(3) == 0 {
            // A second copy of the same phase, which the host reads.
            let (other, view) = random_view(dice, source, unit);
            let name = format!("o{hop}");
            let layout = random_layout(dice, tiles, other, dtype, unit);
            copies.push((last, tensors.len() as u32, view));
            tensors.push(tensor(&name, other, layout, Storage::Output(name.clone())));
        }
        body.push(exchange(&format!("copy{hop}"), &copies));
        last = id;
        if dice.below(2) == 0 {
            tensors.push(tensor(
                &format!("m{hop}"),
                shape,
                layout,
                Storage::Transient,
            ));
            last = tensors.len() as u32 - 1;
            body.push(map(&format!("map{hop}"), id, last));
        }
    }
    let layout = tensors[last as usize].layout;
    let out = tensors.len() as u32;
    tensors.push(tensor("out", shape, layout, Storage::Output("out".into())));
    let end = map("end", last, out);
    let steps = if looped {
        vec![Step::Repeat { count: 2, body }, end]
    } else {
        body.push(end);
        body
    };
    Mid {
        tiles,
        tensors,
        steps,
    }
}

#[test]
fn random_worlds_hold_what_they_say() {
    let mut dice = Dice(0x5eed_0123_4567_89ab);
    let (mut placed, mut fragments, mut transfers) = (0, 0, 0);
    for world in 0..400 {
        let mid = random_mid(&mut dice);
        match judged(&mid) {
            Ok(done) => {
                placed += 1;
                transfers += done.phases.len();
            }
            // On a lone tile nobody else can receive what no local copy moves.
            Err(PlaceError::Fragment { .. }) if mid.tiles == 1 => fragments += 1,
            Err(error) => panic!(
                "world {world}: {error}\n{}",
                serde_json::to_string(&mid).unwrap()
            ),
        }
    }
    assert!(
        placed > 350 && transfers > 300,
        "{placed} {fragments} {transfers}"
    );
}
