//! Reserves numbers in one database: blocks, exact ranges, and numbers in strict order.

pub(crate) mod adoption;
pub(crate) mod attempt_error;
pub(crate) mod attempts;
pub(crate) mod counter_read;
pub(crate) mod create;
pub(crate) mod entry;
pub(crate) mod one_row;
pub(crate) mod period;
pub(crate) mod progress;
pub(crate) mod raise;
pub(crate) mod request;
pub(crate) mod strict;
pub(crate) mod stripe_constraints;
pub(crate) mod uncertain_outcome;
pub(crate) mod uncertain_writes;
