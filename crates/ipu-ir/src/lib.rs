//! Graph, mid and tile-program IR: types, text form, builder, verifier.
