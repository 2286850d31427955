//! Tells the metrics what only the cursors know, at each scrape and when a name is unloaded.

use std::{sync::atomic::Ordering, time::Instant};

use odometer_core::{runway::Runway, sizing};
use odometer_process::{clock, metrics::AbandonedCause};

use crate::{
    description::{BlockState, CounterStatus, to_float},
    issuer::Issuer,
    shared::Shared,
};

/// Numbers a second: what issues less is as good as at rest, and its block is for the next call.
const MIN_RATE: f64 = 0.1;

impl Shared {
    pub(crate) fn publish_metrics(&self) {
        let mut shortest_reserve = f64::INFINITY;
        let mut shortest_reserve_ratio = f64::INFINITY;
        let mut shortest_runway = f64::INFINITY;
        let mut shortest_runway_seconds = f64::INFINITY;
        for issuer in self.all_issuers() {
            let state = self.publish_issuer(&issuer);
            // What is over, or has not begun, is nobody's reserve.
            if issuer.is_over() || issuer.is_ahead() {
                continue;
            }
            // How long time-ordered ones can go on has a gauge of its own.
            if let (Some(seconds), None, false) = (
                state.reserve_seconds,
                issuer.snowflake(),
                is_retired(&issuer),
            ) {
                shortest_reserve = shortest_reserve.min(seconds);
                let ratio = part_of_hold(&issuer, &state).unwrap_or(f64::INFINITY);
                shortest_reserve_ratio = shortest_reserve_ratio.min(ratio);
            }
            if let Some(runway) = runway_of(&issuer, &state) {
                let seconds = runway.seconds(period_left(&issuer));
                shortest_runway_seconds =
                    shortest_runway_seconds.min(seconds.unwrap_or(f64::INFINITY));
                // What starts again before it ends is not short.
                if seconds.is_none_or(f64::is_finite) {
                    shortest_runway = shortest_runway.min(to_float(runway.worst.numbers_left));
                }
            }
        }
        self.publish_leases();
        let metrics = &self.metrics;
        metrics.shortest_reserve_seconds.set(shortest_reserve);
        metrics.shortest_reserve_ratio.set(shortest_reserve_ratio);
        metrics.shortest_runway.set(shortest_runway);
        metrics.shortest_runway_seconds.set(shortest_runway_seconds);
        let n_live = u64::try_from(self.n_live.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        metrics.live_sequences.set(to_float(n_live));
        let n_waiters = u64::try_from(self.n_waiters.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        metrics.waiters.set(to_float(n_waiters));
        let n_rows = u64::try_from(self.store.n_journal_rows_queued()).unwrap_or(u64::MAX);
        metrics.journal_queue.set(to_float(n_rows));
        let n_tasks = u64::try_from(self.store.n_tasks()).unwrap_or(u64::MAX);
        metrics.store_tasks.set(to_float(n_tasks));
        metrics
            .store_up
            .set(f64::from(u8::from(self.store.is_up())));
    }

    /// Of one that nobody has used for a while it says nothing that its lease has run out.
    fn publish_leases(&self) {
        let (mut n_held, mut shortest) = (0, f64::INFINITY);
        let now = Instant::now();
        for issuer in self.all_issuers() {
            let Some(snowflake) = issuer.snowflake() else {
                continue;
            };
            n_held += u64::from(snowflake.is_serving());
            if issuer.idle_for(now) < self.settings.park_after {
                shortest = shortest.min(snowflake.left().as_secs_f64());
            }
        }
        self.metrics.worker_ids_held.set(to_float(n_held));
        self.metrics.worker_lease_seconds.set(shortest);
    }

    pub(crate) fn publish_issuer(&self, issuer: &Issuer) -> CounterStatus {
        let state = issuer.state();
        // A name that was never reserved from takes no label from one that was.
        if !issuer.is_known() {
            return state;
        }
        let metrics = self.metrics.sequence(issuer.key.sequence.as_str());
        metrics.issued.increment(issuer.take_unpublished());
        self.metrics
            .abandoned(AbandonedCause::SlotReused)
            .increment(issuer.take_unpublished_reuse());
        // Of a sequence with periods the gauges show the one that is counted in.
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
        if let Some(runway) = runway_of(issuer, &state) {
            let seconds = runway.seconds(period_left(issuer));
            metrics
                .runway_numbers
                .set(numbers_to_share(issuer, runway, seconds));
            if let Some(seconds) = seconds {
                metrics.runway_seconds.set(seconds);
            }
        } else {
            metrics.runway_numbers.set(f64::INFINITY);
            metrics.runway_seconds.set(f64::INFINITY);
        }
        state
    }
}

/// How many numbers all replicas together may take until the sequence of `issuer` ends; infinite
/// where their rate does not tell when that is.
fn numbers_to_share(issuer: &Issuer, runway: &Runway, seconds: Option<f64>) -> f64 {
    // The end of a time-ordered one comes by the clock.
    let is_timed = issuer.snowflake().is_some();
    // The rate is that of all keys, the numbers are those of one.
    let is_keyed = !issuer.key.period.is_none() && issuer.span.is_none();
    // Without a rate of its own it may start again before.
    let starts_again = match seconds {
        Some(seconds) => seconds.is_infinite(),
        None => issuer.span.is_some(),
    };
    if is_timed || is_keyed || starts_again {
        f64::INFINITY
    } else {
        to_float(runway.worst.numbers_left)
    }
}

/// What part of what it should have a sequence has in memory; `None` where it should have nothing, or
/// its range allows no more.
fn part_of_hold(issuer: &Issuer, state: &CounterStatus) -> Option<f64> {
    // Of several databases each has a part of what is left; of what was adopted nobody says why.
    if issuer.has_its_share_of_what_is_left() {
        return None;
    }
    let definition = issuer.definition()?;
    let hold = definition.block.hold.as_secs_f64();
    // Of a period nothing is needed after its end.
    let seconds = period_left(issuer).map_or(hold, |left| hold.min(left));
    let left = definition.left(state.high_water_mark?);
    part(issuer.remaining(), state.rate, seconds, left)
}

/// What part of the numbers that last for so many seconds at this rate is `remaining`, where `left`
/// numbers are nobody's yet.
fn part(remaining: u64, rate: f64, seconds: f64, left: u64) -> Option<f64> {
    let wanted = rate * seconds;
    let is_owed = rate >= MIN_RATE && wanted > 0.0;
    let is_possible = wanted <= to_float(sizing::most_at_once(left));
    (is_owed && is_possible).then(|| to_float(remaining) / wanted)
}

/// Of what is retired nothing runs out.
fn runway_of<'a>(issuer: &Issuer, state: &'a CounterStatus) -> Option<&'a Runway> {
    let runway = state.runway.as_ref();
    runway.filter(|_| !is_retired(issuer))
}

fn is_retired(issuer: &Issuer) -> bool {
    issuer.memory.lock().is_retired()
}

/// In how many seconds numbers start again; `None` where they do not by themselves.
fn period_left(issuer: &Issuer) -> Option<f64> {
    let span = issuer.span?;
    Some(span.seconds_left(clock::now_ms()))
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
        // The period ends at once, nothing is to be held, hardly anything is issued.
        assert_eq!(part(10, 10.0, 0.0, MANY), None);
        assert_eq!(part(10, 0.0, 900.0, MANY), None);
        assert_eq!(part(10, 0.09, 900.0, MANY), None);
        // 1/4096 of what is left is what is wanted, or less, or nothing is left.
        assert_eq!(part(4500, 10.0, 900.0, 9000 * 4096), Some(0.5));
        assert_eq!(part(4500, 10.0, 900.0, 8999 * 4096), None);
        assert_eq!(part(0, 10.0, 900.0, 0), None);
    }
}
