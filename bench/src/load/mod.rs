//! Who asks: programs that are known for it and callers of our own, one a file.

pub(crate) mod closed;
pub(crate) mod http;
pub(crate) mod paced;
pub(crate) mod wrk;
