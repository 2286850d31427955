//! Declares the metrics of all Redis servers together.

use ::metrics::{Counter, Gauge, Histogram};

use super::declare::declare;

declare! {
    /// The metrics of all Redis servers together.
    pub struct RedisMetrics {
        /// Steps taken in Redis. Each step is for all callers who waited.
        ///
        /// They gave numbers.
        steps: Counter = "odometer_redis_steps_total",
        /// Time from sending a step to Redis to its reply.
        ///
        /// In seconds.
        step_duration: Histogram = "odometer_redis_step_duration_seconds",
        /// Windows opened for Redis, by what became of the window before.
        ///
        /// There was no window before.
        windows_first: Counter = "odometer_redis_windows_total" [cause = "first"],
        /// Windows opened because the window before is not in Redis any more, or was never seen
        /// there.
        windows_lost: Counter = "odometer_redis_windows_total" [cause = "lost"],
        /// Windows opened because the ceiling of the window before could not be raised.
        windows_full: Counter = "odometer_redis_windows_total" [cause = "full"],
        /// Windows opened because the window before was closed: by a change, or because a replica
        /// could not reach Redis.
        windows_closed: Counter = "odometer_redis_windows_total" [cause = "closed"],
        /// Times that a sequence with strict order went from Redis to its database.
        fallbacks: Counter = "odometer_redis_fallbacks_total",
        /// The shortest time that any sequence in use can go on in Redis without its database.
        ///
        /// In seconds: how long the numbers below a ceiling last.
        ceiling_seconds: Gauge = "odometer_redis_ceiling_seconds",
    }
}
