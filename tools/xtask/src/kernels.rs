//! `cargo xtask kernels`: simulated cycles of every contract case with a published figure.

use ipub_stages::Scalars;

use crate::tile::kernels;
use crate::{Failure, USAGE, read, root};

const TABLE: &str = "docs/tables/kernels.md";

const HEAD: &str = "\
# Kernels

Written by `cargo xtask kernels`. Cycles are simulated cycles of a whole call, sampler to sampler,
as the published measurements on the device were taken: an empty kernel reads 96. `record` numbers
the published measurement of the same shape; `ratio` is simulated over published.

| kernel | shape | simulated cycles | published | record | ratio |
| --- | --- | ---: | ---: | --- | ---: |
";

pub fn run(arguments: &[&str]) -> Result<(), Failure> {
    let path = root().join(TABLE);
    let table = table()?;
    match arguments {
        [] => std::fs::write(&path, table)?,
        ["--check"] if read(&path)? == table => {}
        ["--check"] => return Err(format!("{TABLE} is old: run cargo xtask kernels").into()),
        _ => return Err(USAGE.into()),
    }
    println!("{TABLE} is up to date");
    Ok(())
}

fn table() -> Result<String, Failure> {
    let mut table = HEAD.to_owned();
    let mut ratios = Vec::new();
    for kernel in kernels()? {
        for case in &kernel.contract.cases {
            let Some(record) = &case.record else {
                continue;
            };
            let name = &kernel.contract.name;
            let (mut tile, entry) = kernel.tile(&case.args, false)?;
            let call = tile.call(entry);
            let cycles = call
                .map_err(|fault| format!("{name} {}: {fault}", case.name))?
                .cycles;
            let ratio = cycles as f64 / record.cycles as f64;
            let (shape, id, published) = (shape(&case.args), &record.id, record.cycles);
            table +=
                &format!("| {name} | {shape} | {cycles} | {published} | {id} | {ratio:.3} |\n");
            ratios.push(ratio);
        }
    }
    let most = ratios.iter().copied().fold(0.0, f64::max);
    table += &format!(
        "\n{} shapes; the greatest ratio is {most:.3}.\n",
        ratios.len()
    );
    Ok(table)
}

fn shape(scalars: &Scalars) -> String {
    let pairs: Vec<String> = scalars
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    pairs.join(", ")
}
