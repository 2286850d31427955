//! Computes for how long something is still good.

use std::time::SystemTime;

use jiff::Timestamp;

/// Returns the seconds from `now` until `end`. The result is below 0 once `end` has passed.
pub(crate) fn seconds_until(end: Timestamp, now: SystemTime) -> f64 {
    match SystemTime::from(end).duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(over) => -over.duration().as_secs_f64(),
    }
}
