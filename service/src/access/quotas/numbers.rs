//! Bounds how many numbers the callers of a role take from one replica.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For how many seconds a quota that is not used is saved.
const BURST_SECONDS: u64 = 10;

/// The highest quota, in numbers a second.
pub const MAX_RATE: u64 = 1_000_000_000;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How many numbers a second the callers of a role may take together.
///
/// This is the generic cell rate algorithm (ITU-T I.371): one time says how far ahead the numbers
/// taken so far reach at the rate of the quota.
#[derive(Debug)]
pub struct NumbersQuota {
    /// Numbers a second, 1 to [`MAX_RATE`].
    rate: u64,
    began: Instant,
    /// The time at which the quota would have given all numbers that were taken, in nanoseconds
    /// since `began`.
    given_by: AtomicU64,
}

impl NumbersQuota {
    /// Creates a quota that nobody has used for a long time.
    pub fn new(rate: u64) -> Self {
        Self {
            rate: rate.clamp(1, MAX_RATE),
            began: Instant::now(),
            given_by: AtomicU64::new(0),
        }
    }

    /// Returns the quota, in numbers a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns the most numbers of one call.
    pub fn burst(&self) -> u64 {
        self.rate.saturating_mul(BURST_SECONDS)
    }

    /// Takes `n` numbers from the quota.
    ///
    /// # Errors
    /// How long they have to be waited for. Nothing is taken then.
    #[inline]
    pub fn take(&self, n: u64, now: Instant) -> Result<(), Duration> {
        let now = self.nanos(now);
        let latest = now.saturating_add(BURST_SECONDS * NANOS_PER_SECOND);
        let lasts = self.lasts(n);
        let after = |given_by: u64| given_by.max(now).saturating_add(lasts);
        let within = |given_by| Some(after(given_by)).filter(|after| *after <= latest);
        let order = Ordering::Relaxed;
        let taken = self.given_by.fetch_update(order, order, within);
        let wait = |given_by| Duration::from_nanos(after(given_by).saturating_sub(latest));
        taken.map(|_before| ()).map_err(wait)
    }

    /// Returns how many numbers one call can take at the time `now`.
    pub fn available(&self, now: Instant) -> u64 {
        let now = self.nanos(now);
        let latest = now.saturating_add(BURST_SECONDS * NANOS_PER_SECOND);
        let given_by = self.given_by.load(Ordering::Relaxed).max(now);
        let room = u128::from(latest.saturating_sub(given_by));
        let n = room * u128::from(self.rate) / u128::from(NANOS_PER_SECOND);
        u64::try_from(n).unwrap_or(u64::MAX)
    }

    /// Gives `n` numbers back to the quota that were taken from it and not issued.
    #[inline]
    pub fn give_back(&self, n: u64) {
        let lasts = self.lasts(n);
        let before = |given_by: u64| Some(given_by.saturating_sub(lasts));
        let order = Ordering::Relaxed;
        // The closure never refuses.
        let _given_back = self.given_by.fetch_update(order, order, before);
    }

    /// Returns for how long the quota gives `n` numbers, in nanoseconds.
    fn lasts(&self, n: u64) -> u64 {
        let lasts = u128::from(n) * u128::from(NANOS_PER_SECOND) / u128::from(self.rate);
        u64::try_from(lasts).unwrap_or(u64::MAX)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.began).as_nanos();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

impl PartialEq for NumbersQuota {
    fn eq(&self, other: &Self) -> bool {
        self.rate == other.rate
    }
}

impl Eq for NumbersQuota {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quota_gives_its_burst_and_then_its_rate() {
        let quota = NumbersQuota::new(100);
        let began = quota.began;
        assert_eq!(quota.burst(), 1000);
        assert!(quota.take(1001, began).is_err());
        assert_eq!(quota.take(1000, began), Ok(()));
        assert_eq!(quota.take(1, began), Err(Duration::from_millis(10)));
        let later = began + Duration::from_millis(500);
        assert_eq!(quota.take(50, later), Ok(()));
        assert_eq!(quota.take(1, later), Err(Duration::from_millis(10)));
        quota.give_back(20);
        assert_eq!(quota.take(20, later), Ok(()));
        assert!(quota.take(1, later).is_err());
        let later = began + Duration::from_secs(3600);
        quota.give_back(1000);
        assert!(
            quota.take(1001, later).is_err(),
            "more is saved than the burst"
        );
        assert_eq!(quota.take(1000, later), Ok(()));
    }

    #[test]
    fn what_is_available_can_be_taken() {
        let quota = NumbersQuota::new(100);
        let began = quota.began;
        assert_eq!(quota.available(began), 1000);
        assert_eq!(quota.take(993, began), Ok(()));
        assert_eq!(quota.available(began), 7);
        assert!(quota.take(8, began).is_err());
        assert_eq!(quota.take(7, began), Ok(()));
        assert_eq!(quota.available(began), 0);
        let later = began + Duration::from_millis(500);
        assert_eq!(quota.available(later), 50);
        let rested = began + Duration::from_secs(3600);
        assert_eq!(quota.available(rested), quota.burst());
    }

    proptest! {
        #![proptest_config(odometer_tests::settings::properties())]

        #[test]
        fn what_is_available_can_be_taken_at_any_rate(
            rate in 1_u64..=MAX_RATE,
            calls in prop::collection::vec((0_u64..3_000_000_000, any::<u64>()), 1..20),
        ) {
            let quota = NumbersQuota::new(rate);
            let mut now = quota.began;
            for (pause_ns, n) in calls {
                now += Duration::from_nanos(pause_ns);
                let n_available = quota.available(now);
                prop_assert!(n_available <= quota.burst());
                // Fewer leave something for the next call.
                let n = n.checked_rem(n_available).unwrap_or(0);
                if n > 0 {
                    prop_assert!(quota.take(n, now).is_ok(), "{n} of {n_available}");
                }
                let n_left = quota.available(now);
                if n_left > 0 {
                    prop_assert!(quota.take(n_left, now).is_ok(), "{n_left} of {n_available}");
                }
            }
        }

        /// However calls come, no span of time gives more than the burst and the rate.
        #[test]
        fn no_span_gives_more_than_the_burst_and_the_rate(
            rate in 1_u64..5000,
            calls in prop::collection::vec((0_u64..3000, 1_u64..2000), 1..60),
        ) {
            let quota = NumbersQuota::new(rate);
            let (mut at, mut taken) = (0_u64, Vec::new());
            for (pause_ms, n) in calls {
                at += pause_ms;
                let now = quota.began + Duration::from_millis(at);
                if quota.take(n, now).is_ok() {
                    taken.push((at, n));
                }
            }
            for first in 0..taken.len() {
                let mut sum = 0;
                for (at, n) in taken.iter().skip(first) {
                    sum += n;
                    let span_ms = at - taken[first].0;
                    let most = quota.burst() + (rate * span_ms).div_ceil(1000) + 1;
                    prop_assert!(sum <= most, "{sum} above {most} in {span_ms} ms");
                }
            }
        }
    }
}
