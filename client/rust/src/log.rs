//! Names the log target of this library, for events and spans.

pub(crate) const TARGET: &str = "odometer_client";
