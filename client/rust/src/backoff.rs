//! Says how long to wait before the next attempt.

use std::time::Duration;

use crate::random::Uniform;

const MIN_CEILING: Duration = Duration::from_millis(50);
const MAX_CEILING: Duration = Duration::from_secs(2);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
const MAX_DOUBLINGS: u32 = 16;

/// Returns the wait after so many failures in a row: full jitter, from 50 ms doubling to 2 s.
///
/// `retry_after` is what the service asked for, if no other replica can be asked meanwhile.
pub(crate) fn pause(n_failures: u32, retry_after: Option<Duration>, uniform: Uniform) -> Duration {
    let doublings = n_failures.saturating_sub(1).min(MAX_DOUBLINGS);
    let ceiling = (MIN_CEILING * (1_u32 << doublings)).min(MAX_CEILING);
    let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
    let jitter = uniform(0.0, ceiling.as_secs_f64());
    asked + Duration::try_from_secs_f64(jitter).unwrap_or(ceiling)
}
