//! Publishes the metrics that only the cursors know, at each scrape and when a name is unloaded.

use std::{sync::atomic::Ordering, time::Instant};

use ::metrics::Gauge;
use odometer_core::{
    cursor::Cursor,
    runway::Runway,
    sizing::{self, SizeReason},
};
use odometer_process::metrics::{AbandonedCause, SequenceMetrics};

use crate::{
    directory::shared::Shared,
    inspection::description::{BlockState, CounterStatus, to_float},
    issuer::memory::Issuer,
};

/// Bounds the rate, in numbers a second, below which a sequence counts as unused. A block is kept
/// for its next call.
const MIN_RATE: f64 = 0.1;

impl Shared {
    pub(crate) fn publish_metrics(&self) {
        let now = Instant::now();
        let mut shortest_reserve = f64::INFINITY;
        let mut shortest_reserve_ratio = f64::INFINITY;
        let mut shortest_runway = f64::INFINITY;
        let mut shortest_runway_seconds = f64::INFINITY;
        let (mut n_held, mut shortest_lease) = (0, f64::INFINITY);
        self.for_each_issuer(|issuer| {
            let state = self.publish_issuer(issuer);
            if let Some(snowflake) = issuer.snowflake() {
                n_held += u64::from(snowflake.is_serving());
                // A name that was not used for `park_after` may have no lease, so it does not
                // count.
                if issuer.idle_for(now) < self.settings.park_after {
                    shortest_lease = shortest_lease.min(snowflake.left().as_secs_f64());
                }
            }
            // The numbers of a period that is over, or has not begun, are of no use now. The
            // counter of a sequence with periods issues nothing.
            if issuer.is_over() || issuer.is_ahead() || issuer.periods().is_some() {
                return;
            }
            // Another gauge says how long time-ordered sequences can go on.
            if let (Some(seconds), None, false) = (
                state.reserve_seconds,
                issuer.snowflake(),
                is_retired(issuer),
            ) {
                shortest_reserve = shortest_reserve.min(seconds);
                let ratio = part_of_hold(issuer, &state).unwrap_or(f64::INFINITY);
                shortest_reserve_ratio = shortest_reserve_ratio.min(ratio);
            }
            if let Some(runway) = runway_of(issuer, &state) {
                let seconds = runway.seconds(issuer.seconds_left());
                shortest_runway_seconds =
                    shortest_runway_seconds.min(seconds.unwrap_or(f64::INFINITY));
                // A counter that starts again before its end is not short of numbers.
                if seconds.is_none_or(f64::is_finite) {
                    shortest_runway = shortest_runway.min(to_float(runway.worst.numbers_left));
                }
            }
        });
        let metrics = &self.metrics;
        metrics.worker_ids_held.set(to_float(n_held));
        metrics.worker_lease_seconds.set(shortest_lease);
        metrics.shortest_reserve_seconds.set(shortest_reserve);
        metrics.shortest_reserve_ratio.set(shortest_reserve_ratio);
        metrics.shortest_runway.set(shortest_runway);
        metrics.shortest_runway_seconds.set(shortest_runway_seconds);
        let set = |gauge: &Gauge, n: usize| gauge.set(to_float(n as u64));
        set(&metrics.live_sequences, self.n_live.load(Ordering::Relaxed));
        set(&metrics.waiters, self.n_waiters.load(Ordering::Relaxed));
        set(&metrics.journal_queue, self.store.n_journal_rows_queued());
        set(&metrics.store_tasks, self.store.n_tasks());
        metrics
            .store_up
            .set(f64::from(u8::from(self.store.is_up())));
    }

    /// Publishes how many numbers were issued and lost since the last time. Returns the metrics of
    /// the sequence.
    pub(crate) fn publish_counts(&self, issuer: &Issuer) -> SequenceMetrics {
        let metrics = self.metrics.sequence(issuer.key.sequence.as_str());
        metrics.issued.increment(issuer.take_unpublished());
        self.metrics
            .abandoned(AbandonedCause::SlotReused)
            .increment(issuer.cursor().map_or(0, Cursor::take_abandoned));
        metrics
    }

    pub(crate) fn publish_issuer(&self, issuer: &Issuer) -> CounterStatus {
        let state = issuer.state();
        // A name that was never reserved from must not take the label of a name that was.
        if !issuer.is_used() || issuer.periods().is_some() {
            return state;
        }
        let metrics = self.publish_counts(issuer);
        // For a sequence with periods, the gauges show the present period.
        if issuer.is_over() || issuer.is_ahead() {
            return state;
        }
        let (size, remaining) = state
            .block
            .map_or((0, 0), |block| (block.size, block.remaining));
        metrics.block_size.set(to_float(size));
        metrics.block_remaining.set(to_float(remaining));
        if let Some(utilization) = state.block.and_then(BlockState::utilization) {
            metrics.block_utilization.set(utilization);
        }
        if let Some(seconds) = state.reserve_seconds {
            metrics.reserve_seconds.set(seconds);
        } else if issuer.snowflake().is_some() {
            metrics.reserve_seconds.set(0.0);
        }
        let runway = runway_of(issuer, &state);
        let seconds = runway.map_or(Some(f64::INFINITY), |runway| {
            runway.seconds(issuer.seconds_left())
        });
        let numbers = runway.map_or(f64::INFINITY, |runway| {
            numbers_to_share(issuer, runway, seconds)
        });
        metrics.runway_numbers.set(numbers);
        if let Some(seconds) = seconds {
            metrics.runway_seconds.set(seconds);
        }
        metrics.limit_used.set(part_of_limit(issuer, &state));
        state
    }
}

/// Returns which part of its speed limit the numbers of this replica use.
fn part_of_limit(issuer: &Issuer, state: &CounterStatus) -> f64 {
    // Each key has the whole limit, and the gauge is that of all keys.
    let limit = issuer.limit().filter(|_| !is_keyed(issuer));
    limit.map_or(0.0, |limit| state.rate / f64::from(limit.rate()))
}

/// Returns whether the counter of `issuer` is one of many keys.
fn is_keyed(issuer: &Issuer) -> bool {
    !issuer.key.period.is_none() && issuer.span().is_none()
}

/// Returns how many numbers all replicas together may take until the sequence of `issuer` ends. The
/// result is infinite if the rate of all replicas would not show when that is.
fn numbers_to_share(issuer: &Issuer, runway: &Runway, seconds: Option<f64>) -> f64 {
    // The end of a time-ordered sequence comes with the clock.
    let is_snowflake = issuer.snowflake().is_some();
    // The rate is the rate of all keys, but the numbers are the numbers of one key.
    let is_keyed = is_keyed(issuer);
    // Without a rate on this replica, the counter may start again before its end.
    let starts_again = match seconds {
        Some(seconds) => seconds.is_infinite(),
        None => issuer.span().is_some(),
    };
    if is_snowflake || is_keyed || starts_again {
        f64::INFINITY
    } else {
        to_float(runway.worst.numbers_left)
    }
}

/// Returns the numbers in memory, as a part of the numbers that last for `hold`. Returns `None` if
/// memory should hold none, or if the range allows no more.
fn part_of_hold(issuer: &Issuer, state: &CounterStatus) -> Option<f64> {
    // Each of several databases has only a part of the numbers left, which `part` does not know. An
    // adopted block has no reason for its size, so `part` must check, too.
    let last_refill = issuer.memory.lock().last_refill;
    if last_refill.is_some_and(|refill| refill.why == Some(SizeReason::Left)) {
        return None;
    }
    let definition = issuer.definition();
    let hold = definition.block.hold.as_secs_f64();
    // A period needs no numbers after its end.
    let seconds = issuer.seconds_left().map_or(hold, |left| hold.min(left));
    let left = definition.left(state.high_water_mark?);
    part(state.n_remaining, state.rate, seconds, left)
}

/// Returns `remaining` as a part of the numbers that last for `seconds` at this `rate`. Returns
/// `None` if no numbers need to be held, or if a block of so many is not allowed.
///
/// `left` is how many numbers are not reserved yet.
fn part(remaining: u64, rate: f64, seconds: f64, left: u64) -> Option<f64> {
    let wanted = rate * seconds;
    let is_owed = rate >= MIN_RATE && wanted > 0.0;
    let is_possible = wanted <= to_float(sizing::max_at_once(left));
    (is_owed && is_possible).then(|| to_float(remaining) / wanted)
}

/// Returns the runway; `None` for a retired sequence, because it does not run out.
fn runway_of<'a>(issuer: &Issuer, state: &'a CounterStatus) -> Option<&'a Runway> {
    let runway = state.runway.as_ref();
    runway.filter(|_| !is_retired(issuer))
}

fn is_retired(issuer: &Issuer) -> bool {
    issuer.memory.lock().is_retired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_measured_by_what_can_be_held() {
        const MANY: u64 = 1 << 53;
        assert_eq!(part(4500, 10.0, 900.0, MANY), Some(0.5));
        assert_eq!(part(18_000, 10.0, 900.0, MANY), Some(2.0));
        assert_eq!(part(0, 10.0, 900.0, MANY), Some(0.0));
        // The period ends now, the rate is 0, or the rate is below the bound.
        assert_eq!(part(10, 10.0, 0.0, MANY), None);
        assert_eq!(part(10, 0.0, 900.0, MANY), None);
        assert_eq!(part(10, 0.09, 900.0, MANY), None);
        // The wanted numbers are exactly 1/4096 of the numbers left, or more, or no numbers are
        // left.
        assert_eq!(part(4500, 10.0, 900.0, 9000 * 4096), Some(0.5));
        assert_eq!(part(4500, 10.0, 900.0, 8999 * 4096), None);
        assert_eq!(part(0, 10.0, 900.0, 0), None);
    }
}
