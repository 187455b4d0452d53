//! Registers of one context and the coefficient store that the workers of a tile share.
//!
//! Invariants: `$m15`, `$a14` and `$a15` read zero; a taint bit says that a register holds a value
//! that depends on undefined memory.
//! Not here: what instructions do with them (see `exec`).

use crate::matrix::Matrix;
use crate::numeric::NanOnOverflow;

/// Bits of `$FP_CTL`.
const NANOO: u32 = 1 << 20;

/// One worker or the supervisor. The supervisor leaves the A file and what follows it unused.
#[derive(Clone, Default)]
pub struct Context {
    pub m: [u32; 16],
    pub m_taint: u32,
    /// `$a0..$a15` and room so that a quad can be read at any register.
    pub a: [u32; 20],
    pub a_taint: u32,
    pub matrix: Matrix,
    pub fp_ctl: u32,
    pub fp_nfmt: u32,
    /// Scale exponent, sign-extended from six bits.
    pub fp_scl: i32,
    pub fp_sts: u32,
    pub tas: u32,
    pub tas_taint: bool,
}

/// Sign-extend the six bits of `$FP_SCL`.
pub fn scale_from_bits(bits: u32) -> i32 {
    ((bits << 26) as i32) >> 26
}

impl Context {
    #[inline(always)]
    pub fn m(&self, r: u8) -> u32 {
        self.m[usize::from(r & 15)]
    }

    #[inline(always)]
    pub fn m_tainted(&self, r: u8) -> bool {
        self.m_taint >> r & 1 != 0
    }

    /// Write an M register; the zero register keeps its value.
    #[inline(always)]
    pub fn set_m(&mut self, r: u8, value: u32, taint: bool) {
        self.m[usize::from(r & 15)] = value;
        self.m[15] = 0;
        let bit = 1u32 << r;
        self.m_taint = (self.m_taint & !bit | u32::from(taint) << r) & 0x7fff;
    }

    /// Write an M register with a value that is certainly defined.
    #[inline(always)]
    pub fn set_m_defined(&mut self, r: u8, value: u32) {
        self.m[usize::from(r & 15)] = value;
        self.m[15] = 0;
        self.m_taint &= !(1 << r);
    }

    #[inline(always)]
    pub fn a64(&self, r: u8) -> u64 {
        let r = usize::from(r & 15);
        u64::from(self.a[r]) | u64::from(self.a[r + 1]) << 32
    }

    /// Taint of the pair from `r`.
    #[inline(always)]
    pub fn a_taint2(&self, r: u8) -> u32 {
        self.a_taint >> r & 3
    }

    #[inline(always)]
    pub fn set_a32(&mut self, r: u8, value: u32, taint: u32) {
        self.a[usize::from(r & 15)] = value;
        self.seal(1, r, taint);
    }

    #[inline(always)]
    pub fn set_a64(&mut self, r: u8, value: u64, taint: u32) {
        let r = r & 15;
        self.a[usize::from(r)] = value as u32;
        self.a[usize::from(r) + 1] = (value >> 32) as u32;
        self.seal(3, r, taint);
    }

    #[inline(always)]
    fn seal(&mut self, mask: u32, r: u8, taint: u32) {
        self.a[14] = 0;
        self.a[15] = 0;
        self.a_taint = (self.a_taint & !(mask << r) | (taint & mask) << r) & 0x3fff;
    }

    pub fn overflow(&self) -> NanOnOverflow {
        NanOnOverflow(self.fp_ctl & NANOO != 0)
    }
}
