//! What calls and transfers need of the storage they name.
//!
//! Input: a placed program and the contracts. Output: the first use that is not allowed.
//! Not here: values.

use std::collections::BTreeMap;

use ipu_ir::contract::{Arg, Contract, MemoryClass, Pointer};
use ipu_ir::program::{Allocation, Call, Life, Place, Placed, Step, Transfer, Word};

use rayon::slice::ParallelSliceMut as _;

use super::{Fault, address, share_element};

struct Walk<'a> {
    placed: &'a Placed,
    kernels: Vec<&'a Contract>,
    event: u32,
    /// First event of each loop around the current step, and how its body used each allocation
    /// first: whether it was read.
    loops: Vec<(u32, BTreeMap<u32, bool>)>,
}

pub(super) fn uses(placed: &Placed, contracts: &BTreeMap<String, Contract>) -> Result<(), Fault> {
    let kernels = placed.program.kernels.iter();
    let mut walk = Walk {
        placed,
        kernels: kernels.map(|name| &contracts[name]).collect(),
        event: 0,
        loops: Vec::new(),
    };
    walk.steps(&placed.program.steps)
}

impl Walk<'_> {
    fn allocation(&self, place: &Place) -> &Allocation {
        &self.placed.program.allocations[place.allocation.0 as usize]
    }

    fn fault(&self, place: &Place, what: &str) -> Fault {
        Fault::Use {
            event: self.event,
            allocation: place.allocation.0,
            what: what.to_owned(),
        }
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), Fault> {
        for step in steps {
            match step {
                Step::Repeat { body, .. } => {
                    self.repeat(body)?;
                    continue;
                }
                Step::HostUpload { .. } | Step::HostDownload { .. } => {}
                Step::Calls { calls, .. } => calls.iter().try_for_each(|call| self.call(call))?,
                Step::Phase { transfers, .. } => self.phase(transfers)?,
            }
            self.event += 1;
        }
        Ok(())
    }

    /// What was live before the loop, or is read in it first, lives to its end.
    fn repeat(&mut self, body: &[Step]) -> Result<(), Fault> {
        self.loops.push((self.event, BTreeMap::new()));
        self.steps(body)?;
        let Some((begin, used)) = self.loops.pop() else {
            return Ok(());
        };
        for (allocation, read) in used {
            let life = self.placed.program.allocations[allocation as usize].life;
            if let Life::Events { first, last } = life
                && (first < begin || read)
                && (first > begin || last + 1 < self.event)
            {
                return Err(Fault::Life {
                    event: self.event,
                    allocation,
                });
            }
            if let Some((_, outer)) = self.loops.last_mut() {
                outer.entry(allocation).or_insert(read);
            }
        }
        Ok(())
    }

    fn touch(&mut self, place: &Place, read: bool) -> Result<(), Fault> {
        if let Some((_, used)) = self.loops.last_mut() {
            used.entry(place.allocation.0).or_insert(read);
        }
        match self.allocation(place).life {
            Life::Events { first, last } if self.event < first || last < self.event => {
                Err(Fault::Life {
                    event: self.event,
                    allocation: place.allocation.0,
                })
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, call: &Call) -> Result<(), Fault> {
        let contract = self.kernels[call.kernel as usize];
        let mut scalars = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (arg, word) in contract.args.iter().zip(&call.frame) {
            match (arg, word) {
                (Arg::Scalar(scalar), Word::Scalar(value)) => {
                    scalars.insert(scalar.name.clone(), i64::from(*value as i32));
                }
                (_, Word::Address(place)) => {
                    self.touch(place, !matches!(arg, Arg::Out(_)))?;
                    places.insert(arg.name(), *place);
                }
                _ => {}
            }
        }
        let mut ranges = BTreeMap::new();
        for pointer in contract.pointers() {
            let Some(place) = places.get(pointer.name.as_str()) else {
                continue;
            };
            let bytes = contract
                .bytes(pointer, &scalars)
                .map_err(|error| self.fault(place, &error.to_string()))?;
            self.pointer(call, pointer, place, bytes)?;
            ranges.insert(pointer.name.as_str(), (place, bytes as u32));
        }
        for edge in &contract.distinct {
            let (Some((a, a_bytes)), Some((b, b_bytes))) = (
                ranges.get(edge.args[0].as_str()),
                ranges.get(edge.args[1].as_str()),
            ) else {
                continue;
            };
            let range = |place: &Place, bytes: u32| (address(self.placed, place), bytes);
            if share_element(range(a, *a_bytes), range(b, *b_bytes)) {
                return Err(Fault::Shared {
                    a: a.allocation.0,
                    b: b.allocation.0,
                });
            }
        }
        Ok(())
    }

    fn pointer(
        &self,
        call: &Call,
        pointer: &Pointer,
        place: &Place,
        bytes: u64,
    ) -> Result<(), Fault> {
        let allocation = self.allocation(place);
        let start = address(self.placed, place);
        let last = start + (allocation.members - 1) * allocation.stride;
        if allocation.tile != call.tile {
            return Err(self.fault(place, "is on another tile"));
        }
        if u64::from(place.offset) + bytes > u64::from(allocation.bytes) {
            return Err(self.fault(place, "is shorter than the argument"));
        }
        if !start.is_multiple_of(pointer.align) || !last.is_multiple_of(pointer.align) {
            return Err(self.fault(place, "is not aligned for the argument"));
        }
        if pointer.class == MemoryClass::Interleaved && start < 0x80000 {
            return Err(self.fault(place, "is not in interleaved memory"));
        }
        if u64::from(last) + bytes + u64::from(pointer.over_read) > 0xe8000 {
            return Err(self.fault(place, "is read beyond the memory"));
        }
        Ok(())
    }

    fn phase(&mut self, transfers: &[Transfer]) -> Result<(), Fault> {
        let mut written = Vec::new();
        let mut read = Vec::new();
        for transfer in transfers {
            self.touch(&transfer.source, true)?;
            self.bounds(&transfer.source, transfer.words)?;
            read.push(self.interval(&transfer.source, transfer.words));
            for place in &transfer.destinations {
                self.touch(place, false)?;
                self.bounds(place, transfer.words)?;
                written.push(self.interval(place, transfer.words));
            }
            self.receivers(transfer)?;
        }
        written.par_sort_unstable();
        read.par_sort_unstable();
        for pair in written.windows(2) {
            if pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2 {
                return Err(Fault::Twice {
                    event: self.event,
                    allocation: pair[1].3,
                });
            }
        }
        self.unread(&written, &read)
    }

    /// No word is both sent and received in one phase.
    fn unread(&self, written: &[Interval], read: &[Interval]) -> Result<(), Fault> {
        let mut at = 0;
        for source in read {
            while at < written.len() && (written[at].0, written[at].2) <= (source.0, source.1) {
                at += 1;
            }
            if written
                .get(at)
                .is_some_and(|to| to.0 == source.0 && to.1 < source.2)
            {
                return Err(Fault::Twice {
                    event: self.event,
                    allocation: source.3,
                });
            }
        }
        Ok(())
    }

    fn interval(&self, place: &Place, words: u32) -> Interval {
        let start = address(self.placed, place);
        let tile = self.allocation(place).tile;
        (tile, start, start + 4 * words, place.allocation.0)
    }

    fn bounds(&self, place: &Place, words: u32) -> Result<(), Fault> {
        let bytes = u64::from(place.offset) + 4 * u64::from(words);
        if words == 0 || bytes > u64::from(self.allocation(place).bytes) {
            return Err(self.fault(place, "is shorter than the transfer"));
        }
        if !address(self.placed, place).is_multiple_of(4) {
            return Err(self.fault(place, "is not word aligned for the transfer"));
        }
        Ok(())
    }

    fn receivers(&self, transfer: &Transfer) -> Result<(), Fault> {
        let places = &transfer.destinations;
        let mut tiles: Vec<u32> = places
            .iter()
            .map(|place| self.allocation(place).tile)
            .collect();
        tiles.sort_unstable();
        tiles.dedup();
        if tiles.is_empty() || tiles.len() != places.len() {
            return Err(self.fault(&transfer.source, "has no receiver or one twice"));
        }
        let source = self.allocation(&transfer.source);
        let own = places
            .iter()
            .find(|place| self.allocation(place).tile == source.tile);
        if let Some(own) = own {
            let whole = (source.members - 1) * source.stride + 4 * transfer.words;
            let from = (address(self.placed, &transfer.source), whole);
            let to = (address(self.placed, own), 4 * transfer.words);
            if places.len() == 1 || share_element(from, to) {
                return Err(self.fault(&transfer.source, "is sent to its own tile illegally"));
            }
        }
        Ok(())
    }
}

/// Tile, first byte, end, allocation.
type Interval = (u32, u32, u32, u32);
