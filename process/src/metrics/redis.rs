//! What is counted of Redis.

use ::metrics::{Counter, Gauge, Histogram};

/// What is counted of Redis, of all servers together.
pub struct RedisMetrics {
    /// Steps that gave numbers.
    pub steps: Counter,
    /// Seconds from sending a step to its reply.
    pub step_duration: Histogram,
    /// Windows opened: `odometer_redis_windows_total{cause}`; there was none before.
    pub windows_first: Counter,
    /// The one before is not in Redis any more, or was never seen there.
    pub windows_lost: Counter,
    /// The ceiling of the one before could not be raised.
    pub windows_full: Counter,
    /// The one before was closed: by a change, or because a replica could not reach Redis.
    pub windows_closed: Counter,
    /// Times that a sequence went from Redis to its database.
    pub fallbacks: Counter,
    /// The shortest time that what is below a ceiling lasts.
    pub ceiling_seconds: Gauge,
}
