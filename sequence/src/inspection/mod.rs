//! Shows what memory and the store know of sequences and numbers.
//!
//! This folder owns descriptions, explanations, histories and the metrics of the counters. It never
//! changes or loads anything.
//!
//! Read first:
//!
//! - `description.rs`: defines what calls can learn of a sequence.
//! - `live.rs`: shows the names in memory.
//! - `explain.rs`: says what became of one number.
//! - `publish.rs`: publishes the metrics that only the cursors know.
//! - `history.rs`: records the last minutes of the names in use.
//!
//! The rest: `explain_snowflake.rs` explains ids by time, and `index.rs` keeps the names in order.

pub mod description;
pub mod explain;
pub mod explain_snowflake;
pub(crate) mod history;
pub(crate) mod index;
mod live;
mod publish;
