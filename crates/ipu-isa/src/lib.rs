//! The IPU21 instruction set as one table, and everything that reads it.
//!
//! - [`table::FORMS`] is the table; [`form`] holds its types, encoding and register use.
//! - [`decode`] turns words into [`Decoded`] values, [`encode`] turns them back.
//! - [`text`] prints and parses single statements.
//! - [`csr`] names the control and status registers.
//! - [`float`] defines the F16, F143 and F152 number formats.
//!
//! Not here: what an instruction does (the simulator), labels, sections and directives (the
//! assembler).

pub mod csr;
pub mod decode;
pub mod float;
pub mod form;
pub mod issue;
pub mod table;
pub mod text;

pub use decode::{Decoded, decode};
pub use form::{Class, EncodeError, Form, FormId, Mode, Operand, Operands, Slot, encode};
pub use table::FORMS;
