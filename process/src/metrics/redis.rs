//! Holds the metrics of Redis.

use ::metrics::{Counter, Gauge, Histogram};

/// The metrics of all Redis servers together.
pub struct RedisMetrics {
    /// Steps that gave numbers.
    pub steps: Counter,
    /// Seconds from sending a step to its reply.
    pub step_duration: Histogram,
    /// Windows that were opened because there was none before:
    /// `odometer_redis_windows_total{cause="first"}`.
    pub windows_first: Counter,
    /// Windows opened because the one before is not in Redis any more, or was never seen there.
    pub windows_lost: Counter,
    /// Windows opened because the ceiling of the one before could not be raised.
    pub windows_full: Counter,
    /// Windows opened because the one before was closed: by a change, or because a replica could
    /// not reach Redis.
    pub windows_closed: Counter,
    /// How often a sequence went from Redis to its database.
    pub fallbacks: Counter,
    /// The shortest time that the numbers below a ceiling last, in seconds.
    pub ceiling_seconds: Gauge,
}
