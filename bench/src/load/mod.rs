//! Sends the load: well-known load generators and callers of our own, each in its own file.

/// The connections of a row, unless the title of the row names another number.
pub(crate) const N_CONNECTIONS: usize = 64;

pub(crate) mod closed;
pub(crate) mod hostile;
pub(crate) mod http;
pub(crate) mod leases;
pub(crate) mod native;
pub(crate) mod paced;
mod pgbench;
pub(crate) mod redis;
pub(crate) mod sql;
mod sysbench;
pub(crate) mod wrk;
