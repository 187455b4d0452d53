//! C600 and IPU21 as constants with their source: memory, topology, timing, marked assumptions.
pub mod amp;
