//! Requests and packets of tiles to copies between tiles and host pages.
//!
//! Input: tiles that wait for host words or have sent some. Output: words on tiles and in pages,
//! and the tiles' times.
//! Invariants: a packet moves bytes between the tile that sends it and the slot of that tile, and
//! only while its serving tile asks for it; all packets of a tile are read before any is served.
//! The read that closes a download counts as one word and writes none.
//! Not here: what the pages hold (see `session`), when a phase begins (marks, in `machine`).

use ipu_target::host::{
    HEADER_BIT, LAST_OF_STREAM, LONG_UNIT_BYTES, PAGE_BYTES, READ_LATENCY, READ_LONG, READ_SHORT,
    READ_WORD, REQUEST_WORD_BITS, SLOTS_OFFSET, WINDOW_FIELD, WINDOW_UNIT_BYTES, WRITE_BYTES_MAX,
    WRITE_LONG, WRITE_SHORT, requested_tile, slot_offset,
};
use ipu_target::memory::{APERTURE, APERTURE_HOST_BYTES, HOST_CLOSING_READ};
use ipu_target::topology::{logical, physical, serving_tile};

use super::Machine;
use crate::fault::{DeviceFault, Exec, FaultKind, HostFault, Use};
use crate::supervisor::{Stop, zone};
use crate::tile::{Sent, Tile, exchange_register};

/// Bits of the first header word that say what a packet is.
const OPCODE: u32 = 0xfc00_7e00;
const LENGTH: u32 = 15;

/// The pages that the host attaches: a command page, and a slot for each tile that takes part.
#[derive(Clone, Default)]
pub struct HostPages {
    words: Vec<u32>,
    defined: Vec<bool>,
    /// Logical tile of each slot.
    owners: Vec<u32>,
}

impl HostPages {
    pub fn new(slots: &[u32]) -> HostPages {
        let words = slot_offset(slots.len() as u32) as usize / 4;
        HostPages {
            words: vec![0; words],
            defined: vec![false; words],
            owners: slots.to_vec(),
        }
    }

    fn start(slot: usize) -> usize {
        slot_offset(slot as u32) as usize / 4
    }

    /// Fill the start of a slot with words, and the rest with nothing.
    pub fn fill(&mut self, slot: usize, words: &[u32]) {
        let start = HostPages::start(slot);
        let defined = &mut self.defined[start..start + PAGE_BYTES as usize / 4];
        let (filled, rest) = defined.split_at_mut(words.len());
        filled.fill(true);
        rest.fill(false);
        self.words[start..start + words.len()].copy_from_slice(words);
    }

    /// Words at the start of a slot, and whether each is defined.
    pub fn collect(&self, slot: usize, bytes: u32) -> (&[u32], &[bool]) {
        let start = HostPages::start(slot);
        let range = start..start + bytes as usize / 4;
        (&self.words[range.clone()], &self.defined[range])
    }

    /// First word of a range that a tile may touch.
    fn check(&self, tile: u32, offset: u32, bytes: u32) -> Result<usize, HostFault> {
        let end = offset.saturating_add(bytes);
        let outside = offset < SLOTS_OFFSET || end as usize > 4 * self.words.len();
        if outside || offset % PAGE_BYTES + bytes > PAGE_BYTES {
            return Err(HostFault::OutOfPage { offset, bytes });
        }
        let owner = self.owners[((offset - SLOTS_OFFSET) / PAGE_BYTES) as usize];
        if owner != tile {
            let owner = physical(owner);
            return Err(HostFault::WrongSlot { offset, owner });
        }
        Ok(offset as usize / 4)
    }
}

/// One packet, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    /// From the host to the tile.
    Read {
        address: u32,
        offset: u32,
        bytes: u32,
        last: bool,
    },
    Write {
        offset: u32,
        bytes: u32,
    },
    /// The zero-byte read.
    Close,
}

fn packet(tile: u32, [first, second]: [u32; 2]) -> Result<Packet, HostFault> {
    let own = physical(tile);
    let read = first & 0x200 != 0;
    let named = ((first >> 16) & 0x3ff) << 1 | (first >> 15) & 1;
    let lane = second >> 31;
    let opcode = first & OPCODE;
    let (long, last) = match opcode {
        READ_SHORT => (false, true),
        READ_LONG => (true, true),
        WRITE_SHORT => (false, false),
        WRITE_LONG => (true, false),
        _ if opcode == READ_SHORT & !LAST_OF_STREAM => (false, false),
        _ if opcode == READ_LONG & !LAST_OF_STREAM => (true, false),
        _ => return Err(HostFault::Header { word: first }),
    };
    if named != own || lane != own & 1 {
        let found = named & !1 | lane;
        let found = if named == own { found } else { named };
        let expected = own;
        return Err(HostFault::WrongTile { found, expected });
    }
    let (shift, unit) = if long { (6, LONG_UNIT_BYTES) } else { (2, 4) };
    let offset = ((second & !HEADER_BIT) >> 4) << shift;
    let length = match second & LENGTH {
        0 if long => 16,
        length => length,
    };
    let bytes = unit * length;
    if !read {
        if first & WINDOW_FIELD != 0 {
            return Err(HostFault::Header { word: first });
        }
        if bytes == 0 || bytes > WRITE_BYTES_MAX {
            return Err(HostFault::Length { bytes });
        }
        return Ok(Packet::Write { offset, bytes });
    }
    let address = APERTURE.start + (first & WINDOW_FIELD) * WINDOW_UNIT_BYTES;
    if bytes == 0 {
        return match (address == HOST_CLOSING_READ && offset == 0, last) {
            (true, true) => Ok(Packet::Close),
            _ => Err(HostFault::Length { bytes }),
        };
    }
    if address + bytes > APERTURE.start + APERTURE_HOST_BYTES {
        return Err(HostFault::OutOfWindow { address, bytes });
    }
    Ok(Packet::Read {
        address,
        offset,
        bytes,
        last,
    })
}

/// What a tile sent: a request, and packets with the addresses of their payload.
#[derive(Default)]
struct Mail {
    request: Option<[u32; 2]>,
    packets: Vec<(Packet, Vec<u32>)>,
}

fn mail(tile: &Tile) -> Exec<Mail> {
    let addresses =
        |&Sent { address, words }: &Sent| (0..words).map(move |word| address + 4 * word);
    let mut words = tile.outbox.iter().flat_map(addresses);
    let host = |fault| Box::new(FaultKind::Host(fault));
    let load = |address| match tile.memory.load(address, 4)? {
        (value, false) => Ok(value),
        _ => Err(Box::new(FaultKind::Undefined(Use::Send { address }))),
    };
    let mut mail = Mail::default();
    while let Some(first) = words.next() {
        let second = words.next().ok_or_else(|| host(HostFault::CutOff))?;
        let pair = [load(first)?, load(second)?];
        if pair[0] & HEADER_BIT == 0 {
            let again = mail.request.replace(pair).is_some() || !mail.packets.is_empty();
            if again {
                return Err(host(HostFault::Header { word: pair[0] }));
            }
            continue;
        }
        let packet = packet(tile.id, pair).map_err(host)?;
        let payload = match packet {
            Packet::Write { bytes, .. } => bytes as usize / 4,
            _ => 0,
        };
        let addresses: Vec<u32> = words.by_ref().take(payload).collect();
        if addresses.len() < payload {
            return Err(host(HostFault::CutOff));
        }
        mail.packets.push((packet, addresses));
    }
    Ok(mail)
}

/// Words that arrive at a tile. Reads form one stream, and a close ends a download.
fn incoming(packets: &[(Packet, Vec<u32>)]) -> Result<u32, HostFault> {
    let mut words = 0;
    for (index, (packet, _)) in packets.iter().enumerate() {
        let end = index + 1 == packets.len();
        match *packet {
            Packet::Read { bytes, last, .. } => {
                if last != end {
                    return Err(HostFault::Stream);
                }
                words += bytes / 4;
            }
            Packet::Close => words += 1,
            Packet::Write { .. } if end => return Err(HostFault::Stream),
            Packet::Write { .. } => {}
        }
    }
    Ok(words)
}

impl Machine {
    /// Whether a tile waits for the host or has sent it words.
    pub(super) fn has_mail(&self, stops: &[Stop]) -> bool {
        stops.iter().any(waits) || self.tiles.iter().any(|tile| !tile.outbox.is_empty())
    }

    /// Serve what was sent. Tiles that wait for words go on.
    pub(super) fn serve(&mut self, stops: &[Stop]) -> Result<(), Box<DeviceFault>> {
        let mut mails: Vec<(usize, Mail)> = Vec::new();
        for (at, stop) in stops.iter().enumerate() {
            if waits(stop) || !self.tiles[at].outbox.is_empty() {
                let mail = mail(&self.tiles[at]);
                mails.push((at, mail.map_err(|kind| self.supervisor_fault(at, *kind))?));
                self.tiles[at].outbox.clear();
            }
        }
        self.check_requests(&mails)?;
        for (at, mail) in &mails {
            let served = self.serve_tile(*at, mail, &stops[*at]);
            served.map_err(|kind| self.supervisor_fault(*at, *kind))?;
        }
        Ok(())
    }

    /// Serving tiles ask for exactly the tiles that send packets.
    fn check_requests(&self, mails: &[(usize, Mail)]) -> Result<(), Box<DeviceFault>> {
        let fault = |at, fault| Err(self.supervisor_fault(at, FaultKind::Host(fault)));
        // Of each tile, whether it sends packets and whether they are asked for.
        let mut tiles = vec![(false, false); self.index.len()];
        for (at, mail) in mails {
            tiles[self.tiles[*at].id as usize].0 = !mail.packets.is_empty();
        }
        for (at, mail) in mails {
            let Some(words) = mail.request else { continue };
            let serving = physical(self.tiles[*at].id);
            if serving_tile(serving) != serving {
                return fault(*at, HostFault::NotServing);
            }
            let words = u64::from(words[0]) | u64::from(words[1]) << REQUEST_WORD_BITS;
            for bit in (0..64).filter(|bit| words >> bit & 1 != 0) {
                let target = requested_tile(serving, bit);
                match logical(target).map(|tile| &mut tiles[tile as usize]) {
                    Some((true, asked)) => *asked = true,
                    _ => return fault(*at, HostFault::NotSending { target }),
                }
            }
        }
        let unasked = mails.iter().find(|(at, mail)| {
            let tile = self.tiles[*at].id as usize;
            !mail.packets.is_empty() && !tiles[tile].1
        });
        match unasked {
            Some((at, _)) => fault(*at, HostFault::NotRequested),
            None => Ok(()),
        }
    }

    fn serve_tile(&mut self, at: usize, mail: &Mail, stop: &Stop) -> Exec<()> {
        let host = |fault| Box::new(FaultKind::Host(fault));
        let tile = &mut self.tiles[at];
        let found = incoming(&mail.packets).map_err(host)?;
        if let Stop::Sync {
            zone: zone::RECEIVE,
            arrival,
        } = *stop
        {
            let expected = tile.control.exchange[exchange_register::INCOMING_DCOUNT];
            if expected != found {
                return Err(host(HostFault::WordCount { expected, found }));
            }
            tile.time = arrival + READ_LATENCY + READ_WORD * u64::from(found);
        }
        let pages = &mut self.pages;
        for (packet, payload) in &mail.packets {
            match *packet {
                Packet::Close => {}
                Packet::Read {
                    address,
                    offset,
                    bytes,
                    ..
                } => {
                    let from = pages.check(tile.id, offset, bytes).map_err(host)?;
                    if self.data {
                        let range = from..from + bytes as usize / 4;
                        tile.memory
                            .write_words(address, &pages.words[range.clone()])?;
                        for (word, _) in (0..)
                            .zip(&pages.defined[range])
                            .filter(|(_, defined)| !**defined)
                        {
                            tile.memory.poison(address + 4 * word, 1)?;
                        }
                    }
                }
                Packet::Write { offset, bytes } => {
                    let to = pages.check(tile.id, offset, bytes).map_err(host)?;
                    for (word, address) in (to..).zip(payload) {
                        let (value, undefined) = tile.memory.load(*address, 4)?;
                        pages.words[word] = value;
                        pages.defined[word] = !undefined;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a tile waits for words of the host.
pub(super) fn waits(stop: &Stop) -> bool {
    matches!(
        stop,
        Stop::Sync {
            zone: zone::RECEIVE,
            ..
        }
    )
}
