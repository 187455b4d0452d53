//! Issues that a worker spends on an instruction.
//!
//! A solo instruction or a bundle is one issue. For special functions the published figures are
//! upper bounds, probably data dependent, while the kernels timed on the device fit one issue for
//! `f16v2exp`, `f16v2tanh`, `f32exp` and `f32oox`: one is the default of all, and each has a name
//! here so that a measurement can change it in one place.

use crate::form::IssueClass;

/// Issues of every instruction that is not a special function.
pub const ISSUES_PLAIN: u32 = 1;
/// `f32exp`, `f32exp2`; published bound 3.
pub const ISSUES_F32_EXP: u32 = 1;
/// `f32ln`, `f32log2`; published bound 6.
pub const ISSUES_F32_LOG: u32 = 1;
/// `f32tanh`; published bound 5.
pub const ISSUES_F32_TANH: u32 = 1;
/// `f32sigm`; published bound 5.
pub const ISSUES_F32_SIGM: u32 = 1;
/// `f32div`; published bound 5.
pub const ISSUES_F32_DIV: u32 = 1;
/// `f32oorx`; published bound 4.
pub const ISSUES_F32_OORX: u32 = 1;
/// `f32oox`; one issue fits the timed kernels.
pub const ISSUES_F32_OOX: u32 = 1;
/// `f32sqrt`; no published bound.
pub const ISSUES_F32_SQRT: u32 = 1;
/// `f16v2exp`, `f16v2exp2`; published bound 2, one fits the timed softmax.
pub const ISSUES_F16V2_EXP: u32 = 1;
/// `f16v2ln`, `f16v2log2`; published bound 2.
pub const ISSUES_F16V2_LOG: u32 = 1;
/// `f16v2sigm`; published bound 2.
pub const ISSUES_F16V2_SIGM: u32 = 1;
/// `f16v2tanh`; published 1.
pub const ISSUES_F16V2_TANH: u32 = 1;

impl IssueClass {
    /// Issues of one instruction of this class.
    pub const fn issues(self) -> u32 {
        match self {
            IssueClass::Plain => ISSUES_PLAIN,
            IssueClass::F32Exp => ISSUES_F32_EXP,
            IssueClass::F32Log => ISSUES_F32_LOG,
            IssueClass::F32Tanh => ISSUES_F32_TANH,
            IssueClass::F32Sigm => ISSUES_F32_SIGM,
            IssueClass::F32Div => ISSUES_F32_DIV,
            IssueClass::F32Oorx => ISSUES_F32_OORX,
            IssueClass::F32Oox => ISSUES_F32_OOX,
            IssueClass::F32Sqrt => ISSUES_F32_SQRT,
            IssueClass::F16v2Exp => ISSUES_F16V2_EXP,
            IssueClass::F16v2Log => ISSUES_F16V2_LOG,
            IssueClass::F16v2Sigm => ISSUES_F16V2_SIGM,
            IssueClass::F16v2Tanh => ISSUES_F16V2_TANH,
        }
    }
}
