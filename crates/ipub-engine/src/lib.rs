//! Labels, rules, keys, order, cut-off, explain, typed events; knows no compiler.
