//! Replay of a small placed program with labels in place of values.
//!
//! Input: a mid, its contracts and the placed program made from it. Output: nothing, or the first
//! byte that does not hold what the mid says.
//! Every element of every tensor has a label made of what wrote it. The mid's meaning is followed
//! coordinate by coordinate; the placed program is followed byte by byte at its addresses. Labels
//! are compared where a kernel or the host reads. Two invocations run, so that what an
//! invocation leaves behind is seen.
//! Invariants: no transfer or local copy moves a byte that holds nothing.
//! Not here: arithmetic, time, rows.

use std::collections::BTreeMap;

use ipu_ir::contract::{Arg, Contract};
use ipu_ir::layout::Region;
use ipu_ir::mid::{Compute, Copy, Exchange, Mid, Step as MidStep, Storage};
use ipu_ir::program::{Call, Place, Placed, Step, Transfer, Word};
use ipu_package::Role;

use super::labels::{
    NOTHING, ZERO, coordinates, elements, index, label, logical_of, name_label, spanned, viewed,
};
use super::{Fault, address};

const BASE: u32 = 0x4c000;
const END: u32 = 0xe8000;
const APERTURE: (u32, u32) = (0x50000, 0x58000);

struct Replay<'a> {
    mid: &'a Mid,
    contracts: &'a BTreeMap<String, Contract>,
    placed: &'a Placed,
    regions: BTreeMap<(u32, u32), Region>,
    memory: Vec<Vec<u64>>,
    /// Label of each coordinate of each tensor; `NOTHING` where the mid promises nothing.
    values: Vec<Vec<u64>>,
    clock: u64,
    iteration: u32,
    invocation: u64,
    site: String,
}

/// Replay two invocations.
pub fn replay(
    mid: &Mid,
    contracts: &BTreeMap<String, Contract>,
    placed: &Placed,
) -> Result<(), Fault> {
    let mut regions = BTreeMap::new();
    for (id, tensor) in mid.tensors.iter().enumerate() {
        for shard in tensor.shards(mid.tiles) {
            regions.insert((id as u32, shard.tile), shard.region);
        }
    }
    let values = mid.tensors.iter().map(|tensor| {
        let shape = tensor.shape();
        vec![NOTHING; (shape[0] * shape[1] * shape[2]) as usize]
    });
    let mut replay = Replay {
        mid,
        contracts,
        placed,
        regions,
        memory: vec![vec![NOTHING; (END - BASE) as usize]; mid.tiles as usize],
        values: values.collect(),
        clock: 0,
        iteration: 0,
        invocation: 0,
        site: "upload".to_owned(),
    };
    replay.upload(Role::Parameter);
    for invocation in 0..2 {
        replay.invocation = invocation;
        replay.load_members();
        let mut steps = placed.program.steps.iter().peekable();
        if let Some(Step::HostUpload { .. }) = steps.peek() {
            steps.next();
            replay.upload(Role::Input);
            replay.load_inputs();
            replay.poison_aperture();
        }
        replay.steps(&mid.steps, &mut steps)?;
        if let Some(Step::HostDownload { .. }) = steps.next() {
            replay.poison_aperture();
            replay.download()?;
        }
        if steps.next().is_some() {
            return Err(replay.fault(0, 0, "the program has steps of its own"));
        }
    }
    Ok(())
}

type Steps<'a, 'b> = std::iter::Peekable<std::slice::Iter<'b, Step>>;

impl Replay<'_> {
    fn fault(&self, tile: u32, address: u32, what: &str) -> Fault {
        Fault::Replay {
            tile,
            address,
            event: self.clock as u32,
            what: format!("{}: {what}", self.site),
        }
    }

    fn write(&mut self, tile: u32, address: u32, size: u32, label: u64) {
        for byte in 0..size {
            self.memory[tile as usize][(address + byte - BASE) as usize] = label | u64::from(byte);
        }
    }

    fn expect(&self, tile: u32, address: u32, size: u32, label: u64) -> Result<(), Fault> {
        for byte in 0..size {
            let found = self.memory[tile as usize][(address + byte - BASE) as usize];
            if found != label | u64::from(byte) {
                let what = match found {
                    NOTHING => "nothing is there",
                    _ => "something else is there",
                };
                return Err(self.fault(tile, address + byte, what));
            }
        }
        Ok(())
    }

    fn poison_aperture(&mut self) {
        for tile in &mut self.memory {
            tile[(APERTURE.0 - BASE) as usize..(APERTURE.1 - BASE) as usize].fill(NOTHING);
        }
    }

    /// Address in the current iteration.
    fn now(&self, place: &Place) -> u32 {
        let allocation = &self.placed.program.allocations[place.allocation.0 as usize];
        let member = self.iteration % allocation.members;
        address(self.placed, place) + member * allocation.stride
    }

    fn tile(&self, place: &Place) -> u32 {
        self.placed.program.allocations[place.allocation.0 as usize].tile
    }

    fn upload(&mut self, role: Role) {
        let placed = self.placed;
        for binding in &placed.program.bindings {
            let host = &placed.program.host_tensors[binding.tensor as usize];
            if host.role != role {
                continue;
            }
            let allocation = &placed.program.allocations[binding.place.allocation.0 as usize];
            let start = address(placed, &binding.place) + binding.member * allocation.stride;
            let invocation = if role == Role::Input {
                self.invocation
            } else {
                0
            };
            for (row, column, offset) in elements(binding) {
                let row = spanned(&host.row_spans, row);
                let column = spanned(&host.column_spans, column);
                let value = match (row, column) {
                    (Some(row), Some(column)) => name_label(&host.name, row, column, invocation),
                    _ => ZERO,
                };
                let size = binding.dtype.bytes();
                self.write(allocation.tile, start + offset * size, size, value);
            }
        }
    }

    fn load(&mut self, id: usize, name: &str, invocation: u64) {
        let tensor = &self.mid.tensors[id];
        let runs = tensor.rows.groups * tensor.rows.logical;
        let whole = Region {
            groups: 0..tensor.groups,
            rows: 0..tensor.rows.size(),
            columns: 0..tensor.columns.size(),
        };
        for at in coordinates(&whole) {
            let row = logical_of(&tensor.rows, at[1]);
            let column = logical_of(&tensor.columns, at[2]);
            self.values[id][index(tensor, at)] = match (row, column) {
                (Some(row), Some(column)) => {
                    name_label(name, at[0] * runs + row, column, invocation)
                }
                _ => ZERO,
            };
        }
    }

    fn load_inputs(&mut self) {
        let mid = self.mid;
        for (id, tensor) in mid.tensors.iter().enumerate() {
            if let Storage::Input(name) = &tensor.storage {
                self.load(id, name, self.invocation);
            }
        }
    }

    fn load_members(&mut self) {
        let mid = self.mid;
        for (id, tensor) in mid.tensors.iter().enumerate() {
            if let Storage::Parameter(names) = &tensor.storage {
                self.load(id, &names[self.iteration as usize % names.len()], 0);
            }
        }
    }

    fn is_next(&self, steps: &mut Steps, operation: &str, label: &str) -> bool {
        let info = match steps.peek() {
            Some(Step::Calls { info, .. } | Step::Phase { info, .. }) => *info,
            _ => return false,
        };
        let info = &self.placed.program.infos[info as usize];
        info.operation == operation && info.label == label
    }

    fn steps(&mut self, mid: &[MidStep], steps: &mut Steps) -> Result<(), Fault> {
        for step in mid {
            self.clock += 1;
            match step {
                MidStep::Repeat { count, body } => {
                    let Some(Step::Repeat { body: inner, .. }) = steps.next() else {
                        return Err(self.fault(0, 0, "a loop is missing"));
                    };
                    let outer = self.iteration;
                    for iteration in 0..*count {
                        self.iteration = iteration;
                        self.load_members();
                        self.steps(body, &mut inner.iter().peekable())?;
                    }
                    self.iteration = outer;
                    self.load_members();
                }
                MidStep::Exchange(exchange) => self.exchange(exchange, steps)?,
                MidStep::Compute(compute) => {
                    self.site = format!("{} {}", compute.operation, compute.label);
                    if self.is_next(steps, &compute.operation, &compute.label)
                        && let Some(Step::Calls { calls, .. }) = steps.next()
                    {
                        self.compute(compute, calls)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn exchange(&mut self, exchange: &Exchange, steps: &mut Steps) -> Result<(), Fault> {
        let (operation, label) = (&exchange.operation, &exchange.label);
        self.site = format!("{operation} {label}");
        for copy in &exchange.copies {
            self.copy(copy)?;
        }
        if self.is_next(steps, operation, label)
            && let Some(Step::Phase { transfers, .. }) = steps.next()
        {
            self.phase(transfers)?;
        }
        if self.is_next(steps, operation, &format!("{label} local copy"))
            && let Some(Step::Calls { calls, .. }) = steps.next()
        {
            for call in calls {
                self.local_copy(call)?;
            }
        }
        Ok(())
    }

    /// What the copy means.
    fn copy(&mut self, copy: &Copy) -> Result<(), Fault> {
        let mid = self.mid;
        let (source, destination) = (mid.tensor(copy.source), mid.tensor(copy.destination));
        let shape = source.shape();
        let whole = Region {
            groups: 0..destination.groups,
            rows: 0..destination.rows.size(),
            columns: 0..destination.columns.size(),
        };
        for at in coordinates(&whole) {
            let padding = logical_of(&destination.rows, at[1]).is_none()
                || logical_of(&destination.columns, at[2]).is_none();
            let to = index(destination, at);
            if padding {
                self.values[copy.destination.0 as usize][to] = NOTHING;
                continue;
            }
            let from = viewed(&copy.view, at);
            if (0..3).any(|axis| from[axis] >= shape[axis]) {
                return Err(self.fault(0, 0, "a copy reads outside its source"));
            }
            self.values[copy.destination.0 as usize][to] =
                self.values[copy.source.0 as usize][index(source, from)];
        }
        Ok(())
    }

    fn take(&self, tile: u32, start: u32, bytes: u32) -> Result<Vec<u64>, Fault> {
        let first = (start - BASE) as usize;
        let taken = self.memory[tile as usize][first..first + bytes as usize].to_vec();
        match taken.iter().position(|&byte| byte == NOTHING) {
            Some(at) => Err(self.fault(tile, start + at as u32, "an undefined byte is moved")),
            None => Ok(taken),
        }
    }

    fn put(&mut self, tile: u32, start: u32, bytes: &[u64]) {
        let first = (start - BASE) as usize;
        self.memory[tile as usize][first..first + bytes.len()].copy_from_slice(bytes);
    }

    fn phase(&mut self, transfers: &[Transfer]) -> Result<(), Fault> {
        let payloads = transfers
            .iter()
            .map(|transfer| {
                let tile = self.tile(&transfer.source);
                self.take(tile, self.now(&transfer.source), 4 * transfer.words)
            })
            .collect::<Result<Vec<_>, _>>()?;
        for (transfer, payload) in transfers.iter().zip(&payloads) {
            for place in &transfer.destinations {
                self.put(self.tile(place), self.now(place), payload);
            }
        }
        Ok(())
    }

    fn local_copy(&mut self, call: &Call) -> Result<(), Fault> {
        let contract = &self.contracts[&self.placed.program.kernels[call.kernel as usize]];
        let mut words = BTreeMap::new();
        for (arg, word) in contract.args.iter().zip(&call.frame) {
            let value = match word {
                Word::Scalar(value) => *value,
                Word::Address(place) => self.now(place),
            };
            words.insert(arg.name(), value);
        }
        let get = |name: &str| words.get(name).copied();
        let (rows, units) = match get("count") {
            Some(count) => (1, count),
            None => (get("rows").unwrap_or(0), get("units").unwrap_or(0)),
        };
        let (from, to) = (get("source").unwrap_or(0), get("out").unwrap_or(0));
        for row in 0..rows {
            let step = |name: &str| 8 * row * get(name).unwrap_or(0);
            let bytes = self.take(call.tile, from + step("source_stride"), 8 * units)?;
            self.put(call.tile, to + step("out_stride"), &bytes);
        }
        Ok(())
    }

    fn compute(&mut self, compute: &Compute, calls: &[Call]) -> Result<(), Fault> {
        let contracts = self.contracts;
        let contract = &contracts[&compute.kernel];
        for writing in [false, true] {
            for call in calls {
                for arg in &contract.args {
                    let concerned = match arg {
                        Arg::Scalar(_) => false,
                        Arg::In(_) => !writing,
                        Arg::Out(_) => writing,
                        Arg::Inout(_) => true,
                    };
                    let mut operands = compute.operands.iter();
                    let operand = operands.find(|operand| operand.argument == arg.name());
                    if let (true, Some(operand)) = (concerned, operand) {
                        self.operand(contract, call, arg.name(), operand.tensor.0, writing)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn operand(
        &mut self,
        contract: &Contract,
        call: &Call,
        name: &str,
        id: u32,
        writing: bool,
    ) -> Result<(), Fault> {
        let mut scalars = BTreeMap::new();
        let mut place = None;
        for (arg, word) in contract.args.iter().zip(&call.frame) {
            match word {
                Word::Scalar(value) => {
                    scalars.insert(arg.name().to_owned(), i64::from(*value as i32));
                }
                Word::Address(at) if arg.name() == name => place = Some(*at),
                Word::Address(_) => {}
            }
        }
        let pointer = contract.arg(name).and_then(Arg::pointer);
        let (Some(pointer), Some(place)) = (pointer, place) else {
            return Err(self.fault(call.tile, 0, "a frame lacks an argument"));
        };
        let extent = contract
            .bytes(pointer, &scalars)
            .map_err(|error| self.fault(call.tile, 0, &error.to_string()))?;
        let mid = self.mid;
        let tensor = &mid.tensors[id as usize];
        let region = self.regions[&(id, call.tile)].clone();
        let (start, size) = (self.now(&place), tensor.layout.dtype.bytes());
        for at in coordinates(&region) {
            let offset = region.offset(tensor.layout.order, at[0], at[1], at[2]) * size;
            if u64::from(offset + size) > extent {
                continue;
            }
            let here = index(tensor, at);
            if writing {
                let [group, row, column] = at.map(u64::from);
                let parts = [
                    self.invocation,
                    self.clock,
                    u64::from(id),
                    group,
                    row,
                    column,
                ];
                let value = label(&[&parts[..], &[u64::from(self.iteration)]].concat());
                self.values[id as usize][here] = value;
                self.write(call.tile, start + offset, size, value);
            } else if self.values[id as usize][here] != NOTHING {
                let value = self.values[id as usize][here];
                self.expect(call.tile, start + offset, size, value)?;
            }
        }
        Ok(())
    }

    /// Every logical element of every output is read by the host, once, and is right.
    fn download(&mut self) -> Result<(), Fault> {
        self.site = "download".to_owned();
        let placed = self.placed;
        let mut read = vec![0u64; placed.program.host_tensors.len()];
        for binding in &placed.program.bindings {
            let host = &placed.program.host_tensors[binding.tensor as usize];
            if host.role != Role::Output {
                continue;
            }
            let allocation = &placed.program.allocations[binding.place.allocation.0 as usize];
            let tensor = &self.mid.tensors[allocation.tensor as usize];
            let start = address(placed, &binding.place);
            let size = binding.dtype.bytes();
            for (row, column, offset) in elements(binding) {
                let known = spanned(&host.row_spans, row).zip(spanned(&host.column_spans, column));
                if known.is_some() {
                    read[binding.tensor as usize] += 1;
                    let (group, row) = (row / tensor.rows.size(), row % tensor.rows.size());
                    let at = index(tensor, [group, row, column]);
                    let value = self.values[allocation.tensor as usize][at];
                    self.expect(allocation.tile, start + offset * size, size, value)?;
                }
            }
        }
        for (host, read) in placed.program.host_tensors.iter().zip(read) {
            let wanted = u64::from(host.rows) * u64::from(host.columns);
            if host.role == Role::Output && read != wanted {
                return Err(self.fault(0, 0, "an output is not read in full"));
            }
        }
        Ok(())
    }
}
