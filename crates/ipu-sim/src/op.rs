//! Micro-operations: instructions with their operands resolved.
//!
//! Input: decoded words. Output: a compact operation for the interpreter.
//! Invariants: register operands stand in text order in `r`; immediates are scaled to bytes for
//! accesses and are byte addresses for branches. Every form has an operation; a form without
//! semantics becomes [`Op::Unimplemented`], which faults when it is executed.
//! Not here: what operations do (see `exec`), and how words pair up (see `code`).

use ipu_isa::form::Class;
use ipu_isa::{Decoded, Form, Mode, Slot};

use crate::exec::{
    AccOp, AluOp, BitOp, BranchOp, ConvertOp, HalfOp, LoadOp, MatrixOp, PaceOp, SingleOp, StoreOp,
    UnaryOp,
};

/// How a load or store forms its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode4 {
    /// base + delta + register * atom
    Register,
    /// base + delta + immediate
    Immediate,
    /// base + delta, then delta += register * atom
    StepRegister,
    /// base + delta, then delta += immediate
    StepImmediate,
}

/// Broadcast of the first source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    No,
    Lower,
    Upper,
    Word,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Nop,
    // main slot, plain
    SetM,
    Alu(AluOp),
    AluImmediate(AluOp),
    Unary(UnaryOp),
    MovNotZero,
    Atom,
    Load(LoadOp, Mode4),
    Store(StoreOp, Mode4),
    StoreStepBase,
    TaPack,
    Pace(PaceOp),
    // main slot, control
    Branch(BranchOp),
    Exit,
    RepeatRegister,
    RepeatImmediate,
    Get,
    Put,
    Trap,
    Run,
    RunAll,
    PutCoefficients64,
    PutCoefficients128,
    Sync,
    Sans,
    /// An instruction of a timed row.
    Row,
    // auxiliary slot
    SetA,
    Half(HalfOp, Spread),
    Single(SingleOp, Spread),
    Bits(BitOp, Spread),
    BitsImmediate(BitOp),
    Convert(ConvertOp),
    Acc(AccOp),
    Matrix(MatrixOp),
    Uget,
    Uput,
    /// `imm` is the form number.
    Unimplemented,
    /// A worker would write a register that is read-only to it, `r[0]`.
    ReadOnly,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micro {
    pub op: Op,
    /// A registers written by an auxiliary operation: 0, 1 or 2.
    pub width: u8,
    pub r: [u8; 4],
    pub imm: i32,
}

impl Micro {
    pub const NOP: Micro = Micro {
        op: Op::Nop,
        width: 0,
        r: [0; 4],
        imm: 0,
    };
}

/// Whether an operation changes control flow or system state and so needs the context's loop.
pub fn is_control(op: Op) -> bool {
    matches!(
        op,
        Op::Branch(_)
            | Op::Exit
            | Op::RepeatRegister
            | Op::RepeatImmediate
            | Op::Get
            | Op::Put
            | Op::Trap
            | Op::Run
            | Op::RunAll
            | Op::PutCoefficients64
            | Op::PutCoefficients128
            | Op::Sync
            | Op::Sans
            | Op::Row
    )
}

/// Resolve a decoded word.
pub fn lower(decoded: &Decoded, mode: Mode) -> Micro {
    let form = decoded.form();
    let mut micro = operands(form, decoded);
    micro.op = operation(form, &mut micro);
    if micro.op == Op::Unimplemented {
        micro.imm = decoded.form.index() as i32;
    }
    if micro.op == Op::SetM && micro.r[0] == 14 || micro.op == Op::SetA && micro.r[0] == 13 {
        micro.op = Op::Nop;
        micro.width = 0;
    }
    let (written, _) = form.written(&decoded.ops);
    if mode == Mode::Worker && written & 0x3000 != 0 {
        micro.op = Op::ReadOnly;
        micro.r[0] = written.trailing_zeros() as u8;
    }
    micro
}

fn operands(form: &Form, decoded: &Decoded) -> Micro {
    let mut micro = Micro::NOP;
    let (mut registers, mut immediates) = (0, 0);
    for (operand, &value) in form.operands.iter().zip(&decoded.ops) {
        if operand.class.is_register() {
            if registers < micro.r.len() {
                micro.r[registers] = value as u8;
            }
            registers += 1;
            continue;
        }
        let value = match operand.class {
            Class::Br19 => value << 2,
            Class::Call20 => (value & 0x7_ffff) << 2,
            _ => value,
        };
        if immediates == 0 {
            micro.imm = value;
        } else {
            micro.r[3] = value as u8;
        }
        immediates += 1;
    }
    if form.slot == Slot::Aux && form.writes & 1 != 0 {
        micro.width = form.operands[0].class.register_count();
    }
    micro
}

fn spread(form: &Form) -> Spread {
    match form.key.rsplit_once(':') {
        Some((_, "BL")) => Spread::Lower,
        Some((_, "BU")) => Spread::Upper,
        Some((_, "B")) => Spread::Word,
        _ => Spread::No,
    }
}

fn operation(form: &Form, micro: &mut Micro) -> Op {
    match form.slot {
        Slot::Main => main(form, micro),
        Slot::Aux => aux(form),
    }
    .unwrap_or(Op::Unimplemented)
}

fn main(form: &Form, micro: &mut Micro) -> Option<Op> {
    let shape = form.key.split_once(' ').map_or("", |(_, shape)| shape);
    if let Some(op) = AluOp::by_name(form.mnemonic) {
        return Some(match (shape, op) {
            ("M", _) => Op::Alu(op),
            (_, AluOp::Sub) => Op::AluImmediate(AluOp::SubFrom),
            _ => Op::AluImmediate(op),
        });
    }
    if let Some(op) = UnaryOp::by_name(form.mnemonic) {
        return Some(Op::Unary(op));
    }
    if let Some(op) = BranchOp::by_name(form.mnemonic) {
        return Some(Op::Branch(op));
    }
    if let Some(op) = access(form, shape, micro) {
        return Some(op);
    }
    Some(match form.mnemonic {
        "setzi" => Op::SetM,
        "movz" => Op::MovNotZero,
        "atom" => Op::Atom,
        "tapack" => Op::TaPack,
        "exitneg" | "exitnz" | "exitpos" | "exitz" => Op::Exit,
        "rpt" if shape == "M r" => Op::RepeatRegister,
        "rpt" => Op::RepeatImmediate,
        "get" => Op::Get,
        "put" => Op::Put,
        "trap" => Op::Trap,
        "run" => Op::Run,
        "runall" => Op::RunAll,
        "ld64putcs" => Op::PutCoefficients64,
        "ld128putcs" => Op::PutCoefficients128,
        "sync" => Op::Sync,
        "sans" => Op::Sans,
        "delay" | "delaypic" | "delayxpic" | "send" | "sendoff" | "sendpic" | "sendpicp" => Op::Row,
        _ => return None,
    })
}

fn access(form: &Form, shape: &str, micro: &mut Micro) -> Option<Op> {
    if let Some(op) = PaceOp::by_name(form.mnemonic) {
        if op == PaceOp::Store {
            micro.r = [micro.r[0], micro.r[0], micro.r[1], micro.r[2]];
        }
        return Some(Op::Pace(op));
    }
    match form.mnemonic {
        "stm32" => {
            micro.r = [micro.r[0], micro.r[1], 15, micro.r[2]];
            return Some(Op::Store(StoreOp::M, Mode4::Register));
        }
        "stm32step" => return Some(Op::StoreStepBase),
        _ => {}
    }
    let (file, addressing) = shape.split_once(' ')?;
    let stem = form.mnemonic.strip_suffix("step").unwrap_or(form.mnemonic);
    let (op, atom) = if let Some(load) = LoadOp::by_name(stem, file) {
        (None, (load, load.atom()))
    } else {
        let store = StoreOp::by_name(stem, file)?;
        (Some(store), (LoadOp::M32, store.atom()))
    };
    let (load, atom) = atom;
    let mode = match addressing {
        "rrr" => Mode4::Register,
        "rri" => Mode4::Immediate,
        "r" => Mode4::StepRegister,
        "si" => Mode4::StepImmediate,
        _ => return None,
    };
    micro.imm *= atom as i32;
    Some(op.map_or(Op::Load(load, mode), |store| Op::Store(store, mode)))
}

fn aux(form: &Form) -> Option<Op> {
    let spread = spread(form);
    let name = form.mnemonic;
    if let Some(op) = BitOp::by_name(name) {
        let immediate = form.key.ends_with("iz") || form.key.ends_with("zi");
        return Some(if immediate {
            Op::BitsImmediate(op)
        } else {
            Op::Bits(op, spread)
        });
    }
    if let Some(op) = AccOp::by_name(name) {
        return Some(Op::Acc(op));
    }
    if let Some(op) = MatrixOp::by_name(name) {
        return Some(Op::Matrix(op));
    }
    if let Some(op) = ConvertOp::by_name(name) {
        return Some(Op::Convert(op));
    }
    let half = name.strip_prefix("f16v2").or(name.strip_prefix("f16v4"));
    if let Some(op) = half.and_then(HalfOp::by_name) {
        return Some(Op::Half(op, spread));
    }
    let single = name.strip_prefix("f32v2").or(name.strip_prefix("f32"));
    if let Some(op) = single.and_then(SingleOp::by_name) {
        return Some(Op::Single(op, spread));
    }
    Some(match name {
        "setzi" => Op::SetA,
        "uget" => Op::Uget,
        "uput" => Op::Uput,
        _ => return None,
    })
}
