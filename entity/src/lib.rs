//! Maps the tables of Odometer to SeaORM entities, one file for each table.
//!
//! This crate owns the columns and their types. Numbers are `i64`, and times are milliseconds since
//! the Unix epoch. Names are ASCII, and every database compares them byte by byte. It never knows
//! what a row means: the crate `store` knows that.
//!
//! Read first:
//!
//! - `counter.rs`: the high-water mark of each sequence and period.
//! - `sequence.rs`: the definitions.
//! - `block.rs`: the journal.
//! - `worker_lease.rs`: worker ids and the time that is reserved with them.
//! - `replica.rs`: the heartbeats.

pub mod block;
pub mod counter;
pub mod fence;
pub mod lineage;
pub mod meta;
pub mod replica;
pub mod sequence;
pub mod worker_lease;
