//! Integer operations of the M file, and branch conditions.

/// Operations on two M operands, the second a register or an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AluOp {
    Add,
    Sub,
    /// Second less first: the immediate form of `sub`.
    SubFrom,
    Mul,
    And,
    Andc,
    Or,
    Xor,
    Xnor,
    CmpEq,
    CmpNe,
    CmpSlt,
    CmpUlt,
    Max,
    Min,
    Shl,
    Shr,
    Shrs,
    Bits(super::BitOp),
}

impl AluOp {
    pub fn by_name(name: &str) -> Option<AluOp> {
        use AluOp::*;
        Some(match name {
            "add" => Add,
            "sub" => Sub,
            "mul" => Mul,
            "and" => And,
            "andc" => Andc,
            "or" => Or,
            "xor" => Xor,
            "xnor" => Xnor,
            "cmpeq" => CmpEq,
            "cmpne" => CmpNe,
            "cmpslt" => CmpSlt,
            "cmpult" => CmpUlt,
            "max" => Max,
            "min" => Min,
            "shl" => Shl,
            "shr" => Shr,
            "shrs" => Shrs,
            "roll16" | "roll8l" | "roll8r" | "shuf8x8hi" | "shuf8x8lo" | "sort4x16hi"
            | "sort4x16lo" | "sort8x8hi" | "sort8x8lo" => Bits(super::BitOp::by_name(name)?),
            _ => return None,
        })
    }
}

#[inline(always)]
pub fn alu(op: AluOp, x: u32, y: u32) -> u32 {
    match op {
        AluOp::Add => x.wrapping_add(y),
        AluOp::Sub => x.wrapping_sub(y),
        AluOp::SubFrom => y.wrapping_sub(x),
        AluOp::Mul => x.wrapping_mul(y),
        AluOp::And => x & y,
        AluOp::Andc => x & !y,
        AluOp::Or => x | y,
        AluOp::Xor => x ^ y,
        AluOp::Xnor => !(x ^ y),
        AluOp::CmpEq => u32::from(x == y),
        AluOp::CmpNe => u32::from(x != y),
        AluOp::CmpSlt => u32::from((x as i32) < y as i32),
        AluOp::CmpUlt => u32::from(x < y),
        AluOp::Max => (x as i32).max(y as i32) as u32,
        AluOp::Min => (x as i32).min(y as i32) as u32,
        AluOp::Shl => x.checked_shl(y).unwrap_or(0),
        AluOp::Shr => x.checked_shr(y).unwrap_or(0),
        AluOp::Shrs => ((x as i32) >> y.min(31)) as u32,
        AluOp::Bits(op) => super::bits::apply(op, u64::from(x), u64::from(y)) as u32,
    }
}

/// Operations on one M operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    Abs,
    BitRev8,
    Clz,
    Cms,
    Popc,
    Sort8,
    Swap8,
}

impl UnaryOp {
    pub fn by_name(name: &str) -> Option<UnaryOp> {
        use UnaryOp::*;
        Some(match name {
            "abs" => Abs,
            "bitrev8" => BitRev8,
            "clz" => Clz,
            "cms" => Cms,
            "popc" => Popc,
            "sort8" => Sort8,
            "swap8" => Swap8,
            _ => return None,
        })
    }
}

#[inline(always)]
pub fn unary(op: UnaryOp, x: u32) -> u32 {
    match op {
        UnaryOp::Abs => (x as i32).wrapping_abs() as u32,
        UnaryOp::BitRev8 => x.reverse_bits().swap_bytes(),
        UnaryOp::Clz => x.leading_zeros(),
        // Bits at the top that equal the sign, the sign itself included.
        UnaryOp::Cms => (x ^ ((x as i32) >> 31) as u32).leading_zeros(),
        UnaryOp::Popc => x.count_ones(),
        UnaryOp::Sort8 => super::bits::apply(super::BitOp::Sort8, u64::from(x), 0) as u32,
        UnaryOp::Swap8 => super::bits::apply(super::BitOp::Swap8, u64::from(x), 0) as u32,
    }
}

/// Branches; the context's loop carries them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchOp {
    Register,
    Immediate,
    Negative,
    NotZero,
    Positive,
    Zero,
    NotZeroDecrement,
    Call,
}

impl BranchOp {
    pub fn by_name(name: &str) -> Option<BranchOp> {
        use BranchOp::*;
        Some(match name {
            "br" => Register,
            "bri" => Immediate,
            "brneg" => Negative,
            "brnz" => NotZero,
            "brpos" => Positive,
            "brz" => Zero,
            "brnzdec" => NotZeroDecrement,
            "call" => Call,
            _ => return None,
        })
    }

    /// Whether a conditional branch on this value is taken.
    #[inline(always)]
    pub fn taken(self, value: u32) -> bool {
        match self {
            BranchOp::Register | BranchOp::Immediate | BranchOp::Call => true,
            BranchOp::Negative => (value as i32) < 0,
            BranchOp::Positive => (value as i32) >= 0,
            BranchOp::NotZero | BranchOp::NotZeroDecrement => value != 0,
            BranchOp::Zero => value == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic() {
        assert_eq!(alu(AluOp::Sub, 5, 7), u32::MAX - 1);
        assert_eq!(alu(AluOp::SubFrom, 5, 7), 2);
        assert_eq!(alu(AluOp::CmpSlt, u32::MAX, 0), 1);
        assert_eq!(alu(AluOp::CmpUlt, u32::MAX, 0), 0);
        assert_eq!(alu(AluOp::Min, u32::MAX, 1), u32::MAX);
        assert_eq!(alu(AluOp::Shl, 1, 32), 0);
        assert_eq!(alu(AluOp::Shrs, 0x8000_0000, 40), u32::MAX);
        assert_eq!(alu(AluOp::Mul, 0x10001, 0x10001), 0x20001);
        assert_eq!(alu(AluOp::Andc, 0xff, 0x0f), 0xf0);
    }

    #[test]
    fn one_operand() {
        assert_eq!(unary(UnaryOp::BitRev8, 0x0180_0300), 0x8001_c000);
        assert_eq!(unary(UnaryOp::Cms, 0), 32);
        assert_eq!(unary(UnaryOp::Cms, 0xffff_0000), 16);
        assert_eq!(unary(UnaryOp::Abs, u32::MAX), 1);
        assert_eq!(unary(UnaryOp::Swap8, 0x0403_0201), 0x0304_0102);
    }
}
