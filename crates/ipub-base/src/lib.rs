//! Typed ids, units, the digest law, diagnostics.
