//! Types of the instruction table, and encoding.
//!
//! Input: a form and its operand values. Output: a 32-bit word.
//! Invariants: operand values are in text order; a register operand is the encoded register
//! number (a pair its even first register, a quad a multiple of four); `Iz12` is the full
//! 32-bit constant whose low 20 bits are zero; a branch operand is the word address held by the
//! field. Unused operands are zero.
//! Not here: text (see `text`) and decoding (see `decode`).

use crate::table::FORMS;
use thiserror::Error;

/// Most operands that one form has; `sendpicp` needs all with its inline word.
pub const OPERANDS_MAX: usize = 6;

/// Operand values in text order.
pub type Operands = [i32; OPERANDS_MAX];

/// The co-issue bit: one on both words of a bundle.
pub const COISSUE_BIT: u32 = 1 << 31;

/// Execution mode of a context.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Supervisor,
    Worker,
}

impl Mode {
    /// The mode that is not this one.
    pub fn other(self) -> Mode {
        match self {
            Mode::Supervisor => Mode::Worker,
            Mode::Worker => Mode::Supervisor,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Mode::Supervisor => "supervisor",
            Mode::Worker => "worker",
        }
    }
}

/// The modes in which a form may execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeSet {
    Supervisor,
    Worker,
    Both,
}

impl ModeSet {
    pub fn contains(self, mode: Mode) -> bool {
        match self {
            ModeSet::Both => true,
            ModeSet::Supervisor => mode == Mode::Supervisor,
            ModeSet::Worker => mode == Mode::Worker,
        }
    }
}

/// Issue slot: the main slot takes the first word of a bundle, the auxiliary slot the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Main,
    Aux,
}

/// First architecture of a form. `Observed` marks supervisor exchange words that no public
/// tool names; they are known from working programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    All,
    Ipu2,
    Ipu21,
    Observed,
}

/// Which part of the first source is broadcast to all lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast {
    /// `:B`, a whole F32.
    B,
    /// `:BL`, the lower F16.
    Lower,
    /// `:BU`, the upper F16.
    Upper,
}

/// Suffix of a register that the instruction also updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    /// `+=`
    PlusEqual,
    /// `++`
    PlusPlus,
    /// `>>`
    Shift,
    /// `@`
    At,
}

/// Operand class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    M,
    A,
    MPair,
    APair,
    AQuad,
    ABroadcast(Broadcast),
    MPost(Post),
    MPairPost(Post),
    /// Zero-extended immediate of so many bits.
    Zi(u8),
    /// Sign-extended immediate of so many bits.
    Si(u8),
    /// Twelve bits that stand at the top of a 32-bit constant.
    Iz12,
    /// CSR number; upper CSRs are held as number minus 256.
    Csr8,
    /// Branch target as a word address.
    Br19,
    /// Call target as a word address.
    Call20,
}

impl Class {
    /// Whether the operand is a register of either file.
    pub fn is_register(self) -> bool {
        !matches!(
            self,
            Class::Zi(_) | Class::Si(_) | Class::Iz12 | Class::Csr8 | Class::Br19 | Class::Call20
        )
    }

    /// Whether the operand is in the A register file.
    pub fn is_a_register(self) -> bool {
        matches!(
            self,
            Class::A | Class::APair | Class::AQuad | Class::ABroadcast(_)
        )
    }

    /// Number of consecutive registers, zero for an immediate.
    pub fn register_count(self) -> u8 {
        match self {
            Class::M | Class::A | Class::ABroadcast(_) | Class::MPost(_) => 1,
            Class::MPair | Class::APair | Class::MPairPost(_) => 2,
            Class::AQuad => 4,
            _ => 0,
        }
    }

    /// Inclusive range of legal values, for immediates as signed 64-bit numbers.
    pub fn range(self) -> (i64, i64) {
        match self {
            Class::Zi(bits) => (0, (1 << bits) - 1),
            Class::Si(bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            Class::Iz12 => (i32::MIN as i64, i32::MAX as i64),
            Class::Csr8 => (0, 255),
            Class::Br19 => (0, (1 << 19) - 1),
            Class::Call20 => (0, (1 << 20) - 1),
            Class::AQuad => (0, 12),
            Class::MPair | Class::APair | Class::MPairPost(_) => (0, 14),
            Class::M | Class::A | Class::ABroadcast(_) | Class::MPost(_) => (0, 15),
        }
    }

    fn check(self, value: i32) -> bool {
        let (lo, hi) = self.range();
        let step = match self {
            Class::MPair | Class::APair | Class::MPairPost(_) => 2,
            Class::AQuad => 4,
            Class::Iz12 => 1 << 20,
            _ => 1,
        };
        let value = i64::from(value);
        value >= lo && value <= hi && value % step == 0
    }
}

/// A slice of an operand: its bits `hi..=lo` stand at bit `at` of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub hi: u8,
    pub lo: u8,
    pub at: u8,
}

/// One operand of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    pub class: Class,
    pub fields: &'static [Field],
}

impl Operand {
    /// The operand value held in `word`, before any check of its class.
    pub(crate) fn extract(&self, word: u32) -> i32 {
        let mut raw = 0u32;
        for field in self.fields {
            let width = field.hi - field.lo + 1;
            raw |= ((word >> field.at) & ((1 << width) - 1)) << field.lo;
        }
        match self.class {
            Class::Si(bits) => {
                let shift = 32 - u32::from(bits);
                ((raw << shift) as i32) >> shift
            }
            Class::Iz12 => (raw << 20) as i32,
            _ => raw as i32,
        }
    }

    fn insert(&self, value: i32) -> u32 {
        let raw = match self.class {
            Class::Iz12 => (value as u32) >> 20,
            _ => value as u32,
        };
        let mut word = 0;
        for field in self.fields {
            let width = field.hi - field.lo + 1;
            word |= ((raw >> field.lo) & ((1 << width) - 1)) << field.at;
        }
        word
    }
}

/// Issue cost class of a form; see [`crate::issue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IssueClass {
    Plain,
    F32Exp,
    F32Log,
    F32Tanh,
    F32Sigm,
    F32Div,
    F32Oorx,
    F32Oox,
    F32Sqrt,
    F16v2Exp,
    F16v2Log,
    F16v2Sigm,
    F16v2Tanh,
}

/// One row of the instruction table.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Stable name of the row: mnemonic and operand shape.
    pub key: &'static str,
    pub mnemonic: &'static str,
    /// Fixed bits, operand fields zero. Bit 31 is set where the word must have it set.
    pub value: u32,
    /// Mask of the fixed bits, bit 31 left out.
    pub mask: u32,
    /// Operands in text order.
    pub operands: &'static [Operand],
    pub slot: Slot,
    pub mode: ModeSet,
    pub arch: Arch,
    /// Branches, calls, exits and `rpt`.
    pub control: bool,
    /// CSR accesses, traps, launches and syncs.
    pub system: bool,
    /// Whether the form may stand in a bundle.
    pub can_coissue: bool,
    /// Bit i: operand i is written.
    pub writes: u8,
    /// Bit i: operand i is read.
    pub reads: u8,
    pub issue: IssueClass,
}

impl Form {
    /// Whether `word` has the fixed bits of this form; bit 31 included.
    pub fn matches(&self, word: u32) -> bool {
        let fixed31 = !self.can_coissue && (word ^ self.value) & COISSUE_BIT != 0;
        word & self.mask == self.value & self.mask && !fixed31
    }

    /// Number of words: two for `sendpicp` with its inline control word.
    pub fn words(&self) -> usize {
        1 + usize::from(self.value & COISSUE_BIT != 0)
    }

    /// Bit masks (M file, A file) of the registers among the operands selected by `select`.
    pub fn registers(&self, select: u8, ops: &Operands) -> (u16, u16) {
        let (mut m, mut a) = (0u16, 0u16);
        for (i, operand) in self.operands.iter().enumerate() {
            let count = operand.class.register_count();
            if select & (1 << i) == 0 || count == 0 {
                continue;
            }
            let bits = ((((1u32 << count) - 1) << ops[i]) & 0xffff) as u16;
            if operand.class.is_a_register() {
                a |= bits;
            } else {
                m |= bits;
            }
        }
        (m, a)
    }

    /// The registers written, as (M file, A file) bit masks.
    pub fn written(&self, ops: &Operands) -> (u16, u16) {
        self.registers(self.writes, ops)
    }
}

/// Index of a form in [`FORMS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FormId(pub u16);

impl FormId {
    pub fn form(self) -> &'static Form {
        &FORMS[usize::from(self.0)]
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The form with this key.
    pub fn by_key(key: &str) -> Option<FormId> {
        let index = FORMS.binary_search_by(|form| form.key.cmp(key)).ok()?;
        Some(FormId(index as u16))
    }

    /// All forms of a mnemonic, in table order.
    pub fn by_mnemonic(mnemonic: &str) -> impl Iterator<Item = FormId> {
        let start = FORMS.partition_point(|form| form.mnemonic < mnemonic);
        let count = FORMS[start..]
            .iter()
            .take_while(|form| form.mnemonic == mnemonic)
            .count();
        (start..start + count).map(|index| FormId(index as u16))
    }

    /// Every form.
    pub fn all() -> impl Iterator<Item = FormId> {
        (0..FORMS.len()).map(|index| FormId(index as u16))
    }
}

/// An operand value that its field cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("operand {} of `{}` cannot be {value}", index + 1, form.form().mnemonic)]
pub struct EncodeError {
    pub form: FormId,
    pub index: usize,
    pub value: i32,
}

/// Encode `form` with the co-issue bit clear (or as the form fixes it).
pub fn encode(form: FormId, ops: &Operands) -> Result<u32, EncodeError> {
    let row = form.form();
    let mut word = row.value;
    for (index, operand) in row.operands.iter().enumerate() {
        let value = ops[index];
        if !operand.class.check(value) {
            return Err(EncodeError { form, index, value });
        }
        word |= operand.insert(value);
    }
    Ok(word)
}
