//! Transfers to cycle-exact exchange rows; row decoder and checker.
