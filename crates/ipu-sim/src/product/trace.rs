//! Following code with symbols for values.
//!
//! Input: lines. Output: which words are loaded, multiplied and stored, and in which order.
//! Invariants: both slots of a bundle read the symbols before it; what is not understood ends the
//! trace.
//! Not here: what the words mean (see `plan`).

use ipu_target::amp::tamp_phase;

use super::plan::{Address, ROW};
use crate::code::Line;
use crate::exec::{AluOp, LoadOp, MatrixOp, PaceOp};
use crate::op::{Micro, Mode4, Op};

/// What an A register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// What it held before.
    Entry,
    Constant(u32),
    /// Half of a loaded word of eight bytes.
    Load {
        load: usize,
        half: u8,
    },
    /// Half of what a matrix instruction gave.
    Result {
        amp: usize,
        half: u8,
    },
}

/// What a pair of A registers holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    Zero,
    Load(usize),
    Result(usize),
}

/// A distance: words of eight bytes, and rows of a stream whose rows lie apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub words: i32,
    pub rows: i32,
}

impl Step {
    pub fn minus(self, other: Step) -> Step {
        Step {
            words: self.words - other.words,
            rows: self.rows - other.rows,
        }
    }

    pub fn plus(self, other: Step) -> Step {
        Step {
            words: self.words + other.words,
            rows: self.rows + other.rows,
        }
    }
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Direct(Address),
    /// A distance from where a packed pointer began.
    Packed {
        slot: usize,
        step: Step,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub time: u32,
    pub place: Place,
    /// The first half of 16 bytes.
    pub wide: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub time: u32,
    pub place: Place,
    pub value: Pair,
}

/// Operands of a matrix instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amp {
    pub left: Pair,
    pub partials: Pair,
}

/// Packed pointers since they were made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointers {
    pub register: u8,
    pub start: [Address; 3],
    pub steps: [Step; 3],
}

/// The stride field by which a pointer comes from the last word of a row to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    pub address: Address,
    /// As an instruction selects it.
    pub selection: u32,
}

pub(super) struct Trace {
    m: [Option<Address>; 16],
    pub a: [Word; 16],
    pub packed: Option<Pointers>,
    /// Pointers that move at all.
    pub moving: [bool; 3],
    pub stride: Option<Stride>,
    /// Pointers that move by the stride.
    pub strided: [bool; 3],
    pub op: Option<MatrixOp>,
    pub amps: Vec<Amp>,
    pub loads: Vec<Load>,
    pub stores: Vec<Store>,
    /// The register that says what is cleared.
    pub clear: u8,
    time: u32,
}

impl Trace {
    pub fn new(clear: u8) -> Trace {
        let entry = |register: usize| Address {
            registers: if register == 15 { 0 } else { 1 << register },
            offset: 0,
        };
        let mut a = [Word::Entry; 16];
        a[14] = Word::Constant(0);
        a[15] = Word::Constant(0);
        Trace {
            m: std::array::from_fn(|register| Some(entry(register))),
            a,
            packed: None,
            moving: [false; 3],
            stride: None,
            strided: [false; 3],
            op: None,
            amps: Vec::new(),
            loads: Vec::new(),
            stores: Vec::new(),
            clear,
            time: 0,
        }
    }

    /// The sum that an M register holds.
    pub fn address(&self, register: u8) -> Option<Address> {
        self.m[usize::from(register & 15)]
    }

    /// How far the packed pointers moved.
    pub fn steps(&self) -> [Step; 3] {
        self.packed.map_or_else(Default::default, |p| p.steps)
    }

    /// M registers that hold other sums than before.
    pub fn changed(&self) -> Vec<(u8, Address)> {
        let before = Trace::new(0).m;
        let registers = (0..15).zip(self.m.iter().zip(&before));
        registers
            .filter(|(_, (now, before))| now != before)
            .filter_map(|(register, (now, _))| Some((register, (*now)?)))
            .collect()
    }

    fn pair(&self, register: u8) -> Option<Pair> {
        let r = usize::from(register & 15);
        match (self.a[r], self.a[r + 1]) {
            (Word::Constant(0), Word::Constant(0)) => Some(Pair::Zero),
            (Word::Load { load, half: 0 }, second) => {
                (second == Word::Load { load, half: 1 }).then_some(Pair::Load(load))
            }
            (Word::Result { amp, half: 0 }, second) => {
                (second == Word::Result { amp, half: 1 }).then_some(Pair::Result(amp))
            }
            _ => None,
        }
    }

    fn set(&mut self, register: u8, word: Word) {
        if register < 14 {
            self.a[usize::from(register)] = word;
        }
    }

    fn set_m(&mut self, register: u8, address: Address) {
        if register != 15 {
            self.m[usize::from(register & 15)] = Some(address);
        }
    }

    /// Both slots of a line.
    pub fn bundle(&mut self, line: &Line) -> Option<()> {
        let before = self.a;
        let result = self.aux(&line.aux)?;
        self.main(&line.main, before)?;
        match result {
            Result::None => {}
            Result::Constant(value) => self.set(line.aux.r[0], Word::Constant(value)),
            Result::Amp(amp) => {
                let d = line.aux.r[0];
                self.set(d, Word::Result { amp, half: 0 });
                self.set(d + 1, Word::Result { amp, half: 1 });
            }
        }
        self.time += 1;
        Some(())
    }

    fn aux(&mut self, micro: &Micro) -> Option<Result> {
        let [_, left, partials, _] = micro.r;
        match micro.op {
            Op::Nop => Some(Result::None),
            // The accumulators are cleared once, at the beginning.
            Op::Uput if self.time == 0 => Some(Result::None),
            Op::SetA => Some(Result::Constant(micro.imm as u32)),
            Op::Matrix(op @ (MatrixOp::HalfV4 | MatrixOp::ByteV4)) => {
                let phase = usize::from(tamp_phase(micro.imm as u8));
                if *self.op.get_or_insert(op) != op || phase != self.amps.len() % ROW {
                    return None;
                }
                let (left, partials) = (self.pair(left)?, self.pair(partials)?);
                self.amps.push(Amp { left, partials });
                Some(Result::Amp(self.amps.len() - 1))
            }
            _ => None,
        }
    }

    fn main(&mut self, micro: &Micro, before: [Word; 16]) -> Option<()> {
        let [d, x, y, z] = micro.r;
        match micro.op {
            Op::Nop => {}
            Op::SetM => self.set_m(
                d,
                Address {
                    registers: 0,
                    offset: micro.imm as u32,
                },
            ),
            Op::AluImmediate(AluOp::Add) => {
                let sum = self.address(x)?.plus(micro.imm as u32);
                self.set_m(d, sum);
            }
            Op::Alu(AluOp::Add) => {
                let sum = self.address(x)?.sum(self.address(y)?)?;
                self.set_m(d, sum);
            }
            Op::TaPack => {
                let start = [self.address(x)?, self.address(y)?, self.address(z)?];
                if self.packed.is_some() || d > 10 {
                    return None;
                }
                self.packed = Some(Pointers {
                    register: d,
                    start,
                    steps: [Step::default(); 3],
                });
                self.m[usize::from(d)] = None;
                self.m[usize::from(d) + 1] = None;
            }
            Op::Load(op @ (LoadOp::A64 | LoadOp::A128), Mode4::Immediate) => {
                let address = self.address(x)?.sum(self.address(y)?)?;
                let address = address.plus(micro.imm as u32);
                let wide = op == LoadOp::A128;
                self.load(d, Place::Direct(address), wide);
                if wide {
                    self.load(d + 2, Place::Direct(address.plus(8)), false);
                }
            }
            Op::Pace(op) => self.pace(op, micro, before)?,
            _ => return None,
        }
        Some(())
    }

    fn load(&mut self, d: u8, place: Place, wide: bool) {
        let load = self.loads.len();
        let time = self.time;
        self.loads.push(Load { time, place, wide });
        self.set(d, Word::Load { load, half: 0 });
        self.set(d + 1, Word::Load { load, half: 1 });
    }

    fn pace(&mut self, op: PaceOp, micro: &Micro, before: [Word; 16]) -> Option<()> {
        let [d, source, pointers, stride] = micro.r;
        let register = self.packed?.register;
        // Through the pair that was packed.
        if pointers != register || self.m[usize::from(register)].is_some() {
            return None;
        }
        if self.m[usize::from(register) + 1].is_some() {
            return None;
        }
        let steps = self.packed?.steps;
        let place = |slot: usize| Place::Packed {
            slot,
            step: steps[slot],
        };
        let value = Trace {
            a: before,
            ..Trace::new(0)
        }
        .pair(source);
        let (first, second, stored) = match op {
            PaceOp::Load2 => (Some(d), Some(source), false),
            PaceOp::LoadStore => (Some(d), None, true),
            PaceOp::Load2Store => (Some(d), Some(d + 2), true),
            PaceOp::Store => (None, None, true),
            _ => return None,
        };
        for (slot, d) in [(0, first), (1, second)] {
            if let Some(d) = d {
                self.load(d, place(slot), false);
            }
        }
        if stored {
            self.stores.push(Store {
                time: self.time,
                place: place(2),
                value: value?,
            });
        }
        for (at, &(slot, one)) in op.uses().iter().enumerate() {
            let selection = micro.imm as u32 >> (2 * at) & 3;
            self.advance(slot, one, selection, stride)?;
        }
        Some(())
    }

    /// Move a packed pointer by a word or by the stride, of which there is one.
    fn advance(&mut self, slot: usize, one: u32, selection: u32, register: u8) -> Option<()> {
        let by = if selection == 0 {
            Step { words: 1, rows: 0 }
        } else {
            let address = self.address(register)?;
            let stride = Stride { address, selection };
            if *self.stride.get_or_insert(stride) != stride {
                return None;
            }
            self.strided[slot] = true;
            NEXT_ROW
        };
        self.moving[slot] = true;
        let step = &mut self.packed.as_mut()?.steps[slot];
        *step = step.plus(by);
        (one == 8).then_some(())
    }
}

/// From the last word of a row to the first of the next.
const NEXT_ROW: Step = Step {
    words: 1 - ROW as i32,
    rows: 1,
};

enum Result {
    None,
    Constant(u32),
    Amp(usize),
}
