//! Supervisor instruction words, through the one instruction table.

use ipu_isa::{FormId, Operands, encode};

/// Registers with a fixed use in tile programs (see the device program design).
pub const FRAME: i32 = 0;
pub const MOVING_BASE: i32 = 6;
pub const BARRIER_LINK: i32 = 7;
pub const SCRATCH: i32 = 8;
pub const SCRATCH2: i32 = 9;
pub const LINK: i32 = 10;
pub const STATE: i32 = 11;
pub const ZERO: i32 = 15;

/// Exchange registers that a phase sets.
pub const INCOMING_MUX: i32 = 0xa0;
pub const INCOMING_BASE: i32 = 0xa4;
pub const INCOMING_DCOUNT: i32 = 0xa6;
pub const OUTGOING_BASE: i32 = 0xa7;

/// Both directions of a send.
const BOTH_DIRECTIONS: i32 = 3;

/// Sync zones.
pub const ZONE_RECEIVE: i32 = 0;
pub const ZONE_ANSWERED: i32 = 1;
pub const ZONE_INTERNAL: i32 = 3;
pub const ZONE_HOST: i32 = 7;
pub const ZONE_HOST_MASTER: i32 = 15;

/// Words of one tile program under construction.
pub struct Words {
    pub base: u32,
    pub words: Vec<u32>,
}

/// A form with its operands in text order; keys and ranges are those of the table.
fn word(key: &str, operands: &[i32]) -> u32 {
    let form = FormId::by_key(key).unwrap_or_else(|| panic!("the table has no form {key}"));
    let mut ops = Operands::default();
    ops[..operands.len()].copy_from_slice(operands);
    encode(form, &ops).unwrap_or_else(|error| panic!("{error}"))
}

impl Words {
    pub fn new(base: u32) -> Self {
        Words {
            base,
            words: Vec::new(),
        }
    }

    /// Address of the next word.
    pub fn here(&self) -> u32 {
        self.base + 4 * self.words.len() as u32
    }

    fn push(&mut self, key: &str, operands: &[i32]) {
        self.words.push(word(key, operands));
    }

    pub fn setzi(&mut self, register: i32, value: u32) {
        self.push("setzi M", &[register, value as i32]);
    }

    pub fn put(&mut self, csr: i32, register: i32) {
        self.push("put M", &[csr, register]);
    }

    pub fn call(&mut self, link: i32, address: u32) {
        self.push("call M", &[link, (address / 4) as i32]);
    }

    pub fn bri(&mut self, address: u32) {
        self.push("bri M", &[(address / 4) as i32]);
    }

    pub fn br(&mut self, register: i32) {
        self.push("br M", &[register]);
    }

    /// Send words from a byte address.
    pub fn send(&mut self, words: u32, address: u32) {
        let operands = [words as i32 - 1, (address / 4) as i32, BOTH_DIRECTIONS];
        self.push("send M", &operands);
    }

    /// Send the words that follow.
    pub fn send_off(&mut self, words: u32) {
        self.push("sendoff M", &[words as i32 - 1, 0, BOTH_DIRECTIONS]);
    }

    pub fn delay(&mut self, events: u32) {
        self.push("delay M", &[events as i32 - 1]);
    }

    pub fn brnz(&mut self, register: i32, address: u32) {
        self.push("brnz M", &[register, (address / 4) as i32]);
    }

    pub fn sync(&mut self, zone: i32) {
        self.push("sync M", &[zone]);
    }

    pub fn sans(&mut self, value: i32) {
        self.push("sans M", &[value]);
    }

    /// Load the word at `STATE + 4 * index`.
    pub fn load_state(&mut self, register: i32, index: u32) {
        self.push("ld32 m rri", &[register, STATE, ZERO, index as i32]);
    }

    /// Store to the address in another register.
    pub fn store(&mut self, register: i32, address: i32) {
        self.push("stm32 m", &[register, address, ZERO]);
    }

    pub fn add(&mut self, to: i32, a: i32, b: i32) {
        self.push("add M", &[to, a, b]);
    }

    pub fn add_immediate(&mut self, to: i32, a: i32, value: i32) {
        self.push("add M si", &[to, a, value]);
    }

    pub fn mul(&mut self, to: i32, a: i32, b: i32) {
        self.push("mul M", &[to, a, b]);
    }

    pub fn below(&mut self, to: i32, a: i32, limit: u32) {
        self.push("cmpult M zi", &[to, a, limit as i32]);
    }
}
