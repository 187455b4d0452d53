//! The `.ipuexe` format: what a device needs to run a model, and nothing about how it was made.

pub mod check;
mod column;
mod container;
mod error;
mod file;
pub mod host;
pub mod limits;
pub mod order;
mod sections;
pub mod summary;
pub mod types;
mod words;

#[cfg(test)]
mod forged_tests;

pub use check::{CheckError, check};
pub use container::SectionEntry;
pub use error::{PackageError, SectionId};
pub use file::{PackageDigest, digest, digest_of_sections, read, section_table, write};
pub use host::{HostPlan, HostRun, HostSlice};
pub use order::{Dtype, Order};
pub use summary::{PackageSummary, exchange_table_bytes, summary};
pub use types::*;
