//! What a phase is asked to move, and why it may be refused.
//!
//! Input: transfers from the placer. Output: validated transfers or a typed refusal.
//! Invariants: tiles are logical numbers, addresses are byte addresses.
//! Not here: when anything happens.

use ipu_target::TILES;
use ipu_target::exchange::TRANSFER_ITEMS_MAX;
use ipu_target::memory::elements_of;
use ipu_target::topology::{pair_partner, physical};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Item width of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Width {
    /// One 32-bit word an event.
    Word32,
    /// One 64-bit item an event, to whole pairs of tiles; borrows the partner's transmit lane.
    Paired64,
}

impl Width {
    /// Words in one item.
    pub fn words(self) -> u32 {
        match self {
            Width::Word32 => 1,
            Width::Paired64 => 2,
        }
    }

    /// Bytes in one item; also the alignment of its addresses.
    pub fn bytes(self) -> u32 {
        4 * self.words()
    }
}

/// A source that moves between the iterations of a repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moving {
    /// Value of OUTGOING_BASE in the iteration for which `source_address` is given.
    pub base: u32,
    /// All bytes that this transfer reads over all iterations.
    pub extent: Range<u32>,
}

/// Words that go from one tile to a set of tiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// Logical source tile.
    pub source: u32,
    /// First byte on the source tile.
    pub source_address: u32,
    /// Words moved, whatever the width.
    pub words: u32,
    /// Logical destination tiles, each with the address of the first byte.
    pub destinations: Vec<(u32, u32)>,
    /// Item width.
    pub width: Width,
    /// Present when the source moves: its row addresses are relative to OUTGOING_BASE.
    pub moving: Option<Moving>,
}

/// Why a phase cannot be turned into rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// No words, or an odd number of words in paired mode.
    #[error("transfer {transfer}: {words} words are no whole payload")]
    Payload { transfer: usize, words: u32 },
    /// More items than one transfer may have.
    #[error("transfer {transfer}: {items} items, at most {max}", max = TRANSFER_ITEMS_MAX)]
    Count { transfer: usize, items: u32 },
    /// An address that rows cannot hold.
    #[error("transfer {transfer}: address {address:#x} is not encodable")]
    Address { transfer: usize, address: u32 },
    /// A tile number outside the chip.
    #[error("transfer {transfer}: tile {tile} does not exist")]
    Tile { transfer: usize, tile: u32 },
    /// No receiver, a receiver named twice, or half of a receiver pair.
    #[error("transfer {transfer}: receiver set is empty, repeats a tile or splits a pair")]
    Receivers { transfer: usize },
    /// A tile sends to itself alone, or within one memory element.
    #[error("transfer {transfer}: delivery to the own tile needs another receiver and element")]
    Loopback { transfer: usize },
    /// Two controls of one paired receive would fall on one event.
    #[error("transfer {transfer}: two controls of a paired receive coincide")]
    Coincident { transfer: usize },
    /// Two different outgoing bases on one tile.
    #[error("transfer {transfer}: tile {tile} already has another outgoing base")]
    Base { transfer: usize, tile: u32 },
    /// A control falls on the event after a send start.
    #[error("tile {tile}: control at event {event} follows a send start at once")]
    SendStart { tile: u32, event: i32 },
    /// Two controls share an event on an odd word index and nothing can be padded.
    #[error("tile {tile}: paired controls at event {event} cannot be aligned")]
    Alignment { tile: u32, event: i32 },
    /// Instructions overlap: the row state is inconsistent.
    #[error("tile {tile}: no room for an instruction before event {event}")]
    Overlap { tile: u32, event: i32 },
    /// A source and a destination of one phase overlap in a cycle of dependencies.
    #[error("transfer {transfer}: waits for itself through overlapping bytes")]
    Cycle { transfer: usize },
}

impl Transfer {
    /// Items of the transfer's width.
    pub fn items(&self) -> u32 {
        self.words / self.width.words()
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u32 {
        4 * self.words
    }

    /// The address as rows hold it: relative to the base when the source moves.
    pub fn row_address(&self) -> u32 {
        self.source_address - self.moving.as_ref().map_or(0, |m| m.base)
    }

    /// Memory elements that the send may touch in any iteration.
    pub fn source_elements(&self) -> Range<u32> {
        match &self.moving {
            Some(m) => elements_of(m.extent.start, m.extent.end - m.extent.start),
            None => elements_of(self.source_address, self.bytes()),
        }
    }

    /// Checks everything about the transfer that does not depend on others.
    pub fn validate(&self, transfer: usize) -> Result<(), ExchangeError> {
        if self.items() > TRANSFER_ITEMS_MAX {
            return Err(ExchangeError::Count {
                transfer,
                items: self.items(),
            });
        }
        self.validate_any_length(transfer)
    }

    /// As [`Transfer::validate`], for a transfer that may be cut into several messages.
    pub fn validate_any_length(&self, transfer: usize) -> Result<(), ExchangeError> {
        let words = self.words;
        if words == 0 || !words.is_multiple_of(self.width.words()) {
            return Err(ExchangeError::Payload { transfer, words });
        }
        let tiles = self.destinations.iter().map(|d| d.0).chain([self.source]);
        if let Some(tile) = tiles.clone().find(|&t| t >= TILES) {
            return Err(ExchangeError::Tile { transfer, tile });
        }
        self.validate_receivers(transfer)?;
        if let Some(m) = &self.moving
            && (m.base > self.source_address || m.extent.start < m.base)
        {
            return Err(ExchangeError::Address {
                transfer,
                address: self.source_address,
            });
        }
        let addresses = self
            .destinations
            .iter()
            .map(|d| d.1)
            .chain([self.row_address()]);
        for address in addresses {
            let end = u64::from(address) + u64::from(self.bytes());
            if !address.is_multiple_of(self.width.bytes()) || end > 1 << 20 {
                return Err(ExchangeError::Address { transfer, address });
            }
        }
        Ok(())
    }

    fn validate_receivers(&self, transfer: usize) -> Result<(), ExchangeError> {
        let mut tiles: Vec<u32> = self.destinations.iter().map(|d| physical(d.0)).collect();
        tiles.sort_unstable();
        let split = self.width == Width::Paired64
            && tiles
                .iter()
                .any(|&p| tiles.binary_search(&pair_partner(p)).is_err());
        if tiles.is_empty() || split || tiles.windows(2).any(|w| w[0] == w[1]) {
            return Err(ExchangeError::Receivers { transfer });
        }
        let own = self.destinations.iter().find(|d| d.0 == self.source);
        if let Some(&(_, address)) = own {
            let (from, to) = (self.source_elements(), elements_of(address, self.bytes()));
            if tiles.len() == 1 || (from.start < to.end && to.start < from.end) {
                return Err(ExchangeError::Loopback { transfer });
            }
        }
        Ok(())
    }
}
