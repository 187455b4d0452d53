//! Exchange steps to transfers and local copies.
//!
//! Input: an exchange step. Output: at most one phase and one step of local copy calls after it.
//! Invariants: every logical element of a destination is written once; only values that exist are
//! moved; all replicas of a destination that need the exchange share one transfer for each run.
//! What a tile holds already is moved by `copy_u64` or `copy_strided`; a run that these cannot
//! move (not in units of 8 bytes) goes through the exchange to the own tile, and when nobody
//! else receives it also to a scratch word area of the next tile, as the fabric demands.
//! Not here: addresses, times, which words share a stream.

use std::collections::BTreeMap;

use ipu_ir::layout::Region;
use ipu_ir::mid::{Copy, Exchange, Mid, Tensor, TensorId};
use ipu_ir::program::{AllocId, Place, Step, Transfer};
use ipu_package::StepKind;

use crate::build::Build;
use crate::error::{PlaceError, Site};
use crate::grid::{Grid, meeting};
use crate::local::{Local, Scratch, local_copy_can};
use crate::runs::{Block, Piece, Side, blocks, logical_count, moved, pieces, segments};

struct Phase<'b> {
    mid: &'b Mid,
    grids: &'b [Grid],
    defined: &'b [bool],
    site: Site,
    /// Words that each tile sends.
    sent: Vec<u64>,
    transfers: Vec<Transfer>,
    locals: Vec<Local>,
    apart: Vec<(AllocId, AllocId)>,
    filled: Vec<AllocId>,
    scratch: Vec<Scratch>,
    scratch_of: BTreeMap<u32, usize>,
    scratch_first: u32,
}

/// Source part and destination part that meet in `region`.
struct Meeting<'c> {
    copy: &'c Copy,
    block: &'c Block,
    from: u32,
    to: u32,
}

/// Elements of one destination part that a copy writes.
#[derive(Default)]
struct Covered {
    logical: u64,
    all: u64,
}

impl Build<'_> {
    /// Expand an exchange step.
    pub fn exchange(&mut self, exchange: &Exchange) -> Result<Vec<Step>, PlaceError> {
        let site = Site::new(&exchange.operation, &exchange.label);
        self.check_copies(&site, &exchange.copies)?;
        let mut phase = Phase {
            mid: self.mid,
            grids: &self.grids,
            defined: &self.defined,
            site: site.clone(),
            sent: vec![0; self.mid.tiles as usize],
            transfers: Vec::new(),
            locals: Vec::new(),
            apart: Vec::new(),
            filled: Vec::new(),
            scratch: Vec::new(),
            scratch_of: BTreeMap::new(),
            scratch_first: self.allocations.len() as u32,
        };
        for copy in &exchange.copies {
            phase.copy(copy)?;
        }
        let Phase {
            transfers,
            locals,
            apart,
            filled,
            scratch,
            ..
        } = phase;
        filled
            .iter()
            .for_each(|id| self.defined[id.0 as usize] = true);
        scratch.iter().for_each(|area| self.add_scratch(area));
        apart.iter().for_each(|&(a, b)| self.keep_apart(a, b));
        let mut steps = Vec::new();
        if !transfers.is_empty() {
            let info = self.info(&site, "", StepKind::Exchange);
            steps.push(Step::Phase { info, transfers });
        }
        if !locals.is_empty() {
            let calls = self.local_calls(&site, locals)?;
            let info = self.info(&site, " local copy", StepKind::Compute);
            steps.push(Step::Calls { info, calls });
        }
        Ok(steps)
    }

    fn check_copies(&self, site: &Site, copies: &[Copy]) -> Result<(), PlaceError> {
        for (index, copy) in copies.iter().enumerate() {
            let (source, destination) = (copy.source, copy.destination);
            self.check_members(site, source)?;
            self.check_written(site, destination)?;
            let twice = copies[..index]
                .iter()
                .any(|other| other.destination == destination);
            let read = copies.iter().any(|other| other.source == destination);
            if twice || read {
                return Err(PlaceError::Hazard {
                    site: site.clone(),
                    tensor: self.name(destination),
                });
            }
            let dtype = |id: TensorId| self.mid.tensor(id).layout.dtype;
            if dtype(source) != dtype(destination) {
                return Err(PlaceError::Type {
                    site: site.clone(),
                    source_tensor: self.name(source),
                    destination: self.name(destination),
                });
            }
        }
        Ok(())
    }
}

impl Phase<'_> {
    fn grid(&self, id: TensorId) -> &Grid {
        &self.grids[id.0 as usize]
    }

    fn copy(&mut self, copy: &Copy) -> Result<(), PlaceError> {
        let destination = self.mid.tensor(copy.destination);
        for to in 0..self.grid(copy.destination).parts() {
            let region = self.grid(copy.destination).region(to);
            let mut covered = Covered::default();
            for block in blocks(&copy.view, &region, self.mid.tensor(copy.source).shape()) {
                self.block(copy, &block, to, &region, &mut covered)?;
            }
            let logical = logical_elements(destination, &region);
            if covered.logical < logical {
                return Err(PlaceError::Uncovered {
                    site: self.site.clone(),
                    source_tensor: self.mid.tensor(copy.source).name.clone(),
                    destination: destination.name.clone(),
                    tile: self.grid(copy.destination).part_tiles(to)[0],
                    missing: logical - covered.logical,
                });
            }
            if covered.all == u64::from(region.elements()) {
                let grid = &self.grids[copy.destination.0 as usize];
                let shards = to * grid.replicas..(to + 1) * grid.replicas;
                self.filled
                    .extend(shards.map(|shard| grid.allocation(shard)));
            }
        }
        Ok(())
    }

    /// All source parts that one block of a destination part meets.
    fn block(
        &mut self,
        copy: &Copy,
        block: &Block,
        to: u32,
        region: &Region,
        covered: &mut Covered,
    ) -> Result<(), PlaceError> {
        let source = self.grid(copy.source);
        let shift = block.shift;
        let there = |range, by| {
            let range = moved(range, by);
            range.start as u32..range.end as u32
        };
        let wanted = Region {
            groups: there(&block.region.groups, shift.group),
            rows: there(&block.region.rows, shift.row),
            columns: there(&block.region.columns, shift.column),
        };
        let groups = meeting(&source.groups, &wanted.groups);
        let rows = meeting(&source.rows, &wanted.rows);
        let columns = meeting(&source.columns, &wanted.columns);
        for group in groups {
            for row in rows.clone() {
                for column in columns.clone() {
                    let meeting = Meeting {
                        copy,
                        block,
                        from: self.grid(copy.source).part(group, row, column),
                        to,
                    };
                    self.meet(&meeting, region, &wanted, covered)?;
                }
            }
        }
        Ok(())
    }

    fn meet(
        &mut self,
        meeting: &Meeting,
        region: &Region,
        wanted: &Region,
        covered: &mut Covered,
    ) -> Result<(), PlaceError> {
        let Meeting {
            copy, block, from, ..
        } = *meeting;
        let grid = self.grid(copy.source);
        let source_region = grid.region(from);
        let Some(common) = source_region.intersect(wanted) else {
            return Ok(());
        };
        let shift = block.shift;
        let here = |range, by: i64| {
            let range = moved(range, -by);
            range.start as u32..range.end as u32
        };
        let groups = here(&common.groups, shift.group);
        let mut shards = from * grid.replicas..(from + 1) * grid.replicas;
        let defined = shards.all(|shard| self.defined[grid.allocation(shard).0 as usize]);
        let source = self.mid.tensor(copy.source);
        let destination = self.mid.tensor(copy.destination);
        let rows = segments(
            &destination.rows,
            &source.rows,
            &here(&common.rows, shift.row),
            shift.row,
            defined,
        );
        let columns = segments(
            &destination.columns,
            &source.columns,
            &here(&common.columns, shift.column),
            shift.column,
            defined,
        );
        let mut found = Vec::new();
        for row in &rows {
            for column in &columns {
                let box_ = Region {
                    groups: groups.clone(),
                    rows: row.clone(),
                    columns: column.clone(),
                };
                covered.all += u64::from(box_.elements());
                covered.logical += logical_elements(destination, &box_);
                let side = |region, order| Side { region, order };
                pieces(
                    side(&source_region, source.layout.order),
                    side(region, destination.layout.order),
                    &box_,
                    shift,
                    &mut found,
                );
            }
        }
        let size = source.layout.dtype.bytes();
        for piece in &mut found {
            *piece = in_bytes(piece, size);
        }
        self.route(meeting, &found)
    }

    /// Decide who sends: a replica on the destination's tile, else the least busy one.
    fn route(&mut self, meeting: &Meeting, pieces: &[Piece]) -> Result<(), PlaceError> {
        let Meeting { copy, from, to, .. } = *meeting;
        let source = &self.grids[copy.source.0 as usize];
        let destination = &self.grids[copy.destination.0 as usize];
        let mut remote = Vec::new();
        let mut own = Vec::new();
        for replica in 0..destination.replicas {
            let shard = to * destination.replicas + replica;
            let tile = destination.tiles[shard as usize];
            let held = source
                .shard_on(tile)
                .filter(|&shard| source.part_of(shard) == from);
            match held {
                Some(held) => {
                    own.push((destination.allocation(shard), source.allocation(held), tile))
                }
                None => remote.push((destination.allocation(shard), tile)),
            }
        }
        let first = from * source.replicas;
        let least = (first..first + source.replicas)
            .min_by_key(|&shard| self.sent[source.tiles[shard as usize] as usize])
            .unwrap_or(first);
        let sender = (source.allocation(least), source.tiles[least as usize]);
        let mark = self.transfers.len();
        for piece in pieces {
            if local_copy_can(piece) {
                self.locals
                    .extend(own.iter().map(|&(to, from, tile)| Local {
                        tile,
                        source: from,
                        destination: to,
                        piece: *piece,
                    }));
                if !remote.is_empty() {
                    self.send(meeting, mark, sender, &remote, piece)?;
                }
            } else {
                let mut receivers = remote.clone();
                receivers.extend(own.iter().map(|&(to, _, tile)| (to, tile)));
                self.send(meeting, mark, sender, &receivers, piece)?;
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        meeting: &Meeting,
        mark: usize,
        sender: (AllocId, u32),
        receivers: &[(AllocId, u32)],
        piece: &Piece,
    ) -> Result<(), PlaceError> {
        let own = receivers.iter().find(|(_, tile)| *tile == sender.1);
        let alone = own.is_some() && receivers.len() == 1;
        if let Some(&(id, _)) = own {
            self.apart.push((sender.0, id));
        }
        for run in 0..piece.count {
            let source = piece.source + run * piece.source_step;
            let destination = piece.destination + run * piece.destination_step;
            let whole = (source | destination | piece.width).is_multiple_of(4);
            if !whole || (alone && self.mid.tiles == 1) {
                return Err(self.fragment(meeting, sender.1, (source, destination, piece.width)));
            }
            let words = piece.width / 4;
            self.sent[sender.1 as usize] += u64::from(words);
            let source = Place {
                allocation: sender.0,
                offset: source,
            };
            if !alone && self.extend_last(mark, source, destination, words, receivers) {
                continue;
            }
            let mut destinations: Vec<Place> = receivers
                .iter()
                .map(|&(allocation, _)| Place {
                    allocation,
                    offset: destination,
                })
                .collect();
            if alone {
                destinations.push(self.scratch_for(sender.1, meeting.copy.destination, words));
            }
            self.transfers.push(Transfer {
                source,
                words,
                destinations,
            });
        }
        Ok(())
    }

    /// Let the last transfer of this meeting go on, when this run continues it everywhere.
    fn extend_last(
        &mut self,
        mark: usize,
        source: Place,
        destination: u32,
        words: u32,
        receivers: &[(AllocId, u32)],
    ) -> bool {
        let Some(last) = self.transfers[mark..].last_mut() else {
            return false;
        };
        let bytes = 4 * last.words;
        let goes_on =
            last.source.allocation == source.allocation
                && last.source.offset + bytes == source.offset
                && last.destinations.len() == receivers.len()
                && last.destinations.iter().zip(receivers).all(|(place, to)| {
                    place.allocation == to.0 && place.offset + bytes == destination
                });
        if goes_on {
            last.words += words;
        }
        goes_on
    }

    fn scratch_for(&mut self, sender: u32, tensor: TensorId, words: u32) -> Place {
        let tile = (sender + 1) % self.mid.tiles;
        let next = self.scratch.len();
        let index = *self.scratch_of.entry(tile).or_insert(next);
        if index == next {
            self.scratch.push(Scratch {
                tile,
                words: 0,
                tensor: tensor.0,
            });
        }
        let area = &mut self.scratch[index];
        let offset = 4 * area.words;
        area.words += words;
        Place {
            allocation: AllocId(self.scratch_first + index as u32),
            offset,
        }
    }

    fn fragment(&self, meeting: &Meeting, tile: u32, run: (u32, u32, u32)) -> PlaceError {
        PlaceError::Fragment {
            site: self.site.clone(),
            source_tensor: self.mid.tensor(meeting.copy.source).name.clone(),
            destination: self.mid.tensor(meeting.copy.destination).name.clone(),
            tile,
            source_offset: run.0,
            destination_offset: run.1,
            bytes: run.2,
        }
    }
}

/// Elements of a region that are logical in a tensor.
fn logical_elements(tensor: &Tensor, region: &Region) -> u64 {
    u64::from(region.group_count())
        * u64::from(logical_count(&tensor.rows, &region.rows))
        * u64::from(logical_count(&tensor.columns, &region.columns))
}

fn in_bytes(piece: &Piece, size: u32) -> Piece {
    Piece {
        source: piece.source * size,
        destination: piece.destination * size,
        width: piece.width * size,
        count: piece.count,
        source_step: piece.source_step * size,
        destination_step: piece.destination_step * size,
    }
}
