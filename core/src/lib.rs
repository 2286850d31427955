//! Computes what must be right in Odometer, without I/O.
//!
//! This crate owns names, definitions, blocks, the cursor that issues the numbers of blocks, block
//! sizes, periods, formats and snowflake layouts. It knows no I/O, no async code and no time of
//! day. A caller passes times and stored values as arguments.
//!
//! Read first:
//!
//! - `cursor/mod.rs`: issues the numbers of blocks, no number twice, with the proof.
//! - `block.rs`: defines blocks, the contiguous numbers that one write reserved.
//! - `sizing/mod.rs`: decides how large the next block is, and when it is fetched.
//! - `definition/mod.rs`: says what a sequence is, and what a caller may set.
//! - `snowflake/ticker/mod.rs`: issues time-ordered ids, no id twice, with the proof.

pub mod block;
pub mod cursor;
pub mod definition;
pub mod duration;
pub mod format;
#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod fuzz;
pub mod glob;
pub mod name;
pub mod period;
pub mod runway;
pub mod sizing;
pub mod snowflake;
pub mod speed_limit;
mod sync;
pub mod templates;
#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests;
mod word;
