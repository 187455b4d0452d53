//! An exchange phase: the rows of all tiles, run at once.
//!
//! Input: the tiles, each stopped at the first word of its row. Output: moved words, and tiles
//! that go on when their row is over.
//! Invariants: rows are resolved once for the same rows and bases; a word leaves with the value it
//! has at its send event and arrives at its write event.
//! Not here: what rows mean (`ipu_exchange::fabric`).

use std::collections::HashMap;
use std::sync::Arc;

use ipu_exchange::fabric::{CopyRun, FabricError, PhaseEvents, RowInput, resolve};
use rayon::prelude::*;

use super::Machine;
use crate::code::Block;
use crate::fault::{DeviceFault, FaultKind, Use};
use crate::supervisor::Stop;
use crate::tile::{Tile, exchange_register as register};

/// A row that only returns.
const RETURN_ONLY: u32 = 0x43a0_0000;

/// What decides how a row runs: tile and row address; incoming, outgoing and moving base.
type RowKey = ([u32; 2], [u32; 3]);

/// Copies that resolved phases may hold; beyond it all are forgotten.
const CACHED_COPIES_MAX: usize = 8 << 20;

/// Phases that were resolved before. Looked up by key only, never walked.
#[derive(Default)]
pub struct PhaseCache {
    resolved: HashMap<Vec<RowKey>, Arc<PhaseEvents>>,
    copies: usize,
}

impl PhaseCache {
    fn insert(&mut self, key: Vec<RowKey>, events: &Arc<PhaseEvents>) {
        if self.copies + events.copies.len() > CACHED_COPIES_MAX {
            self.resolved.clear();
            self.copies = 0;
        }
        self.copies += events.copies.len();
        self.resolved.insert(key, Arc::clone(events));
    }
}

/// What one tile receives: its copies and their words.
type Job<'a> = (&'a mut Tile, (&'a [CopyRun], &'a [u32]));

/// A row that takes part.
struct Participant {
    at: usize,
    row: [u32; 2],
    /// Incoming, outgoing and moving base.
    bases: [u32; 3],
    block: Arc<Block>,
}

impl Participant {
    fn words(&self) -> &[u32] {
        &self.block.words[((self.row[1] - self.block.address) / 4) as usize..]
    }
}

impl Machine {
    /// Run the rows at which tiles stand. A tile that takes no part stands elsewhere and stays.
    pub(super) fn run_phase(&mut self, stops: &[Stop]) -> Result<(), Box<DeviceFault>> {
        let rows = self.participants(stops)?;
        self.phases_run += 1;
        let Some(first) = rows.first() else {
            self.leave_rows(None, stops);
            return Ok(());
        };
        let start = self.tiles[first.at].time;
        if let Some(late) = rows.iter().find(|row| self.tiles[row.at].time != start) {
            let kind = FaultKind::Exchange("row entered at another time than others".to_owned());
            return Err(self.supervisor_fault(late.at, kind));
        }
        // When events happen does not depend on the bases, only where they read and write.
        let bases = |row: &Participant| if self.data { row.bases } else { [0; 3] };
        let key: Vec<RowKey> = rows.iter().map(|row| (row.row, bases(row))).collect();
        let events = match self.phases.resolved.get(&key) {
            Some(events) => Arc::clone(events),
            None => {
                let events = Arc::new(self.resolve(&rows)?);
                self.phases.insert(key, &events);
                events
            }
        };
        self.words_moved += events
            .copies
            .iter()
            .map(|c| u64::from(c.words))
            .sum::<u64>();
        if self.data {
            self.move_words(&events)?;
        }
        self.leave_rows(Some((&events, start)), stops);
        Ok(())
    }

    fn participants(&self, stops: &[Stop]) -> Result<Vec<Participant>, Box<DeviceFault>> {
        let mut rows = Vec::new();
        for (at, stop) in stops.iter().enumerate() {
            let Stop::Row { address } = *stop else {
                continue;
            };
            let tile = &self.tiles[at];
            let block = match tile.code.find(address) {
                Ok(block) => Arc::clone(block),
                Err(kind) => return Err(self.supervisor_fault(at, *kind)),
            };
            if tile.live_end > tile.time {
                return Err(self.supervisor_fault(at, FaultKind::WorkersAtSync));
            }
            let exchange = &tile.control.exchange;
            let bases = [
                exchange[register::INCOMING_BASE],
                exchange[register::OUTGOING_BASE],
                tile.supervisor.m(6),
            ];
            let row = [tile.id, address];
            let participant = Participant {
                at,
                row,
                bases,
                block,
            };
            if participant.words()[0] != RETURN_ONLY {
                rows.push(participant);
            }
        }
        Ok(rows)
    }

    fn resolve(&self, rows: &[Participant]) -> Result<PhaseEvents, Box<DeviceFault>> {
        let inputs: Vec<RowInput> = rows
            .iter()
            .map(|row| {
                let [tile, address] = row.row;
                let [incoming_base, outgoing_base, moving_base] = row.bases;
                RowInput {
                    tile,
                    words: row.words(),
                    incoming_base,
                    outgoing_base,
                    moving_base,
                    row_address: Some(address),
                }
            })
            .collect();
        resolve(&inputs).map_err(|error| {
            let tile = tile_of(&error);
            let at = rows
                .iter()
                .find(|row| row.row[0] == tile)
                .map_or(rows[0].at, |row| row.at);
            self.supervisor_fault(at, FaultKind::Exchange(error.to_string()))
        })
    }

    /// Every tile goes on when its row, if it has one, is over.
    fn leave_rows(&mut self, events: Option<(&PhaseEvents, u64)>, stops: &[Stop]) {
        let mut spans = events.iter().flat_map(|(events, start)| {
            let end = move |duration: i32| start + duration.max(0) as u64;
            let rows = events.rows.iter();
            rows.map(move |row| (row.tile, end(row.duration)))
        });
        let mut next = spans.next();
        for (tile, stop) in self.tiles.iter_mut().zip(stops) {
            if !matches!(stop, Stop::Row { .. }) {
                continue;
            }
            let end = match next {
                Some((id, end)) if id == tile.id => {
                    next = spans.next();
                    end
                }
                _ => tile.time,
            };
            tile.leave_row(end);
        }
    }

    fn move_words(&mut self, events: &PhaseEvents) -> Result<(), Box<DeviceFault>> {
        if events.overlapping {
            self.check_sent(&events.copies)?;
            return self.replay(&events.copies);
        }
        let parts: Vec<&[CopyRun]> = events
            .copies
            .chunk_by(|a, b| a.dst_tile == b.dst_tile)
            .collect();
        let words: Vec<_> = parts.par_iter().map(|copies| self.sent(copies)).collect();
        let mut sent = Vec::with_capacity(words.len());
        for words in words {
            match words {
                Ok(words) => sent.push(words),
                Err((tile, kind)) => return Err(self.supervisor_fault(self.index_of(tile), *kind)),
            }
        }
        let failures: Vec<_> = self
            .jobs(&parts, &sent)
            .into_par_iter()
            .filter_map(|(tile, (copies, mut words))| {
                copies.iter().find_map(|copy| {
                    let (mine, others) = words.split_at(copy.words as usize);
                    words = others;
                    let written = tile.memory.write_words(copy.dst_addr, mine);
                    written.err().map(|kind| (tile.id, *kind))
                })
            })
            .collect();
        match failures.into_iter().next() {
            Some((tile, kind)) => Err(self.supervisor_fault(self.index_of(tile), kind)),
            None => Ok(()),
        }
    }

    /// The words of copies, one copy after the other, or the tile that cannot send them.
    fn sent(&self, copies: &[CopyRun]) -> Result<Vec<u32>, (u32, Box<FaultKind>)> {
        let count = copies.iter().map(|copy| copy.words as usize).sum();
        let mut words = Vec::with_capacity(count);
        for copy in copies {
            let memory = &self.tile_at(copy.src_tile).memory;
            let from = |kind| (copy.src_tile, kind);
            let undefined = memory.first_undefined(copy.src_addr, copy.words);
            if let Some(address) = undefined.map_err(from)? {
                return Err(from(Box::new(FaultKind::Undefined(Use::Send { address }))));
            }
            words.extend_from_slice(memory.words(copy.src_addr, copy.words).map_err(from)?);
        }
        Ok(words)
    }

    /// What is sent must be in memory and defined.
    fn check_sent(&self, copies: &[CopyRun]) -> Result<(), Box<DeviceFault>> {
        let results: Vec<_> = copies
            .par_iter()
            .map(|copy| {
                let source = self.tile_at(copy.src_tile);
                source.memory.first_undefined(copy.src_addr, copy.words)
            })
            .collect();
        for (copy, result) in copies.iter().zip(results) {
            let kind = match result {
                Ok(None) => continue,
                Ok(Some(address)) => FaultKind::Undefined(Use::Send { address }),
                Err(kind) => *kind,
            };
            return Err(self.supervisor_fault(self.index_of(copy.src_tile), kind));
        }
        Ok(())
    }

    /// The tiles that receive, with their copies, which come by destination.
    fn jobs<'a>(&'a mut self, parts: &[&'a [CopyRun]], words: &'a [Vec<u32>]) -> Vec<Job<'a>> {
        let mut tiles = self.tiles.iter_mut();
        let mut jobs = Vec::with_capacity(parts.len());
        for (copies, words) in parts.iter().zip(words) {
            if let Some(tile) = tiles.find(|tile| tile.id == copies[0].dst_tile) {
                jobs.push((tile, (*copies, words.as_slice())));
            }
        }
        jobs
    }

    /// Move word by word in event order: for phases in which bytes are read and written.
    fn replay(&mut self, copies: &[CopyRun]) -> Result<(), Box<DeviceFault>> {
        // (event, write, copy, word): reads of an event come before its writes.
        let mut moves = Vec::new();
        for (c, copy) in copies.iter().enumerate() {
            let words_per_event = if copy.wide { 2 } else { 1 };
            for word in 0..copy.words {
                let event = (word / words_per_event) as i32;
                moves.push((copy.first_send_event + event, false, c, word));
                moves.push((copy.first_write_event + event, true, c, word));
            }
        }
        moves.sort_unstable();
        let mut values: Vec<Vec<u32>> = copies
            .iter()
            .map(|copy| vec![0; copy.words as usize])
            .collect();
        for (_, write, c, word) in moves {
            let copy = &copies[c];
            let result = if write {
                let at = self.index_of(copy.dst_tile);
                let value = values[c][word as usize];
                let memory = &mut self.tiles[at].memory;
                memory
                    .write_words(copy.dst_addr + 4 * word, &[value])
                    .map_err(|kind| (at, kind))
            } else {
                let at = self.index_of(copy.src_tile);
                let memory = &self.tiles[at].memory;
                memory
                    .words(copy.src_addr + 4 * word, 1)
                    .map(|value| values[c][word as usize] = value[0])
                    .map_err(|kind| (at, kind))
            };
            if let Err((at, kind)) = result {
                return Err(self.supervisor_fault(at, *kind));
            }
        }
        Ok(())
    }

    fn index_of(&self, tile: u32) -> usize {
        self.index[tile as usize].expect("tiles of a phase have rows") as usize
    }

    fn tile_at(&self, tile: u32) -> &Tile {
        &self.tiles[self.index_of(tile)]
    }
}

/// The tile that an error names.
fn tile_of(error: &FabricError) -> u32 {
    use FabricError::*;
    match *error {
        Word { tile, .. }
        | NoReturn { tile }
        | Misaligned { tile, .. }
        | PairedTogether { tile, .. }
        | NoMessage { tile, .. }
        | Twice { tile }
        | Address { tile, .. }
        | Source { tile, .. }
        | EmptySlot { tile, .. }
        | Direction { tile, .. }
        | Width { tile, .. }
        | NotEarly { tile, .. }
        | NoPartner { tile, .. }
        | Clash { tile, .. }
        | NoPointer { tile, .. }
        | Format { tile, .. }
        | MuxOpen { tile }
        | FormatOpen { tile }
        | Unfinished { tile, .. }
        | Missed { tile, .. }
        | Lane { tile, .. }
        | Element { tile, .. }
        | RowElement { tile, .. } => tile,
    }
}
