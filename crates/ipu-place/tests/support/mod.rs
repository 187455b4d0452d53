//! Hand-made contracts and mids for the tests of placement.
#![allow(dead_code)]

use std::collections::BTreeMap;

use ipu_ir::contract::{Contract, Family, MemoryClass};
use ipu_ir::layout::{Cuts, Extent, Layout, Owner, Replicas, Split, Tiling};
use ipu_ir::mid::*;
use ipu_ir::program::{Placed, Reservations};
use ipu_package::{Dtype, Order};
use ipu_place::{PlaceError, SchedulePolicy};

const KERNELS: &str = r#"
family = "test"
[[kernel]]
name = "gemm"
source = "x.S"
summary = "left times right"
arg = [
    { kind = "in", name = "left", dtype = "f16", bytes = "2 * rows * inner", align = 8 },
    { kind = "in", name = "right", dtype = "f16", bytes = "2 * columns * inner", align = 16, class = "interleaved" },
    { kind = "out", name = "out", dtype = "f16", bytes = "2 * rows * columns", align = 8, over_read = 8 },
    { kind = "scalar", name = "rows", min = 1, max = 4096 },
    { kind = "scalar", name = "columns", min = 16, max = 4096, multiple = 16 },
    { kind = "scalar", name = "inner", min = 16, max = 4096, multiple = 16 },
]
distinct = [{ args = ["left", "out"] }]
case = [{ name = "one", args = { rows = 1, columns = 16, inner = 16 } }]

[[kernel]]
name = "reduce"
source = "x.S"
summary = "sum of parts"
arg = [
    { kind = "in", name = "source", dtype = "f16", bytes = "2 * count * parts", align = 8, over_read = 16 },
    { kind = "out", name = "out", dtype = "f16", bytes = "2 * count", align = 8 },
    { kind = "scalar", name = "count", min = 1, max = 65536 },
    { kind = "scalar", name = "parts", min = 1, max = 64 },
]
case = [{ name = "one", args = { count = 8, parts = 2 } }]

[[kernel]]
name = "map"
source = "x.S"
summary = "source to out"
arg = [
    { kind = "in", name = "source", dtype = "u32", bytes = "bytes", align = 4 },
    { kind = "out", name = "out", dtype = "u32", bytes = "bytes", align = 4 },
    { kind = "scalar", name = "bytes", min = 1, max = 999999 },
]
case = [{ name = "one", args = { bytes = 8 } }]

[[kernel]]
name = "update"
source = "x.S"
summary = "data from source"
arg = [
    { kind = "inout", name = "data", dtype = "u32", bytes = "bytes", align = 8 },
    { kind = "in", name = "source", dtype = "u32", bytes = "bytes", align = 8 },
    { kind = "scalar", name = "bytes", min = 1, max = 999999 },
]
distinct = [{ args = ["data", "source"] }]
case = [{ name = "one", args = { bytes = 8 } }]

[[kernel]]
name = "fill_u32"
source = "x.S"
summary = "out of one value"
arg = [
    { kind = "out", name = "out", dtype = "u32", bytes = "4 * count", align = 4 },
    { kind = "scalar", name = "count", min = 1, max = 999999 },
    { kind = "scalar", name = "value", min = 0, max = 0 },
]
case = [{ name = "one", args = { count = 8, value = 0 } }]

[[kernel]]
name = "copy_u64"
source = "x.S"
summary = "count units of 8 bytes"
arg = [
    { kind = "in", name = "source", dtype = "u32", bytes = "8 * count", align = 8 },
    { kind = "out", name = "out", dtype = "u32", bytes = "8 * count", align = 8 },
    { kind = "scalar", name = "count", min = 1, max = 65536 },
]
distinct = [{ args = ["source", "out"] }]
case = [{ name = "one", args = { count = 8 } }]

[[kernel]]
name = "copy_strided"
source = "x.S"
summary = "rows of units, in units of 8 bytes"
arg = [
    { kind = "in", name = "source", dtype = "u32", bytes = "8 * ((rows - 1) * source_stride + units)", align = 8 },
    { kind = "out", name = "out", dtype = "u32", bytes = "8 * ((rows - 1) * out_stride + units)", align = 8 },
    { kind = "scalar", name = "rows", min = 1, max = 65536 },
    { kind = "scalar", name = "units", min = 1, max = 65536 },
    { kind = "scalar", name = "source_stride", min = 1, max = 65536 },
    { kind = "scalar", name = "out_stride", min = 1, max = 65536 },
]
distinct = [{ args = ["source", "out"] }]
case = [{ name = "one", args = { rows = 1, units = 1, source_stride = 1, out_stride = 1 } }]
"#;

pub fn contracts() -> BTreeMap<String, Contract> {
    let family = Family::parse(KERNELS).unwrap();
    let named = family.kernels.into_iter();
    named.map(|kernel| (kernel.name.clone(), kernel)).collect()
}

pub const RESERVATIONS: Reservations = Reservations {
    support_bytes: 0x4000,
    row_bytes: 0x8000,
};

/// Place and let every checker judge.
pub fn judged(mid: &Mid) -> Result<Placed, PlaceError> {
    let contracts = contracts();
    let placed = ipu_place::place(mid, &contracts, &RESERVATIONS, &SchedulePolicy::default())?;
    ipu_place::check::check(&placed, &contracts).unwrap();
    ipu_place::check::replay(mid, &contracts, &placed).unwrap();
    let traffic = ipu_place::traffic(&placed.program, &placed.addresses).unwrap();
    assert_eq!(traffic.len(), placed.phases.len());
    for (transfers, phase) in traffic.iter().zip(&placed.phases) {
        let rows: Vec<ipu_exchange::Row> = phase
            .rows
            .iter()
            .map(|row| ipu_exchange::Row {
                tile: row.tile,
                words: row.words.clone(),
                horizon: row.horizon,
                incoming_base: row.incoming_base,
                moving_base: row.outgoing_base.map(|base| base.0),
            })
            .collect();
        ipu_exchange::check(transfers, &ipu_exchange::check::inputs(&rows)).unwrap();
    }
    Ok(placed)
}

pub fn tiling(groups: u32, rows: (u32, u32), columns: (u32, u32), owner: Owner) -> Tiling {
    Tiling {
        groups: Split::new(groups, 1),
        rows: Cuts::of(Split::new(rows.0, rows.1)),
        columns: Cuts::of(Split::new(columns.0, columns.1)),
        owner,
    }
}

pub fn owner(group: u32, row: u32, column: u32, replicas: (u32, u32)) -> Owner {
    Owner {
        base: 0,
        group,
        row: (row, 0),
        column: (column, 0),
        replica: Replicas {
            outer: (1, 0),
            inner: replicas,
        },
    }
}

pub fn layout(order: Order, tiling: Tiling) -> Layout {
    Layout {
        dtype: Dtype::F16,
        order,
        class: MemoryClass::Standard,
        tiling,
    }
}

pub fn tensor(
    name: &str,
    shape: (u32, Extent, Extent),
    layout: Layout,
    storage: Storage,
) -> Tensor {
    Tensor {
        name: name.to_owned(),
        groups: shape.0,
        rows: shape.1,
        columns: shape.2,
        layout,
        scale_exponent: 0,
        storage,
    }
}

pub fn exchange(label: &str, copies: &[(u32, u32, View)]) -> Step {
    Step::Exchange(Exchange {
        operation: "test".to_owned(),
        label: label.to_owned(),
        copies: copies
            .iter()
            .map(|&(source, destination, view)| Copy {
                source: TensorId(source),
                destination: TensorId(destination),
                view,
            })
            .collect(),
    })
}

pub fn measure(argument: &str, measure: Measure, divisor: u32) -> ScalarRule {
    ScalarRule::Measure {
        argument: argument.to_owned(),
        measure,
        divisor,
    }
}

pub fn compute(
    label: &str,
    kernel: &str,
    operands: &[(&str, u32)],
    scalars: &[(&str, ScalarRule)],
) -> Step {
    Step::Compute(Compute {
        operation: "test".to_owned(),
        label: label.to_owned(),
        kernel: kernel.to_owned(),
        operands: operands
            .iter()
            .map(|&(argument, id)| Operand {
                argument: argument.to_owned(),
                tensor: TensorId(id),
            })
            .collect(),
        scalars: scalars
            .iter()
            .map(|(name, rule)| ((*name).to_owned(), rule.clone()))
            .collect(),
        only: Filter::All,
    })
}

pub fn map(label: &str, source: u32, out: u32) -> Step {
    let bytes = [("bytes", measure("source", Measure::Bytes, 1))];
    compute(label, "map", &[("source", source), ("out", out)], &bytes)
}

pub fn fill(label: &str, out: u32, only: Filter) -> Step {
    let scalars = [
        ("count", measure("out", Measure::Bytes, 4)),
        ("value", ScalarRule::Const(0)),
    ];
    let mut step = compute(label, "fill_u32", &[("out", out)], &scalars);
    if let Step::Compute(compute) = &mut step {
        compute.only = only;
    }
    step
}
