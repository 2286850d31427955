//! Describes what requests and replies carry, for the description of the API.

pub(crate) mod bodies;
pub(crate) mod definition;
pub(crate) mod parameters;
pub(crate) mod values;
