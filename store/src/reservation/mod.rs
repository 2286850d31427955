//! One reservation: blocks, exact ranges, and numbers in strict order.

pub(crate) mod adoption;
pub(crate) mod attempt_error;
pub(crate) mod attempts;
pub(crate) mod birth;
pub(crate) mod course;
pub(crate) mod entry;
pub(crate) mod find_out;
pub(crate) mod guide;
pub(crate) mod look;
pub(crate) mod one_row;
pub(crate) mod period;
pub(crate) mod raise;
pub(crate) mod request;
pub(crate) mod strict;
pub(crate) mod uncertain_writes;
