//! Host packets and the supervisor programs that send them.
//!
//! Input: physical tiles, tile addresses, host offsets and bytes. Output: packet words, request
//! words, programs, table entries.
//! Invariants: no packet crosses a page of the host; all transfers are whole words.
//! Not here: which tile moves what when (`host_calls`), what the host does with packets.

use ipu_target::exchange::MUX_NEUTRAL;
use ipu_target::host::{
    LAST_OF_STREAM, LONG_UNIT_BYTES, PAGE_BYTES, PARTIAL_BYTES, READ_BYTES_MAX, READ_LONG,
    READ_SHORT, REQUEST_WORD_BITS, SHORT_BYTES_MAX, WINDOW_UNIT_BYTES, WRITE_BYTES_MAX,
    WRITE_EVENTS_MIN, WRITE_LONG, WRITE_SHORT, request_bit,
};
use ipu_target::memory::{APERTURE, HOST_CLOSING_READ, HOST_PACKETS, HOST_REQUEST};
use ipu_target::topology::host_endpoint_mux;

use crate::words::{
    INCOMING_DCOUNT, INCOMING_MUX, LINK, SCRATCH, Words, ZONE_ANSWERED, ZONE_HOST,
    ZONE_HOST_MASTER, ZONE_RECEIVE,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    ToTile,
    ToHost,
}

/// What one packet moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    pub tile_address: u32,
    pub host_offset: u32,
    pub bytes: u32,
}

impl Chunk {
    fn is_long(self) -> bool {
        self.bytes > SHORT_BYTES_MAX
    }
}

/// Cut a transfer into packets.
pub fn split(direction: Direction, transfer: Chunk) -> Vec<Chunk> {
    let most = match direction {
        Direction::ToTile => READ_BYTES_MAX,
        Direction::ToHost => WRITE_BYTES_MAX,
    };
    let mut chunks = Vec::new();
    let mut rest = transfer;
    while rest.bytes > 0 {
        let page = PAGE_BYTES - rest.host_offset % PAGE_BYTES;
        let available = rest.bytes.min(page);
        let aligned = rest.host_offset.is_multiple_of(LONG_UNIT_BYTES);
        let bytes = if aligned && available >= LONG_UNIT_BYTES {
            most.min(available) / LONG_UNIT_BYTES * LONG_UNIT_BYTES
        } else if available <= SHORT_BYTES_MAX {
            available
        } else {
            PARTIAL_BYTES
        };
        chunks.push(Chunk { bytes, ..rest });
        rest.tile_address += bytes;
        rest.host_offset += bytes;
        rest.bytes -= bytes;
    }
    chunks
}

/// Bits of both header words that name a physical tile.
fn route(physical: u32) -> [u32; 2] {
    let lane = physical & 1;
    [(physical >> 1) << 16 | lane << 15, lane << 31]
}

/// The two words of a packet's header. A read is the last of its stream.
pub fn header(direction: Direction, physical: u32, chunk: Chunk) -> [u32; 2] {
    let (opcode, field) = match (direction, chunk.is_long()) {
        (Direction::ToTile, long) => (
            if long { READ_LONG } else { READ_SHORT },
            (chunk.tile_address - APERTURE.start) / WINDOW_UNIT_BYTES,
        ),
        (Direction::ToHost, true) => (WRITE_LONG, 0),
        (Direction::ToHost, false) => (WRITE_SHORT, 0),
    };
    let (shift, length) = match chunk.is_long() {
        true => (6, chunk.bytes / LONG_UNIT_BYTES % 16),
        false => (2, chunk.bytes / 4),
    };
    let [first, second] = route(physical);
    [
        opcode | first | field,
        second | (chunk.host_offset >> shift) << 4 | length,
    ]
}

/// The zero-byte read that closes a download.
pub fn closing_read(physical: u32) -> [u32; 2] {
    let [first, second] = route(physical);
    let field = (HOST_CLOSING_READ - APERTURE.start) / WINDOW_UNIT_BYTES;
    [READ_SHORT | first | field, second]
}

/// What a target sends from the packet area.
pub fn packet_words(direction: Direction, physical: u32, chunks: &[Chunk]) -> Vec<u32> {
    let headers = chunks
        .iter()
        .map(|chunk| header(direction, physical, *chunk));
    let mut headers: Vec<[u32; 2]> = headers.collect();
    match direction {
        Direction::ToTile => {
            if let Some((_, others)) = headers.split_last_mut() {
                for header in others {
                    header[0] &= !LAST_OF_STREAM;
                }
            }
        }
        Direction::ToHost => headers.push(closing_read(physical)),
    }
    headers.into_flattened()
}

/// The two words by which a serving tile asks for the packets of physical tiles.
pub fn request_words(targets: impl IntoIterator<Item = u32>) -> [u32; 2] {
    let mut words = [0; 2];
    for target in targets {
        let bit = request_bit(target);
        words[(bit / REQUEST_WORD_BITS) as usize] |= 1 << (bit % REQUEST_WORD_BITS);
    }
    words
}

/// A target's transfer, cut into packets.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    pub direction: Direction,
    pub chunks: &'a [Chunk],
}

/// The program of an active tile: a target, a serving tile, or both.
pub fn program(physical: u32, transfer: Option<Transfer<'_>>, serves: bool) -> Vec<u32> {
    let mut words = Words::new(0);
    words.setzi(SCRATCH, host_endpoint_mux(physical));
    words.put(INCOMING_MUX, SCRATCH);
    words.sync(if serves { ZONE_HOST_MASTER } else { ZONE_HOST });
    if let Some(transfer) = transfer {
        words.setzi(SCRATCH, incoming_words(transfer));
        words.put(INCOMING_DCOUNT, SCRATCH);
    }
    if serves {
        words.send(2, HOST_REQUEST);
    }
    if let Some(transfer) = transfer {
        body(&mut words, transfer);
        words.sync(ZONE_RECEIVE);
    }
    words.sync(ZONE_HOST);
    words.setzi(SCRATCH, MUX_NEUTRAL);
    words.put(INCOMING_MUX, SCRATCH);
    words.br(LINK);
    words.words
}

/// Words that a target waits for; the read that closes a download counts as one.
fn incoming_words(transfer: Transfer<'_>) -> u32 {
    match transfer.direction {
        Direction::ToTile => transfer.chunks.iter().map(|chunk| chunk.bytes / 4).sum(),
        Direction::ToHost => 1,
    }
}

fn body(words: &mut Words, transfer: Transfer<'_>) {
    match transfer.direction {
        Direction::ToTile => {
            words.send(2, HOST_PACKETS);
            for _ in 1..transfer.chunks.len() {
                words.send_off(2);
            }
        }
        Direction::ToHost => {
            let mut header = HOST_PACKETS;
            for chunk in transfer.chunks {
                let items = chunk.bytes / 4;
                words.send(2, header);
                words.send(items, chunk.tile_address);
                if items < WRITE_EVENTS_MIN {
                    words.delay(WRITE_EVENTS_MIN - items);
                }
                header += 8;
            }
            words.send(2, header);
        }
    }
}

/// The program of a tile that takes no part: it answers both syncs.
pub fn inactive_program() -> Vec<u32> {
    let mut words = Words::new(0);
    words.sans(1);
    words.sync(ZONE_ANSWERED);
    words.br(LINK);
    words.words
}

/// The three words that say what the runtime copies before and after a program.
pub fn table_entry(
    destination: u32,
    copy_words: u32,
    packet_words: u32,
    target_only: bool,
    packets: u32,
) -> [u32; 3] {
    let descriptor = copy_words | u32::from(target_only) << 23 | packet_words << 24;
    [destination, descriptor, packets]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipu_target::topology::serving_tile;
    use serde_json::Value;

    fn vectors() -> Option<Value> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference");
        let folder = std::env::var("IPUB_SHARED").unwrap_or_else(|_| root.to_owned());
        let text = std::fs::read_to_string(format!("{folder}/host-packets.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    fn hex(list: &Value) -> Vec<u32> {
        let word = |word: &Value| u32::from_str_radix(word.as_str().unwrap(), 16).unwrap();
        list.as_array().unwrap().iter().map(word).collect()
    }

    fn number(value: &Value) -> u32 {
        value.as_u64().unwrap() as u32
    }

    fn check(case: &Value) {
        let direction = match case["direction"].as_str().unwrap() {
            "to_tile" => Direction::ToTile,
            _ => Direction::ToHost,
        };
        let physical = number(&case["physical_tile"]);
        let transfer = Chunk {
            tile_address: number(&case["tile_address"]),
            host_offset: number(&case["host_offset"]),
            bytes: number(&case["bytes"]),
        };
        let chunks = split(direction, transfer);
        let expected = case["chunks"].as_array().unwrap();
        assert_eq!(chunks.len(), expected.len());
        for (chunk, expected) in chunks.iter().zip(expected) {
            let place = [chunk.tile_address, chunk.host_offset, chunk.bytes];
            assert_eq!(place, std::array::from_fn(|i| number(&expected[i])));
            let words = hex(&Value::Array(expected.as_array().unwrap()[3..].to_vec()));
            assert_eq!(header(direction, physical, *chunk).to_vec(), words);
        }
        let words = packet_words(direction, physical, &chunks);
        assert_eq!(words, hex(&case["packet_words_at_0x50008"]));
        let serving = number(&case["xreq_physical_tile"]);
        assert_eq!(serving, serving_tile(physical));
        let request = request_words([physical]).to_vec();
        assert_eq!(request, hex(&case["xreq_words_at_0x50000"]));
        let transfer = Some(Transfer {
            direction,
            chunks: &chunks,
        });
        for (name, transfer, serves) in [
            ("target_program", transfer, false),
            ("xreq_only_program", None, true),
            ("combined_target_and_xreq_program", transfer, true),
        ] {
            assert_eq!(program(physical, transfer, serves), hex(&case[name]));
        }
    }

    #[test]
    fn published_packets_and_programs() {
        let Some(vectors) = vectors() else {
            println!("skipped: vector folder absent");
            return;
        };
        let cases = vectors["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 36);
        cases.iter().for_each(check);
        for case in vectors["xreq_bitmaps"].as_array().unwrap() {
            let targets: Vec<u32> = case["targets"]
                .as_array()
                .unwrap()
                .iter()
                .map(number)
                .collect();
            let words = request_words(targets.iter().copied()).to_vec();
            assert_eq!(words, hex(&case["bitmap_words_if_all_served_by_one"]));
            let serving = case["xreq_tiles"].as_array().unwrap().iter().map(number);
            assert!(targets.iter().map(|&t| serving_tile(t)).eq(serving));
        }
        let closing = hex(&vectors["zero_byte_read_tile_260_addr_0x50160"]);
        assert_eq!(closing_read(260).to_vec(), closing);
    }

    #[test]
    fn inactive_tiles_answer_both_syncs() {
        let words = [0x40c0_0001, 0x4180_0001, 0x43a0_0000];
        assert_eq!(inactive_program(), words);
    }

    #[test]
    fn a_full_slot_takes_four_reads_or_sixteen_writes() {
        let transfer = Chunk {
            tile_address: 0x50180,
            host_offset: 8_192,
            bytes: 4_096,
        };
        assert_eq!(split(Direction::ToTile, transfer).len(), 4);
        assert_eq!(split(Direction::ToHost, transfer).len(), 16);
        let [destination, descriptor, packets] = table_entry(0x64000, 1_024, 8, true, 0x58700);
        assert_eq!((destination, packets), (0x64000, 0x58700));
        assert_eq!(descriptor, 0x0880_0400);
    }
}
