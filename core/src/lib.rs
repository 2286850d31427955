//! The arithmetic of Odometer: what must be right, with nothing around it.
//!
//! No I/O, no async and no clock of its own: what varies is an argument.
//!
//! | Module | Owns |
//! |---|---|
//! | [`name`] | which names a sequence may have |
//! | [`definition`] | what a sequence is, what may be set, what may be changed |
//! | [`glob`] | patterns over names |
//! | [`templates`] | what a sequence is created from that nobody has defined |
//! | [`period`] | in what a sequence counts from its start again, and what names a counter |
//! | [`format`](mod@format) | how a number is printed with its period, and read back |
//! | [`runway`] | how long the numbers of a sequence last |
//! | [`block`] | contiguous numbers reserved by one store write |
//! | [`cursor`] | handing numbers out of blocks in memory, none of them twice |
//! | [`snowflake`] | time-ordered ids: how their bits are divided, and issuing them |
//! | [`duration`] | how durations are written and read |
//! | [`sizing`] | how large the next block is, and when it is fetched |

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
