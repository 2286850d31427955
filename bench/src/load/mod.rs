//! Who asks: programs that are known for it and callers of our own, one a file.

/// Of a row whose title names no other number.
pub(crate) const N_CONNECTIONS: usize = 64;

pub(crate) mod closed;
pub(crate) mod http;
pub(crate) mod leases;
pub(crate) mod native;
pub(crate) mod paced;
mod pgbench;
pub(crate) mod redis;
pub(crate) mod sql;
mod sysbench;
pub(crate) mod wrk;
