//! Package image and host calls to outputs, cycles, samples.
//!
//! The machine words of a package run instruction by instruction: [`op`] resolves them,
//! [`exec`] says what they do, [`worker`] and [`supervisor`] run a tile and time it,
//! [`machine`] runs all tiles of a package together and [`session`] makes the host's calls;
//! [`harness`] runs one tile for tests of kernels.

pub mod code;
pub mod context;
mod copy_loop;
pub mod exec;
pub mod fault;
mod files;
mod fused;
pub mod harness;
pub mod host;
pub mod machine;
pub mod matrix;
mod memo;
pub mod memory;
pub mod numeric;
pub mod op;
mod product;
mod put_run;
pub mod session;
mod skip;
pub mod supervisor;
pub mod tile;
pub mod trace;
#[cfg(target_arch = "x86_64")]
mod vector;
pub mod worker;

pub use fault::{ContextId, DeviceFault, FaultKind, HostFault, Use};
pub use harness::{CallResult, TileRun};
pub use machine::{CycleCount, LoadError, Machine};
pub use memo::Calls;
pub use session::{Invocation, Session, SessionError};
