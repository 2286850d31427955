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

    /// Returns how long `n` numbers have to be waited for; `None` if they may be taken now.
    #[inline]
    pub fn wait(&self, n: u64, now: Instant) -> Option<Duration> {
        let now = self.nanos(now);
        let given_by = self.after(self.given_by.load(Ordering::Relaxed), n, now);
        let latest = now.saturating_add(BURST_SECONDS * NANOS_PER_SECOND);
        (given_by > latest).then(|| Duration::from_nanos(given_by - latest))
    }

    /// Notes that `n` numbers were taken. Calls that asked at the same time may take more than the
    /// quota together; the next calls wait for that.
    #[inline]
    pub fn charge(&self, n: u64, now: Instant) {
        let now = self.nanos(now);
        let charge = |given_by| Some(self.after(given_by, n, now));
        let order = Ordering::Relaxed;
        // The closure never refuses.
        let _charged = self.given_by.fetch_update(order, order, charge);
    }

    fn after(&self, given_by: u64, n: u64, now: u64) -> u64 {
        let lasts = u128::from(n) * u128::from(NANOS_PER_SECOND) / u128::from(self.rate);
        let lasts = u64::try_from(lasts).unwrap_or(u64::MAX);
        given_by.max(now).saturating_add(lasts)
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
        assert_eq!((quota.burst(), quota.wait(1000, began)), (1000, None));
        assert!(quota.wait(1001, began).is_some());
        quota.charge(1000, began);
        assert_eq!(quota.wait(1, began), Some(Duration::from_millis(10)));
        assert_eq!(quota.wait(50, began + Duration::from_millis(500)), None);
        let later = began + Duration::from_secs(3600);
        assert_eq!(quota.wait(1000, later), None);
        assert!(
            quota.wait(1001, later).is_some(),
            "more is saved than the burst"
        );
    }

    proptest! {
        #![proptest_config(odometer_tests::settings::properties())]

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
                if quota.wait(n, now).is_none() {
                    quota.charge(n, now);
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
