//! Reads the wall clock, in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::faults;

/// Returns the time in milliseconds since the Unix epoch, and 0 before the epoch.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .map_or(0, |now| now.saturating_add(faults::clock_shift_ms()))
}
