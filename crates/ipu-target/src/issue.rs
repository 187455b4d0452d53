//! Issue timing of the six workers and the supervisor, in cycles.
//!
//! The numbers were fitted to whole calls of public kernels with published C600 counts (source:
//! timing): of 18 matrix product points 9 are exact and 8 within 6 cycles. Where only a sum is
//! fixed by the counts, the doc comment says so.
//! Not here: which instruction has which class (`ipu-isa`), the network of the internal sync.

/// A worker may issue once in this many cycles: worker `k` only at cycles equal to `k` modulo it.
pub const WORKER_PERIOD: u64 = 6;
/// A worker launched by `runall` at `t` first issues in its own first slot at or after `t + 6`.
pub const LAUNCH: u64 = 6;
/// The local sync completes no earlier than this after its issue. Only the sum of [`LAUNCH`] and
/// [`SYNC_LOCAL_AFTER_EXIT`] is fixed.
pub const SYNC_LOCAL: u64 = 6;
/// The local sync completes no earlier than this after the last worker's exit issued.
pub const SYNC_LOCAL_AFTER_EXIT: u64 = 8;

/// A supervisor instruction issues in one cycle, in any cycle whose slot has no live worker.
pub const SUPERVISOR_ISSUE: u64 = 1;
/// From a supervisor result (arithmetic or load) to an instruction that uses it.
pub const DEPENDENT_USE: u64 = 8;
/// Taken conditional branch of the supervisor.
pub const BRANCH_TAKEN: u64 = 4;
/// Conditional branch of the supervisor that falls through; 1 to 4 fit alike.
pub const BRANCH_UNTAKEN: u64 = 3;
/// `call`. Only the sum of a call and its return is fixed, at about 20.
pub const CALL: u64 = 7;
/// `bri`, the branch to an immediate address.
pub const BRANCH_IMMEDIATE: u64 = 7;
/// `br $m`, the branch through a register.
pub const BRANCH_REGISTER: u64 = 13;
/// `put` of a control register, outside rows.
pub const PUT: u64 = 5;
/// `ld64putcs` and `ld128putcs` each.
pub const COEFFICIENT_PUT: u64 = 1;
/// From a `put` of the coefficient load pointer to its first use; 0 to 12 fit alike.
pub const COEFFICIENT_POINTER_USE: u64 = 8;
/// Base register write inside a timed row.
pub const ROW_BASE_WRITE: u64 = 13;

/// From the arrival of the last tile at the internal sync to its release on every tile.
///
/// Assumed. A sampled exchange phase costs its horizon and 229 to 295 cycles. With the constants
/// above, base and counter set-up, the empty worker barrier and the call of the row take about 86,
/// the row's return 13, one sample about 100; this constant puts the sum in the middle of the
/// published range. The latency is taken as equal on all tiles.
pub const INTERNAL_SYNC: u64 = 62;
/// From the last arrival, device and host mark, at a host sync to its release.
///
/// Assumed equal to [`INTERNAL_SYNC`]: the host's own time is not simulated.
pub const HOST_SYNC: u64 = INTERNAL_SYNC;
/// `sync` of the answered kind on a tile that pre-answered by `sans`: issue and release.
pub const SYNC_ANSWERED: u64 = 6;
