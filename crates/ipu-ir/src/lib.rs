//! The representations that passes exchange: semantic graph, mid, tile program, kernel contract.
//!
//! Passes never depend on passes; they meet here. Nothing in this crate decides anything.

pub mod contract;
pub mod expr;
pub mod graph;
pub mod layout;
pub mod mid;
pub mod program;
