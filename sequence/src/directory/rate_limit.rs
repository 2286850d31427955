//! Limits how many searches for names are made in a second.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Bounds the searches of this replica in a second, so that wrong names do not load the database.
const SEARCHES_A_SECOND: u32 = 3;

/// The searches that may still be made in the present second.
#[derive(Debug)]
pub(crate) struct RateLimit(Mutex<(Instant, u32)>);

impl RateLimit {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Instant::now(), SEARCHES_A_SECOND)))
    }

    /// Returns whether one more search may be made now, and counts it.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let mut second = self.0.lock();
        if now.saturating_duration_since(second.0) >= Duration::from_secs(1) {
            *second = (now, SEARCHES_A_SECOND);
        }
        let may = second.1 > 0;
        second.1 = second.1.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use crate::directory::rate_limit::*;

    #[test]
    fn searches_are_few() {
        let allowance = RateLimit::new();
        let now = Instant::now();
        let n_made = (0..100).filter(|_| allowance.take(now)).count();
        assert_eq!(n_made, 3);
        assert!(allowance.take(now + Duration::from_secs(1)));
    }
}
