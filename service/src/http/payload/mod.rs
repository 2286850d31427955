//! What requests and replies carry, as the description of the API shows it.

pub(crate) mod bodies;
pub(crate) mod definition;
pub(crate) mod parameters;
pub(crate) mod values;
