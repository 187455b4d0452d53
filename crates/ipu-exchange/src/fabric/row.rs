//! Reads the words of one row.
//!
//! Input: words and base registers. Output: send runs and receive controls with their events.
//! Invariants: events grow; send runs are disjoint, sorted, and as long as time and address go on.
//! Not here: what other tiles do.

use super::{FabricError, RowInput};

/// Words that leave one after another from consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRun {
    pub start: i32,
    pub end: i32,
    /// Byte address of the first item, base included.
    pub address: u32,
    /// Direction bits.
    pub directions: u32,
    /// Whether items have 64 bits.
    pub wide: bool,
}

impl SendRun {
    /// Bytes of an item.
    pub fn item_bytes(&self) -> u32 {
        if self.wide { 8 } else { 4 }
    }

    /// Bytes of the run.
    pub fn bytes(&self) -> u32 {
        (self.end - self.start) as u32 * self.item_bytes()
    }
}

/// Everything a row does, with events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowEvents {
    pub sends: Vec<SendRun>,
    /// Ordinary source selections.
    pub sources: Vec<(i32, u32)>,
    /// Paired source selections.
    pub paired_sources: Vec<(i32, u32)>,
    /// Write pointers as byte addresses, base included.
    pub pointers: Vec<(i32, u32)>,
    pub formats: Vec<(i32, u32)>,
    pub duration: i32,
    /// Words of the row, the return included.
    pub words: u32,
}

const BASE_WRITE: i32 = 13;

struct Reader<'a> {
    input: &'a RowInput<'a>,
    out: RowEvents,
    index: usize,
    now: i32,
    incoming: u32,
    outgoing: u32,
    /// Next byte address of the current message.
    cursor: u32,
    /// Control bits of the message that may go on; absent before the first.
    control: Option<u32>,
    /// Whether the latest instruction sent.
    sending: bool,
}

/// The events of a row.
pub fn decode(input: &RowInput) -> Result<RowEvents, FabricError> {
    let mut reader = Reader {
        input,
        out: RowEvents::default(),
        index: 0,
        now: 0,
        incoming: input.incoming_base,
        outgoing: input.outgoing_base,
        cursor: 0,
        control: None,
        sending: false,
    };
    loop {
        let Some(&word) = input.words.get(reader.index) else {
            return Err(FabricError::NoReturn { tile: input.tile });
        };
        if word == 0x43a0_0000 {
            break;
        }
        reader.step(word)?;
    }
    reader.out.duration = reader.now;
    reader.out.words = reader.index as u32 + 1;
    Ok(reader.out)
}

fn field(word: u32, low: u32, bits: u32) -> u32 {
    (word >> low) & ((1 << bits) - 1)
}

impl Reader<'_> {
    fn bad(&self, word: u32) -> FabricError {
        FabricError::Word {
            tile: self.input.tile,
            index: self.index,
            word,
        }
    }

    fn step(&mut self, word: u32) -> Result<(), FabricError> {
        match word >> 26 {
            0b011000 => {
                self.wait(field(word, 19, 7));
                self.pointer_control(field(word, 18, 1), field(word, 0, 18), self.now);
            }
            0b011001 => {
                self.wait(field(word, 14, 12));
                self.source_control(field(word, 13, 1), field(word, 0, 13), self.now);
            }
            0b011100 | 0b011101 => self.going_on(word)?,
            0b011110 | 0b011111 => {
                self.cursor = self.item_address(word);
                self.control = Some(field(word, 0, 3));
                self.run(field(word, 21, 6) + 1)?;
            }
            0b111100..=0b111111 => self.two_words(word)?,
            _ if word & 0xfff8_0000 == 0x40a0_0000 => self.wait(field(word, 0, 19)),
            _ if word & 0xff0f_ffff == 0x4300_80a7 => {
                self.outgoing = self.register(word)?;
                self.wait(BASE_WRITE as u32 - 1);
            }
            _ if word & 0xff0f_ffff == 0x4300_80a4 => {
                self.incoming = self.register(word)?;
                self.wait(BASE_WRITE as u32 - 1);
            }
            _ => return Err(self.bad(word)),
        }
        self.index += 1;
        Ok(())
    }

    fn register(&self, word: u32) -> Result<u32, FabricError> {
        match field(word, 20, 4) {
            15 => Ok(0),
            6 => Ok(self.input.moving_base),
            _ => Err(self.bad(word)),
        }
    }

    /// Time passes without a word; the field holds the count less 1.
    fn wait(&mut self, less_one: u32) {
        self.now += less_one as i32 + 1;
        self.sending = false;
    }

    fn pointer_control(&mut self, stream: u32, value: u32, event: i32) {
        if stream == 0 {
            self.out
                .pointers
                .push((event, self.incoming.wrapping_add(value << 2)));
        } else {
            self.out.formats.push((event, value));
        }
    }

    fn source_control(&mut self, stream: u32, value: u32, event: i32) {
        let list = if stream == 0 {
            &mut self.out.sources
        } else {
            &mut self.out.paired_sources
        };
        list.push((event, value));
    }

    fn item_address(&self, word: u32) -> u32 {
        let shift = if word & 4 == 0 { 2 } else { 3 };
        self.outgoing.wrapping_add(field(word, 3, 18) << shift)
    }

    /// `sendoff` and `sendpic`.
    fn going_on(&mut self, word: u32) -> Result<(), FabricError> {
        let none = FabricError::NoMessage {
            tile: self.input.tile,
            index: self.index,
        };
        if word & 1 << 20 == 0 {
            if field(word, 3, 11) != 0 {
                return Err(self.bad(word));
            }
            if self.control != Some(field(word, 0, 3)) {
                return Err(none);
            }
            return self.run((field(word, 14, 6) << 6 | field(word, 21, 6)) + 1);
        }
        if !self.sending {
            return Err(none);
        }
        let (selector, value) = (field(word, 18, 2), field(word, 0, 18));
        if selector < 2 {
            if value >> 13 != 0 {
                return Err(self.bad(word));
            }
            self.source_control(selector, value, self.now + 1);
        } else {
            self.pointer_control(selector - 2, value, self.now + 1);
        }
        self.run(field(word, 21, 6) + 1)
    }

    /// `sendpicp` and its inline word.
    fn two_words(&mut self, word: u32) -> Result<(), FabricError> {
        let (tile, index) = (self.input.tile, self.index);
        if !index.is_multiple_of(2) {
            return Err(FabricError::Misaligned { tile, index });
        }
        let Some(&inline) = self.input.words.get(index + 1) else {
            return Err(FabricError::NoReturn { tile });
        };
        if word & 1 << 27 != 0 || inline >> 31 != 0 {
            return Err(FabricError::PairedTogether { tile, index });
        }
        self.source_control(0, field(inline, 18, 13), self.now + 1);
        self.pointer_control(0, field(inline, 0, 18), self.now + 1);
        let (items, control) = (field(word, 21, 6) + 1, field(word, 0, 3));
        if control == 0 {
            self.wait(items - 1);
        } else {
            self.cursor = self.item_address(word);
            self.control = Some(control);
            self.run(items)?;
        }
        self.index += 1;
        Ok(())
    }

    fn run(&mut self, items: u32) -> Result<(), FabricError> {
        let control = self.control.unwrap_or(0);
        if control & 3 == 0 {
            return Err(FabricError::NoMessage {
                tile: self.input.tile,
                index: self.index,
            });
        }
        let run = SendRun {
            start: self.now,
            end: self.now + items as i32,
            address: self.cursor,
            directions: control & 3,
            wide: control & 4 != 0,
        };
        match self.out.sends.last_mut() {
            Some(last)
                if last.end == run.start
                    && last.directions == run.directions
                    && last.wide == run.wide
                    && last.address.wrapping_add(last.bytes()) == run.address =>
            {
                last.end = run.end;
            }
            _ => self.out.sends.push(run),
        }
        self.cursor = self.cursor.wrapping_add(run.bytes());
        self.now = run.end;
        self.sending = true;
        Ok(())
    }
}
