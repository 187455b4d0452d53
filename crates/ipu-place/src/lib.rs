//! Mid to tile program: shards, views, transfers, lifetimes, SRAM addresses; an independent checker.
