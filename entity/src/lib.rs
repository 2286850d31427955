//! The tables of Odometer as SeaORM entities, one file for each table.
//!
//! This crate owns the columns and their types: numbers are `i64`, times are milliseconds since the
//! Unix epoch, and names are ASCII and compared byte by byte on every database. It never knows what a
//! row means: the crate `store` knows it.
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
pub mod meta;
pub mod replica;
pub mod sequence;
pub mod worker_lease;
