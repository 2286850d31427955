//! The arithmetic of Odometer: all that must be right, with nothing around it.
//!
//! This crate owns names, definitions, blocks, the cursor that issues their numbers, block sizes,
//! periods, formats and snowflake layouts. It knows no I/O, no async code and no time of day: a
//! caller gives them as arguments.
//!
//! Read first:
//!
//! - `cursor/mod.rs`: issues the numbers of blocks, none of them twice, with the proof.
//! - `block.rs`: contiguous numbers that one write reserved.
//! - `sizing/mod.rs`: decides how large the next block is, and when it is fetched.
//! - `definition/mod.rs`: says what a sequence is, and what a caller may set.
//! - `snowflake/ticker/mod.rs`: issues time-ordered ids, none of them twice, with the proof.

pub mod block;
pub mod cursor;
pub mod definition;
pub mod duration;
pub mod format;
pub mod glob;
pub mod name;
pub mod period;
pub mod runway;
pub mod sizing;
pub mod snowflake;
mod sync;
pub mod templates;
#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests;
