//! Loads and stores, and the paced accesses through packed pointers.

use ipu_target::amp::{tapack, untapack};

use crate::context::Context;
use crate::fault::{Exec, FaultKind, Use};
use crate::memory::{Memory, check_conflict};
use crate::op::{Micro, Mode4};

/// Loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOp {
    M32,
    MS16,
    MS8,
    MZ16,
    MZ8,
    A32,
    A64,
    A128,
    /// 16 bits to both halves.
    AB16,
    /// 8 bits to all four bytes.
    AB8,
}

impl LoadOp {
    /// By mnemonic without `step` and by destination class.
    pub fn by_name(name: &str, file: &str) -> Option<LoadOp> {
        use LoadOp::*;
        Some(match (name, file) {
            ("ld32", "m") => M32,
            ("lds16", "m") => MS16,
            ("lds8", "m") => MS8,
            ("ldz16", "m") => MZ16,
            ("ldz8", "m") => MZ8,
            ("ld32", "a") => A32,
            ("ld64", "p") => A64,
            ("ld128", "q") => A128,
            ("ldb16", "a") => AB16,
            ("ldb8", "a") => AB8,
            _ => return None,
        })
    }

    pub const fn atom(self) -> u32 {
        match self {
            LoadOp::MS8 | LoadOp::MZ8 | LoadOp::AB8 => 1,
            LoadOp::MS16 | LoadOp::MZ16 | LoadOp::AB16 => 2,
            LoadOp::M32 | LoadOp::A32 => 4,
            LoadOp::A64 => 8,
            LoadOp::A128 => 16,
        }
    }
}

/// Stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOp {
    M,
    A32,
    A64,
}

impl StoreOp {
    pub fn by_name(name: &str, file: &str) -> Option<StoreOp> {
        Some(match (name, file) {
            ("st32", "m") => StoreOp::M,
            ("st32", "a") => StoreOp::A32,
            ("st64", "p") => StoreOp::A64,
            _ => return None,
        })
    }

    pub const fn atom(self) -> u32 {
        match self {
            StoreOp::M | StoreOp::A32 => 4,
            StoreOp::A64 => 8,
        }
    }
}

#[cold]
pub fn undefined_address() -> Box<FaultKind> {
    Box::new(FaultKind::Undefined(Use::Address))
}

/// The address of an access, and the post-increment carried out. Base, delta and offset are
/// `r[1..4]`.
#[inline(always)]
fn address<const DATA: bool>(
    mode: Mode4,
    atom: u32,
    micro: &Micro,
    w: &mut Context,
) -> Exec<(u32, u32)> {
    let [_, base, delta, offset] = micro.r;
    let mut address = w.m(base).wrapping_add(w.m(delta));
    let mut used = 1 << base | 1 << delta;
    let mut next = 0;
    match mode {
        Mode4::Register => {
            address = address.wrapping_add(w.m(offset).wrapping_mul(atom));
            used |= 1 << offset;
        }
        Mode4::Immediate => address = address.wrapping_add(micro.imm as u32),
        Mode4::StepRegister => {
            next = w.m(delta).wrapping_add(w.m(offset).wrapping_mul(atom));
            used |= 1 << offset;
        }
        Mode4::StepImmediate => next = w.m(delta).wrapping_add(micro.imm as u32),
    }
    if DATA && w.m_taint & used != 0 {
        return Err(undefined_address());
    }
    Ok((address, next))
}

#[inline(always)]
fn step(mode: Mode4, micro: &Micro, w: &mut Context, next: u32) {
    if matches!(mode, Mode4::StepRegister | Mode4::StepImmediate) {
        w.set_m_defined(micro.r[2], next);
    }
}

#[inline(always)]
pub fn load<const DATA: bool>(
    op: LoadOp,
    mode: Mode4,
    micro: &Micro,
    w: &mut Context,
    memory: &Memory,
) -> Exec<()> {
    let (at, next) = address::<DATA>(mode, op.atom(), micro, w)?;
    step(mode, micro, w, next);
    let d = micro.r[0];
    match op {
        LoadOp::M32 | LoadOp::MZ16 | LoadOp::MZ8 => {
            let (value, undefined) = memory.load(at, op.atom())?;
            w.set_m(d, value, undefined && DATA);
        }
        LoadOp::MS16 => {
            let (value, undefined) = memory.load(at, 2)?;
            w.set_m(d, value as u16 as i16 as u32, undefined && DATA);
        }
        LoadOp::MS8 => {
            let (value, undefined) = memory.load(at, 1)?;
            w.set_m(d, value as u8 as i8 as u32, undefined && DATA);
        }
        _ if !DATA => {}
        LoadOp::A32 => {
            let (value, undefined) = memory.load(at, 4)?;
            w.set_a32(d, value, u32::from(undefined));
        }
        LoadOp::A64 => {
            let (value, undefined) = memory.load64(at)?;
            w.set_a64(d, value, undefined);
        }
        LoadOp::A128 => {
            memory.check128(at)?;
            let (low, low_undefined) = memory.load64(at)?;
            let (high, high_undefined) = memory.load64(at + 8)?;
            w.set_a64(d, low, low_undefined);
            w.set_a64(d + 2, high, high_undefined);
        }
        LoadOp::AB16 => {
            let (value, undefined) = memory.load(at, 2)?;
            w.set_a32(d, value * 0x0001_0001, u32::from(undefined));
        }
        LoadOp::AB8 => {
            let (value, undefined) = memory.load(at, 1)?;
            w.set_a32(d, value * 0x0101_0101, u32::from(undefined));
        }
    }
    Ok(())
}

#[inline(always)]
pub fn store<const DATA: bool>(
    op: StoreOp,
    mode: Mode4,
    micro: &Micro,
    w: &mut Context,
    memory: &mut Memory,
) -> Exec<()> {
    let d = micro.r[0];
    let (value, undefined) = (w.m(d), w.m_tainted(d));
    let (at, next) = address::<DATA>(mode, op.atom(), micro, w)?;
    step(mode, micro, w, next);
    match op {
        StoreOp::M => memory.store(at, value, undefined)?,
        _ if !DATA => {}
        StoreOp::A32 => memory.store(at, w.a[usize::from(d)], w.a_taint >> d & 1 != 0)?,
        StoreOp::A64 => memory.store64(at, w.a64(d), w.a_taint2(d))?,
    }
    Ok(())
}

/// `stm32step`: the address is the base register, which is then advanced.
pub fn store_step_base(micro: &Micro, w: &mut Context, memory: &mut Memory) -> Exec<()> {
    let [d, base, stride, _] = micro.r;
    if w.m_tainted(base) | w.m_tainted(stride) {
        return Err(undefined_address());
    }
    let at = w.m(base);
    memory.store(at, w.m(d), w.m_tainted(d))?;
    w.set_m_defined(base, at.wrapping_add(w.m(stride).wrapping_mul(4)));
    Ok(())
}

/// Accesses through packed pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceOp {
    /// Two 64-bit loads.
    Load2,
    /// A 64-bit and a 32-bit load.
    Load64Load32,
    /// A 64-bit load and a 16-bit load to both halves.
    Load64Load16,
    /// A load and a store.
    LoadStore,
    /// Two loads into a quad, and a store.
    Load2Store,
    Store,
}

impl PaceOp {
    pub fn by_name(name: &str) -> Option<PaceOp> {
        use PaceOp::*;
        Some(match name {
            "ld2x64pace" => Load2,
            "ld64a32pace" => Load64Load32,
            "ld64b16pace" => Load64Load16,
            "ldst64pace" => LoadStore,
            "ld2xst64pace" => Load2Store,
            "st64pace" => Store,
            _ => return None,
        })
    }

    /// Which of the three addresses are used, in the order of the selections, and the bytes that
    /// selection 0 advances each by.
    pub const fn uses(self) -> &'static [(usize, u32)] {
        match self {
            PaceOp::Load2 => &[(0, 8), (1, 8)],
            PaceOp::Load64Load32 => &[(0, 8), (1, 4)],
            PaceOp::Load64Load16 => &[(0, 8), (1, 2)],
            PaceOp::LoadStore => &[(0, 8), (2, 8)],
            PaceOp::Load2Store => &[(0, 8), (1, 8), (2, 8)],
            PaceOp::Store => &[(2, 8)],
        }
    }
}

/// Bytes of a post-increment: selection 0 is one access, others a signed 10-bit field of the
/// stride register in units of 8 bytes.
#[inline(always)]
fn increment(selection: u32, stride: u32, one: u32) -> u32 {
    if selection == 0 {
        return one;
    }
    let field = stride >> (10 * (selection - 1));
    (((field << 22) as i32) >> 22).wrapping_mul(8) as u32
}

/// What a paced access adds to each of the three addresses.
#[inline(always)]
pub fn pace_increments(op: PaceOp, selections: u32, strides: u32) -> [u32; 3] {
    let mut by = [0; 3];
    for (i, &(which, one)) in op.uses().iter().enumerate() {
        by[which] = increment(selections >> (2 * i) & 3, strides, one);
    }
    by
}

#[inline(always)]
pub fn pace<const DATA: bool>(
    op: PaceOp,
    micro: &Micro,
    w: &mut Context,
    memory: &mut Memory,
) -> Exec<()> {
    let [d, source, pointers, stride] = micro.r;
    if DATA && w.m_taint & (3 << pointers | 1 << stride) != 0 {
        return Err(undefined_address());
    }
    let addresses = untapack([w.m(pointers), w.m(pointers + 1)]);
    let by = pace_increments(op, micro.imm as u32, w.m(stride));
    let packed = tapack(std::array::from_fn(|i| addresses[i].wrapping_add(by[i])));
    if DATA {
        access(op, [d, source], addresses, w, memory)?;
    }
    w.set_m_defined(pointers, packed[0]);
    w.set_m_defined(pointers + 1, packed[1]);
    Ok(())
}

#[inline(always)]
fn access(
    op: PaceOp,
    [d, source]: [u8; 2],
    [a0, a1, a2]: [u32; 3],
    w: &mut Context,
    memory: &mut Memory,
) -> Exec<()> {
    match op {
        PaceOp::Load2 => {
            check_conflict(a0, a1)?;
            let (first, first_undefined) = memory.load64(a0)?;
            let (second, second_undefined) = memory.load64(a1)?;
            w.set_a64(d, first, first_undefined);
            w.set_a64(source, second, second_undefined);
        }
        PaceOp::Load64Load32 | PaceOp::Load64Load16 => {
            check_conflict(a0, a1)?;
            let (first, first_undefined) = memory.load64(a0)?;
            let (value, undefined) = if op == PaceOp::Load64Load32 {
                memory.load(a1, 4)?
            } else {
                let (value, undefined) = memory.load(a1, 2)?;
                (value * 0x0001_0001, undefined)
            };
            w.set_a64(d, first, first_undefined);
            w.set_a32(source, value, u32::from(undefined));
        }
        PaceOp::LoadStore => {
            check_conflict(a0, a2)?;
            let (value, undefined) = memory.load64(a0)?;
            memory.store64(a2, w.a64(source), w.a_taint2(source))?;
            w.set_a64(d, value, undefined);
        }
        PaceOp::Load2Store => {
            check_conflict(a0, a1)?;
            check_conflict(a0, a2)?;
            check_conflict(a1, a2)?;
            let (first, first_undefined) = memory.load64(a0)?;
            let (second, second_undefined) = memory.load64(a1)?;
            memory.store64(a2, w.a64(source), w.a_taint2(source))?;
            w.set_a64(d, first, first_undefined);
            w.set_a64(d + 2, second, second_undefined);
        }
        PaceOp::Store => memory.store64(a2, w.a64(source), w.a_taint2(source))?,
    }
    Ok(())
}
