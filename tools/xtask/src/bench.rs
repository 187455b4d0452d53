//! `cargo xtask bench`: times of the passes on a target, and speed of the simulator on kernels.
//!
//! Times are wall-clock; the speed of one core is taken from the time the thread was on a core, so
//! that other work on the machine does not count, and is shown beside the wall-clock one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ipu_emit::object::Object;
use ipu_ir::contract::Contract;
use ipu_ir::graph::{Graph, ValueId};
use ipu_model::SeededWeights;
use ipu_package::Package;
use ipu_sim::Session;
use ipub_base::NoMemo;
use ipub_stages::SimulatedCosts;

use crate::target::Target;
use crate::tile::{Kernel, kernels};
use crate::{Failure, USAGE, read};

/// Runs of a small target and of any other, if the command line does not say.
const RUNS: [usize; 2] = [5, 1];
const STEPS: [&str; 5] = ["plan", "place", "emit", "time", "sim"];

/// Published measurements whose shapes are run back to back.
const BACK_TO_BACK: [&str; 4] = ["K181", "K006", "K104", "K196"];

pub fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (name, options) = arguments.split_first().ok_or(USAGE)?;
    let mut chosen = BTreeMap::new();
    for pair in options.chunks(2) {
        let [key, value] = pair else {
            return Err(USAGE.into());
        };
        chosen.insert(*key, *value);
    }
    let mut option = |key| chosen.remove(key);
    if *name == "issues" {
        let seconds = option("--seconds").unwrap_or("2").parse()?;
        let only = option("--record");
        let records = BACK_TO_BACK
            .into_iter()
            .filter(|id| only.is_none_or(|only| only == *id));
        return issues(records, Duration::from_secs_f64(seconds));
    }
    let small = name.starts_with("siglip-tiny");
    let runs = option("--runs").map_or(Ok(RUNS[usize::from(!small)]), str::parse)?;
    let until = option("--until").unwrap_or("sim");
    let steps = STEPS.iter().position(|step| *step == until).ok_or(USAGE)? + 1;
    if !chosen.is_empty() || runs == 0 {
        return Err(USAGE.into());
    }
    passes(&Target::find(name)?, runs, steps)
}

/// Seconds of each step, run by run, and the results worth showing.
#[derive(Default)]
struct Times {
    seconds: BTreeMap<&'static str, Vec<f64>>,
    order: Vec<&'static str>,
    peak_mib: BTreeMap<&'static str, u64>,
    cycles: BTreeMap<&'static str, u64>,
}

impl Times {
    fn take<T>(
        &mut self,
        step: &'static str,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let clock = Instant::now();
        let result = work()?;
        let seconds = clock.elapsed().as_secs_f64();
        if !self.seconds.contains_key(step) {
            self.order.push(step);
        }
        self.seconds.entry(step).or_default().push(seconds);
        self.peak_mib.insert(step, peak_mib()?);
        Ok(result)
    }

    fn print(&self, runs: usize) {
        println!("| step | seconds, median of {runs} | peak memory so far, MiB |");
        println!("| --- | ---: | ---: |");
        for step in &self.order {
            let mut seconds = self.seconds[step].clone();
            seconds.sort_by(f64::total_cmp);
            let median = seconds[seconds.len() / 2];
            println!("| {step} | {median:.3} | {} |", self.peak_mib[step]);
        }
        for (step, cycles) in &self.cycles {
            println!("{step}: {cycles} simulated cycles");
        }
    }
}

fn passes(target: &Target, runs: usize, steps: usize) -> Result<(), Failure> {
    let mut times = Times::default();
    for _ in 0..runs {
        one_run(target, steps, &mut times)?;
    }
    times.print(runs);
    Ok(())
}

fn one_run(target: &Target, steps: usize, times: &mut Times) -> Result<(), Failure> {
    let (contracts, objects) = times.take("assemble", || {
        let pair = |Kernel { contract, object }| (contract, object);
        let pairs: Vec<(Contract, Object)> = kernels()?.into_iter().map(pair).collect();
        let names: Vec<String> = pairs.iter().map(|pair| pair.0.name.clone()).collect();
        let (contracts, objects): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let contracts: BTreeMap<_, _> = names.iter().cloned().zip(contracts).collect();
        let objects: BTreeMap<_, _> = names.into_iter().zip(objects).collect();
        Ok((contracts, objects))
    })?;
    let graph = times.take("lower", || {
        Ok(ipu_model::lower(&target.spec, target.batch)?)
    })?;
    let candidates = times.take("plan", || {
        let (precision, planner) = (&target.precision, &target.planner);
        let costs = SimulatedCosts::new(&contracts, &objects, &NoMemo);
        Ok(ipu_plan::candidates(&graph, precision, planner, &costs)?)
    })?;
    if steps < 2 {
        return Ok(());
    }
    let mids = candidates.iter().map(|candidate| &candidate.mid);
    let placed = times.take("place", || {
        let (reservations, schedule) = (&target.reservations, &target.schedule);
        let (placed, failures) = ipu_place::place_first(mids, &contracts, reservations, schedule);
        for failure in &failures {
            println!("does not fit: {failure}");
        }
        placed.ok_or_else(|| format!("none of {} candidates fits", failures.len()).into())
    })?;
    if steps < 3 {
        return Ok(());
    }
    let package = times.take("emit", || Ok(ipu_emit::emit(&placed, &objects, "c600")?))?;
    drop((candidates, placed));
    if steps >= 4 {
        let cycles = times.take("time", || count(&package))?;
        times.cycles.insert("time", cycles);
    }
    if steps >= 5 {
        simulate(&graph, &package, times)?;
    }
    Ok(())
}

/// Cycles without data.
fn count(package: &Package) -> Result<u64, Failure> {
    let mut session = Session::without_data(package)?;
    session.initialize(&mut |_| None)?;
    Ok(session.invoke(&mut |_| None)?.cycles)
}

/// Upload, then two invocations.
fn simulate(graph: &Graph, package: &Package, times: &mut Times) -> Result<(), Failure> {
    let weights = SeededWeights { seed: 1 };
    let names = graph.values.iter().map(|value| value.name.as_str());
    let values: BTreeMap<&str, ValueId> = names.zip((0..).map(ValueId)).collect();
    let mut session = Session::new(package)?;
    times.take("sim upload", || {
        let mut matrix = |tensor: &ipu_package::Tensor| {
            let value = *values.get(tensor.name.as_str())?;
            ipu_model::param_matrix(graph, value, &weights).ok()
        };
        Ok(session.initialize(&mut matrix)?)
    })?;
    for (step, sample) in [("sim first", 0), ("sim second", 1)] {
        let input = ipu_model::input_tensor(graph, 7, sample);
        let invocation = times.take(step, || Ok(session.invoke(&mut |_| Some(input.clone()))?))?;
        times.cycles.insert(step, invocation.cycles);
    }
    Ok(())
}

/// The most memory this process held at once.
fn peak_mib() -> Result<u64, Failure> {
    let status = read("/proc/self/status".as_ref())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or("no VmHWM")?;
    Ok(kib.parse::<u64>()? / 1024)
}

/// Seconds this thread was on a core.
fn core_seconds() -> Result<f64, Failure> {
    let statistics = read("/proc/thread-self/schedstat".as_ref())?;
    let nanoseconds = statistics
        .split_whitespace()
        .next()
        .ok_or("no time on core")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

fn issues(records: impl Iterator<Item = &'static str>, span: Duration) -> Result<(), Failure> {
    println!("| kernel | record | million issues/s a core | of wall clock | GMAC/s a core |");
    println!("| --- | --- | ---: | ---: | ---: |");
    let kernels = kernels()?;
    for id in records {
        let cases = kernels.iter().flat_map(|kernel| {
            let cases = kernel.contract.cases.iter();
            cases.map(move |case| (kernel, case))
        });
        let is_it = |record: &ipu_ir::contract::Record| record.id == id;
        let mut found = cases.filter(|(_, case)| case.record.as_ref().is_some_and(is_it));
        let (kernel, case) = found
            .next()
            .ok_or_else(|| format!("no case has record {id}"))?;
        let (mut tile, entry) = kernel.tile(&case.args, true)?;
        let (mut issues, mut calls) = (0, 0);
        let (clock, before) = (Instant::now(), core_seconds()?);
        while clock.elapsed() < span {
            let result = tile.call(entry).map_err(|fault| format!("{id}: {fault}"))?;
            issues += result.issues.iter().sum::<u64>();
            calls += 1;
        }
        let (wall, core) = (clock.elapsed().as_secs_f64(), core_seconds()? - before);
        let sizes = ["rows", "inner", "columns"].map(|name| case.args.get(name));
        let macs = match sizes {
            [Some(rows), Some(inner), Some(columns)] => rows * inner * columns * calls,
            _ => 0,
        };
        let speed = |count: f64, seconds: f64| count / seconds;
        let (of_core, of_wall) = (speed(issues as f64, core), speed(issues as f64, wall));
        let macs = match macs {
            0 => String::new(),
            macs => format!("{:.2}", speed(macs as f64, core) / 1e9),
        };
        let (of_core, of_wall) = (of_core / 1e6, of_wall / 1e6);
        let name = &kernel.contract.name;
        println!("| {name} | {id} | {of_core:.1} | {of_wall:.1} | {macs} |");
    }
    Ok(())
}
