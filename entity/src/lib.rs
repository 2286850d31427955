//! The tables of Odometer as SeaORM entities, one file a table.
//!
//! Numbers are `i64`, moments are milliseconds since the Unix epoch, names are
//! ASCII and compared byte by byte on every database. Nothing here knows what
//! the rows mean: that is the service's `store`.

pub mod block;
pub mod counter;
pub mod meta;
pub mod replica;
pub mod sequence;
pub mod worker_lease;
