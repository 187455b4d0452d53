//! Package image and host calls to outputs, cycles, samples.
