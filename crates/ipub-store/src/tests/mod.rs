//! Tests of the protocols: kills at every step, and power loss after every write.

pub(crate) mod recorder;
