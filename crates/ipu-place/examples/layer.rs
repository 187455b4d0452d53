//! Times the placement of a stack of full-width encoder layers on 1,464 tiles.
//!
//! Kernels are stand-ins with the extents of real ones; grids are those of a plain recipe: QKV
//! 3 x 54 x 9, scores 9 x 10 for each head, context 13 x 1 x 6, output 5 x 24 x 12, up 9 x 27 x 6,
//! down 6 x 9 x 27. `cargo run --release -p ipu-place --example layer [rows]`: with `rows`, phases
//! are scheduled too.

use std::collections::BTreeMap;
use std::time::Instant;

use ipu_ir::contract::{Contract, Family, MemoryClass};
use ipu_ir::layout::{Cuts, Extent, Layout, Owner, Replicas, Split, Tiling};
use ipu_ir::mid::*;
use ipu_ir::program::{Placed, Reservations, Step as PlacedStep};
use ipu_package::{Dtype, Order};
use ipub_base::NoMemo;

const TILES: u32 = 1472;
const LAYERS: u32 = 27;
const HEADS: u32 = 16;
const KERNELS: &str = r#"
family = "stand-in"
[[kernel]]
name = "map"
source = "x.S"
summary = "source to out"
arg = [
    { kind = "in", name = "source", dtype = "u32", bytes = "source_bytes", align = 8, over_read = 8 },
    { kind = "out", name = "out", dtype = "u32", bytes = "out_bytes", align = 8 },
    { kind = "scalar", name = "source_bytes", min = 1, max = 999999 },
    { kind = "scalar", name = "out_bytes", min = 1, max = 999999 },
]
case = [{ name = "one", args = { source_bytes = 8, out_bytes = 8 } }]
[[kernel]]
name = "gemm"
source = "x.S"
summary = "left times right"
arg = [
    { kind = "in", name = "left", dtype = "u32", bytes = "left_bytes", align = 8 },
    { kind = "in", name = "right", dtype = "u32", bytes = "right_bytes", align = 16, class = "interleaved" },
    { kind = "out", name = "out", dtype = "u32", bytes = "out_bytes", align = 8, over_read = 8 },
    { kind = "scalar", name = "left_bytes", min = 1, max = 999999 },
    { kind = "scalar", name = "right_bytes", min = 1, max = 999999 },
    { kind = "scalar", name = "out_bytes", min = 1, max = 999999 },
]
distinct = [{ args = ["left", "out"] }]
case = [{ name = "one", args = { left_bytes = 8, right_bytes = 8, out_bytes = 8 } }]
[[kernel]]
name = "fill_u32"
source = "x.S"
summary = "out of zeros"
arg = [
    { kind = "out", name = "out", dtype = "u32", bytes = "4 * count", align = 8 },
    { kind = "scalar", name = "count", min = 1, max = 999999 },
]
case = [{ name = "one", args = { count = 8 } }]
[[kernel]]
name = "copy_u64"
source = "x.S"
summary = "count units of 8 bytes"
arg = [
    { kind = "in", name = "source", dtype = "u32", bytes = "8 * count", align = 8 },
    { kind = "out", name = "out", dtype = "u32", bytes = "8 * count", align = 8 },
    { kind = "scalar", name = "count", min = 1, max = 65536 },
]
case = [{ name = "one", args = { count = 8 } }]
[[kernel]]
name = "copy_strided"
source = "x.S"
summary = "rows of units of 8 bytes"
arg = [
    { kind = "in", name = "source", dtype = "u32", bytes = "8 * ((rows - 1) * source_stride + units)", align = 8 },
    { kind = "out", name = "out", dtype = "u32", bytes = "8 * ((rows - 1) * out_stride + units)", align = 8 },
    { kind = "scalar", name = "rows", min = 1, max = 65536 },
    { kind = "scalar", name = "units", min = 1, max = 65536 },
    { kind = "scalar", name = "source_stride", min = 1, max = 65536 },
    { kind = "scalar", name = "out_stride", min = 1, max = 65536 },
]
case = [{ name = "one", args = { rows = 1, units = 1, source_stride = 1, out_stride = 1 } }]
"#;

#[derive(Default)]
struct Stack {
    tensors: Vec<Tensor>,
    steps: Vec<Step>,
    /// Where the next tensor without tiles of its own begins.
    base: u32,
}

/// An axis cut in `parts` by multiples of `grain`, a part `stride` tiles from the next.
#[derive(Clone, Copy)]
struct Axis(u32, u32, u32);

const WHOLE: Axis = Axis(1, 1, 0);

impl Stack {
    fn tensor(
        &mut self,
        name: &str,
        shape: (u32, Extent, Extent),
        (dtype, order): (Dtype, Order),
        (groups, rows, columns): (Axis, Axis, Axis),
        replicas: (u32, u32),
    ) -> u32 {
        let cuts = |axis: Axis| Cuts::of(Split::new(axis.0, axis.1));
        self.tensors.push(Tensor {
            name: name.to_owned(),
            groups: shape.0,
            rows: shape.1,
            columns: shape.2,
            layout: Layout {
                dtype,
                order,
                class: MemoryClass::Standard,
                tiling: Tiling {
                    groups: Split::new(groups.0, groups.1),
                    rows: cuts(rows),
                    columns: cuts(columns),
                    owner: Owner {
                        base: self.base,
                        group: groups.2,
                        row: (rows.2, 0),
                        column: (columns.2, 0),
                        replica: Replicas {
                            outer: (1, 0),
                            inner: replicas,
                        },
                    },
                },
            },
            scale_exponent: 0,
            storage: Storage::Transient,
        });
        self.tensors.len() as u32 - 1
    }

    fn copies(&mut self, label: &str, copies: &[(u32, u32, View)]) {
        let copies = copies.iter().map(|&(source, destination, view)| Copy {
            source: TensorId(source),
            destination: TensorId(destination),
            view,
        });
        self.steps.push(Step::Exchange(Exchange {
            operation: "layer".to_owned(),
            label: label.to_owned(),
            copies: copies.collect(),
        }));
    }

    fn call(&mut self, label: &str, kernel: &str, operands: &[(&str, u32)]) {
        let bytes = |argument: &str| {
            let rule = ScalarRule::Measure {
                argument: argument.to_owned(),
                measure: Measure::Bytes,
                divisor: 1,
            };
            (format!("{argument}_bytes"), rule)
        };
        let operand = |&(argument, id): &(&str, u32)| Operand {
            argument: argument.to_owned(),
            tensor: TensorId(id),
        };
        self.steps.push(Step::Compute(Compute {
            operation: "layer".to_owned(),
            label: label.to_owned(),
            kernel: kernel.to_owned(),
            operands: operands.iter().map(operand).collect(),
            scalars: operands.iter().map(|&(name, _)| bytes(name)).collect(),
            only: Filter::All,
        }));
    }

    fn map(&mut self, label: &str, source: u32, out: u32) {
        self.call(label, "map", &[("source", source), ("out", out)]);
    }

    fn clear(&mut self, label: &str, out: u32) {
        let count = ScalarRule::Measure {
            argument: "out".to_owned(),
            measure: Measure::Bytes,
            divisor: 4,
        };
        self.steps.push(Step::Compute(Compute {
            operation: "layer".to_owned(),
            label: label.to_owned(),
            kernel: "fill_u32".to_owned(),
            operands: vec![Operand {
                argument: "out".to_owned(),
                tensor: TensorId(out),
            }],
            scalars: BTreeMap::from([("count".to_owned(), count)]),
            only: Filter::Padded,
        }));
    }

    /// Weights at home on all tiles, and beside the products that use them.
    fn weights(
        &mut self,
        name: &str,
        (m, n, k): (u32, u32, u32),
        shape: (u32, Extent, Extent),
    ) -> (u32, u32) {
        let panels = (Dtype::F143, Order::Blocks(32));
        let (blocks, slices) = (shape.1.size().div_ceil(16), shape.2.size() / 32);
        let slices = slices.min(TILES / blocks);
        let tiles = (WHOLE, Axis(blocks, 16, slices), Axis(slices, 32, 1));
        let home = self.tensor(&format!("{name}.home"), shape, panels, tiles, (1, 0));
        self.tensors[home as usize].storage =
            Storage::Parameter((0..LAYERS).map(|l| format!("{name}.{l}.weight")).collect());
        let tiles = (WHOLE, Axis(n, 16, 1), Axis(k, 32, n));
        let right = self.tensor(&format!("{name}.right"), shape, panels, tiles, (m, k * n));
        (home, right)
    }

    /// A product with FP8 operands: gather rows, gather weights, multiply, scatter, reduce.
    fn product(
        &mut self,
        name: &str,
        source: u32,
        (m, n, k): (u32, u32, u32),
        (inner, out): (Extent, Extent),
        spread: u32,
    ) -> u32 {
        let tokens = Extent::plain(729);
        let id = |what: &str| format!("{name}.{what}");
        let (by_m, by_k) = (Axis(m, 2, k * n), Axis(k, 32, n));
        let wide = Extent::padded(inner.size(), 32);
        let order = match self.tensors[source as usize].layout.order {
            Order::Panels(_) => Order::Panels(16),
            other => other,
        };
        let gathered = (WHOLE, by_m, by_k);
        let left = self.tensor(
            &id("rows"),
            (1, tokens, wide),
            (Dtype::F16, order),
            gathered,
            (n, 1),
        );
        let cast = self.tensor(
            &id("left"),
            (1, tokens, wide),
            (Dtype::F143, Order::Panels(32)),
            (WHOLE, by_m, by_k),
            (n, 1),
        );
        let (home, right) = self.weights(name, (m, n, k), (1, out, wide));
        let panels = (Dtype::F16, Order::Panels(16));
        let partial = self.tensor(
            &id("partial"),
            (k, tokens, out),
            panels,
            (Axis(k, 1, n), by_m, Axis(n, 16, 1)),
            (1, 0),
        );
        let owners = (WHOLE, Axis(m, 2, k * n), Axis(n, 16, 1));
        let staged = self.tensor(&id("staged"), (k, tokens, out), panels, owners, (1, 0));
        let result = self.tensor(&id("out"), (1, tokens, out), panels, owners, (1, 0));
        for tensor in [staged, result] {
            let tiling = &mut self.tensors[tensor as usize].layout.tiling;
            tiling.rows.inner = Split::new(spread, 1);
            tiling.owner.row.1 = n;
        }
        if wide.size() > inner.size() {
            self.clear(&id("clear"), left);
        }
        self.copies(
            &id("gather"),
            &[(source, left, View::SAME), (home, right, View::SAME)],
        );
        self.map(&id("cast"), left, cast);
        self.call(
            &id("gemm"),
            "gemm",
            &[("left", cast), ("right", right), ("out", partial)],
        );
        self.copies(&id("scatter"), &[(partial, staged, View::SAME)]);
        self.map(&id("reduce"), staged, result);
        result
    }

    /// Scores of all heads, gathered to whole rows and normalised.
    fn probabilities(&mut self, qkv: u32, shape: (u32, Extent, Extent)) -> u32 {
        let (heads, keys, depth) = (HEADS, shape.2, Extent::padded(72, 80));
        let half = (Dtype::F16, Order::Panels(16));
        let right = (Dtype::F16, Order::Blocks(16));
        let by_head = Axis(heads, 1, 90);
        let (by_row, by_key) = (Axis(9, 2, 10), Axis(10, 16, 1));
        let q = (heads, shape.1, depth);
        let q = self.tensor("q", q, half, (by_head, by_row, WHOLE), (10, 1));
        let k = (heads, keys, depth);
        let k = self.tensor("k", k, right, (by_head, by_key, WHOLE), (9, 10));
        let scores = self.tensor("scores", shape, half, (by_head, by_row, by_key), (1, 0));
        let rows = (by_head, Axis(81, 1, 1), WHOLE);
        let row_scores = self.tensor("row_scores", shape, half, rows, (1, 0));
        let probable = self.tensor("probable", shape, half, rows, (1, 0));
        self.clear("clear keys", k);
        self.copies("heads", &[(qkv, q, split(0)), (qkv, k, split(1))]);
        let operands = [("left", q), ("right", k), ("out", scores)];
        self.call("scores", "gemm", &operands);
        self.copies("rows of scores", &[(scores, row_scores, View::SAME)]);
        self.map("softmax", row_scores, probable);
        probable
    }

    fn attention(&mut self, qkv: u32) -> u32 {
        let (tokens, keys) = (Extent::plain(729), Extent::padded(729, 96));
        let depth = Extent::padded(72, 80);
        let half = (Dtype::F16, Order::Panels(16));
        let (row_major, right) = (
            (Dtype::F16, Order::RowMajor),
            (Dtype::F16, Order::Blocks(16)),
        );
        let probable = self.probabilities(qkv, (HEADS, tokens, keys));
        let by_head = Axis(HEADS, 1, 90);
        let (by_row, by_key) = (Axis(13, 2, 1), Axis(6, 32, 15));
        let left = (HEADS, tokens, keys);
        let left = self.tensor("left", left, half, (by_head, by_row, by_key), (1, 0));
        let v = (HEADS, keys, depth);
        let v_rows = self.tensor("v", v, row_major, (by_head, by_key, WHOLE), (13, 1));
        let v = (HEADS, depth, keys);
        let v = self.tensor("v_packed", v, right, (by_head, WHOLE, by_key), (13, 1));
        let parts = (Axis(6 * HEADS, 1, 15), by_row, WHOLE);
        let context = (6 * HEADS, tokens, depth);
        let context = self.tensor("context_partial", context, half, parts, (1, 0));
        let heads = Extent {
            groups: HEADS,
            logical: 72,
            padded: 80,
        };
        let by_rows = (WHOLE, Axis(729, 1, 2), WHOLE);
        let joined = self.tensor("context", (1, tokens, heads), row_major, by_rows, (1, 0));
        self.clear("clear values", v_rows);
        let same = (probable, left, View::SAME);
        self.copies("probabilities", &[same, (qkv, v_rows, split(2))]);
        self.map("pack", v_rows, v);
        let operands = [("left", left), ("right", v), ("out", context)];
        self.call("values", "gemm", &operands);
        let join = View::JoinHeads {
            heads: HEADS,
            tokens: 729,
            depth: 80,
        };
        self.copies("join", &[(context, joined, join)]);
        joined
    }
}

/// Queries, keys or values of every head.
fn split(part: u32) -> View {
    View::SplitHeads {
        heads: HEADS,
        tokens: 729,
        depth: 80,
        column: part * HEADS * 80,
    }
}

fn stack() -> Mid {
    let mut stack = Stack::default();
    let tokens = Extent::plain(729);
    let shape = |columns| (1, tokens, columns);
    let rows = (WHOLE, Axis(729, 1, 2), WHOLE);
    let half = (Dtype::F16, Order::RowMajor);
    let hidden = Extent::plain(1152);
    let input = stack.tensor("input", shape(hidden), half, rows, (1, 0));
    let x = stack.tensor("x", shape(hidden), half, rows, (1, 0));
    let output = stack.tensor("output", shape(hidden), half, rows, (1, 0));
    stack.tensors[input as usize].storage = Storage::Input("input".into());
    stack.tensors[output as usize].storage = Storage::Output("output".into());
    stack.map("begin", input, x);
    let before = std::mem::take(&mut stack.steps);
    let heads = Extent {
        groups: 3 * HEADS,
        logical: 72,
        padded: 80,
    };
    let normal = stack.tensor("normal", shape(hidden), half, rows, (1, 0));
    stack.map("norm", x, normal);
    let qkv = stack.product("qkv", normal, (3, 54, 9), (hidden, heads), 9);
    let joined = stack.attention(qkv);
    let out_inner = Extent {
        groups: HEADS,
        logical: 72,
        padded: 80,
    };
    let out = stack.product("out", joined, (5, 24, 12), (out_inner, hidden), 12);
    let mid_size = Extent::padded(4304, 32);
    let up = stack.product("up", out, (9, 27, 6), (hidden, mid_size), 6);
    let down = stack.product("down", up, (6, 9, 27), (mid_size, hidden), 27);
    stack.copies("residual", &[(down, x, View::SAME)]);
    let body = std::mem::take(&mut stack.steps);
    let mut steps = before;
    steps.push(Step::Repeat {
        count: LAYERS,
        body,
    });
    stack.map("end", x, output);
    steps.append(&mut stack.steps);
    Mid {
        tiles: TILES,
        tensors: stack.tensors,
        steps,
    }
}

fn main() {
    let family = Family::parse(KERNELS).expect("the stand-ins are well formed");
    let kernels = family.kernels.into_iter();
    let contracts: BTreeMap<String, Contract> = kernels.map(|k| (k.name.clone(), k)).collect();
    let mid = stack();
    let reservations = Reservations {
        support_bytes: 49_152,
        row_bytes: 49_152,
    };
    let begin = Instant::now();
    let program = ipu_place::expand(&mid, &contracts).expect("the layer expands");
    println!("expand {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    fn count(steps: &[PlacedStep], found: &mut (usize, usize, usize)) {
        for step in steps {
            match step {
                PlacedStep::Repeat { body, .. } => count(body, found),
                PlacedStep::Phase { transfers, .. } => {
                    found.0 += transfers.len();
                    found.1 += transfers
                        .iter()
                        .map(|t| t.destinations.len())
                        .sum::<usize>();
                }
                PlacedStep::Calls { calls, .. } => found.2 += calls.len(),
                _ => {}
            }
        }
    }
    let mut found = (0, 0, 0);
    count(&program.steps, &mut found);
    println!(
        "{} tensors, {} allocations, {} transfers, {} receives, {} calls",
        mid.tensors.len(),
        program.allocations.len(),
        found.0,
        found.1,
        found.2
    );
    let names: Vec<&str> = mid.tensors.iter().map(|t| t.name.as_str()).collect();
    let begin = Instant::now();
    let addresses = ipu_place::allocate(&program, &names, &reservations, &NoMemo);
    println!("allocate {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err(error) => return println!("{error}"),
    };
    let policy = ipu_place::SchedulePolicy::default();
    if std::env::args().nth(1).as_deref() != Some("rows") {
        return;
    }
    let begin = Instant::now();
    let phases = ipu_place::schedule_phases(&program, &addresses, &reservations, &policy, &NoMemo);
    println!("schedule {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    let phases = match phases {
        Ok(phases) => phases,
        Err(error) => return println!("{error}"),
    };
    let events: u32 = phases.iter().map(|phase| phase.horizon).sum();
    let bound: u32 = phases.iter().map(|phase| phase.bound).sum();
    println!("{} phases, {events} events, bound {bound}", phases.len());
    let placed = Placed {
        program,
        addresses,
        phases,
        reservations,
    };
    let begin = Instant::now();
    ipu_place::check::check(&placed, &contracts).expect("the checker agrees");
    println!("check {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    let traffic = ipu_place::traffic(&placed.program, &placed.addresses).expect("as scheduled");
    for (transfers, phase) in traffic.iter().zip(&placed.phases) {
        let rows = phase.rows.iter().map(|row| ipu_exchange::Row {
            tile: row.tile,
            words: row.words.clone(),
            horizon: row.horizon,
            incoming_base: row.incoming_base,
            moving_base: row.outgoing_base.map(|base| base.0),
        });
        let rows: Vec<ipu_exchange::Row> = rows.collect();
        ipu_exchange::check(transfers, &ipu_exchange::check::inputs(&rows))
            .expect("the rows do what was asked");
    }
    println!("check rows {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    let mut row_bytes = vec![0; TILES as usize];
    for row in placed.phases.iter().flat_map(|phase| &phase.rows) {
        row_bytes[row.tile as usize] += 4 * row.words.len();
    }
    println!("rows: at most {:?} bytes on a tile", row_bytes.iter().max());
}
