//! Repeat bodies in closed form, for runs without data.
//!
//! A body whose main slots only access the A file through advancing pointers changes M registers
//! by the same amount in every iteration.
//! Invariants: the registers after [`advance`] are those that the loop would leave.
//! Not here: anything that computes values.

use ipu_target::amp::{ADDRESS_BITS, tapack, untapack};

use crate::code::Line;
use crate::context::Context;
use crate::exec::LoadOp;
use crate::exec::StoreOp;
use crate::exec::pace_increments;
use crate::op::{Micro, Mode4, Op};

fn lines(body: &[Line]) -> impl Iterator<Item = &Micro> {
    body.iter().step_by(2).map(|line| &line.main)
}

/// Whether a body does nothing but advance pointers by the same amount in every iteration.
pub fn can_advance(body: &[Line]) -> bool {
    let (mut strides, mut written) = (0u32, 0u32);
    for micro in lines(body) {
        let Some((stride, pointers)) = registers(micro) else {
            return false;
        };
        strides |= stride;
        written |= pointers;
    }
    // The zero register is read as zero whatever is written to it.
    strides & written & 0x7fff == 0
}

/// Advance the pointers of `count` iterations at once, where [`can_advance`] holds.
pub fn advance(body: &[Line], count: u32, w: &mut Context) {
    for micro in lines(body) {
        step(micro, count, w);
    }
}

/// Registers that hold strides and registers that advance, as masks; nothing when the operation
/// does more than advance pointers.
fn registers(micro: &Micro) -> Option<(u32, u32)> {
    let [_, _, delta, offset] = micro.r;
    match micro.op {
        Op::Nop => Some((0, 0)),
        Op::Load(op, mode) if !is_main_load(op) => Some(addressing(mode, delta, offset)),
        Op::Store(StoreOp::A32 | StoreOp::A64, mode) => Some(addressing(mode, delta, offset)),
        Op::Pace(_) => Some((1 << offset, 3 << delta)),
        _ => None,
    }
}

fn is_main_load(op: LoadOp) -> bool {
    use LoadOp::*;
    matches!(op, M32 | MS16 | MS8 | MZ16 | MZ8)
}

fn addressing(mode: Mode4, delta: u8, offset: u8) -> (u32, u32) {
    match mode {
        Mode4::Register | Mode4::Immediate => (0, 0),
        Mode4::StepRegister => (1 << offset, 1 << delta),
        Mode4::StepImmediate => (0, 1 << delta),
    }
}

fn step(micro: &Micro, count: u32, w: &mut Context) {
    let [_, _, delta, offset] = micro.r;
    let (atom, mode) = match micro.op {
        Op::Load(op, mode) => (op.atom(), mode),
        Op::Store(op, mode) => (op.atom(), mode),
        Op::Pace(op) => {
            let mut addresses = untapack([w.m(delta), w.m(delta + 1)]);
            let by = pace_increments(op, micro.imm as u32, w.m(offset));
            for (address, by) in addresses.iter_mut().zip(by) {
                let mask = (1 << ADDRESS_BITS) - 1;
                *address = address.wrapping_add(by.wrapping_mul(count)) & mask;
            }
            let packed = tapack(addresses);
            w.set_m_defined(delta, packed[0]);
            w.set_m_defined(delta + 1, packed[1]);
            return;
        }
        _ => return,
    };
    let by = match mode {
        Mode4::Register | Mode4::Immediate => return,
        Mode4::StepRegister => w.m(offset).wrapping_mul(atom),
        Mode4::StepImmediate => micro.imm as u32,
    };
    w.set_m_defined(delta, w.m(delta).wrapping_add(by.wrapping_mul(count)));
}
