//! Waits between two attempts: full jitter under a bound that doubles.
//!
//! Source: "Exponential Backoff and Jitter", AWS Architecture Blog, 2015. Of its variants, full
//! jitter needs the fewest tries in all.

use std::time::{Duration, Instant};

use crate::settings::StatementBounds;

pub struct Backoff {
    bound: Duration,
    longest: Duration,
}

impl Backoff {
    pub fn new(bounds: &StatementBounds) -> Self {
        Self {
            bound: bounds.backoff_min,
            longest: bounds.backoff_max,
        }
    }

    /// Waits for a random time between zero and the bound, never past `until`, and doubles the
    /// bound.
    pub async fn wait(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let pause = self.bound.mul_f64(rand::random::<f64>()).min(left);
        self.bound = self.bound.saturating_mul(2).min(self.longest);
        tokio::time::sleep(pause).await;
    }
}
