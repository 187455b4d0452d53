//! Bit operations and permutations of both files.

use crate::context::Context;
use crate::op::Spread;

/// Operations that only move or combine bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    And,
    Andc,
    Or,
    Not,
    Roll16,
    Roll32,
    Roll8l,
    Roll8r,
    Shuf8x8Lo,
    Shuf8x8Hi,
    Sort4x16Lo,
    Sort4x16Hi,
    Sort4x32Lo,
    Sort4x32Hi,
    Sort8x8Lo,
    Sort8x8Hi,
    Sort8,
    Swap8,
}

impl BitOp {
    pub fn by_name(name: &str) -> Option<BitOp> {
        use BitOp::*;
        Some(match name {
            "and" | "and64" => And,
            "andc" | "andc64" => Andc,
            "or" | "or64" => Or,
            "not" | "not64" => Not,
            "roll16" => Roll16,
            "roll32" => Roll32,
            "roll8l" => Roll8l,
            "roll8r" => Roll8r,
            "shuf8x8lo" => Shuf8x8Lo,
            "shuf8x8hi" => Shuf8x8Hi,
            "sort4x16lo" => Sort4x16Lo,
            "sort4x16hi" => Sort4x16Hi,
            "sort4x32lo" => Sort4x32Lo,
            "sort4x32hi" => Sort4x32Hi,
            "sort8x8lo" => Sort8x8Lo,
            "sort8x8hi" => Sort8x8Hi,
            "sort8" => Sort8,
            "swap8" => Swap8,
            _ => return None,
        })
    }
}

/// Bytes of the words `x` (0 to 3) and `y` (4 to 7), picked in order.
#[inline(always)]
fn pick(x: u64, y: u64, order: [u32; 4]) -> u64 {
    let both = x & 0xffff_ffff | y << 32;
    let mut result = 0;
    for (i, byte) in order.into_iter().enumerate() {
        result |= (both >> (8 * byte) & 0xff) << (8 * i);
    }
    result
}

#[inline(always)]
pub fn apply(op: BitOp, x: u64, y: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    match op {
        BitOp::And => x & y,
        BitOp::Andc => x & !y,
        BitOp::Or => x | y,
        BitOp::Not => !x,
        BitOp::Roll16 => pick(x, y, [2, 3, 4, 5]),
        BitOp::Roll32 => x >> 32 | y << 32,
        BitOp::Roll8l => pick(x, y, [3, 4, 5, 6]),
        BitOp::Roll8r => pick(x, y, [1, 2, 3, 4]),
        BitOp::Shuf8x8Lo => pick(x, y, [0, 4, 1, 5]),
        BitOp::Shuf8x8Hi => pick(x, y, [2, 6, 3, 7]),
        BitOp::Sort4x16Lo => pick(x, y, [0, 1, 4, 5]),
        BitOp::Sort4x16Hi => pick(x, y, [2, 3, 6, 7]),
        BitOp::Sort4x32Lo => x & LOW | y << 32,
        BitOp::Sort4x32Hi => x >> 32 | y & !LOW,
        BitOp::Sort8x8Lo => pick(x, y, [0, 2, 4, 6]),
        BitOp::Sort8x8Hi => pick(x, y, [1, 3, 5, 7]),
        BitOp::Sort8 => pick(x, y, [0, 2, 1, 3]),
        BitOp::Swap8 => pick(x, y, [1, 0, 3, 2]),
    }
}

/// Taint of the result, a bit for each word.
#[inline(always)]
pub fn taint(op: BitOp, w: &Context, x: u8, y: u8, spread: Spread) -> u32 {
    if w.a_taint == 0 {
        return 0;
    }
    let tx = super::first_taint(w, x, spread);
    let ty = w.a_taint2(y);
    match op {
        BitOp::Not | BitOp::Sort8 | BitOp::Swap8 => tx,
        BitOp::Roll32 => tx >> 1 | (ty & 1) << 1,
        BitOp::Sort4x32Lo => tx & 1 | (ty & 1) << 1,
        BitOp::Sort4x32Hi => tx >> 1 | ty & 2,
        _ => tx | ty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations() {
        let (x, y) = (0x0302_0100, 0x0706_0504);
        let low = |op| apply(op, x, y) as u32;
        assert_eq!(low(BitOp::Roll16), 0x0504_0302);
        assert_eq!(low(BitOp::Roll8l), 0x0605_0403);
        assert_eq!(low(BitOp::Roll8r), 0x0403_0201);
        assert_eq!(low(BitOp::Shuf8x8Lo), 0x0501_0400);
        assert_eq!(low(BitOp::Shuf8x8Hi), 0x0703_0602);
        assert_eq!(low(BitOp::Sort4x16Lo), 0x0504_0100);
        assert_eq!(low(BitOp::Sort4x16Hi), 0x0706_0302);
        assert_eq!(low(BitOp::Sort8x8Lo), 0x0604_0200);
        assert_eq!(low(BitOp::Sort8), 0x0301_0200);
        let (x, y) = (0x1_0000_0000, 0x3_0000_0002);
        assert_eq!(apply(BitOp::Roll32, x, y), 0x2_0000_0001);
        assert_eq!(apply(BitOp::Sort4x32Lo, x, y), 0x2_0000_0000);
        assert_eq!(apply(BitOp::Sort4x32Hi, x, y), 0x3_0000_0001);
    }
}
