//! One file a stage: binds a pass to its inputs, parameters, codec, fingerprint.

pub mod fingerprint;
