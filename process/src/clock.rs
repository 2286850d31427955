//! Reads the wall clock, in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::faults;

/// Returns the time in milliseconds since the Unix epoch, and 0 before the epoch.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .map_or(0, |now| now.saturating_add(faults::clock_shift_ms()))
}

/// Returns the time that is this many milliseconds after the Unix epoch. Earlier times count as the
/// epoch.
pub fn time_of(unix_ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(unix_ms).unwrap_or_default())
}
