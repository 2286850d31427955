//! Who asks: programs that are known for it, one a file.

pub(crate) mod http;
pub(crate) mod native;
mod pgbench;
pub(crate) mod redis;
pub(crate) mod sql;
mod sysbench;
pub(crate) mod wrk;
