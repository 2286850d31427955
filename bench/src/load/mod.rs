//! Who asks: programs that are known for it, one a file.

pub(crate) mod http;
pub(crate) mod wrk;
