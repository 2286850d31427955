//! Logs slow refills: one line from time to time, however many there are.

use std::time::{Duration, Instant};

use odometer_process::log_throttle::LogThrottle;
use odometer_store::{ReservationProgress, StoreError, Unpublished};

use odometer_core::period::CounterKey;
#[cfg(feature = "otlp")]
use odometer_process::log;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::slow";

/// Decides which refills are slow, and limits the lines about them for each store.
pub(crate) struct SlowRefills {
    threshold: Duration,
    /// The limit on lines for each store. Names whose store is not known yet are under an empty
    /// name.
    told: LogThrottle<String>,
}

impl SlowRefills {
    /// Treats each refill as slow that takes at least this long.
    pub(crate) fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            told: LogThrottle::default(),
        }
    }

    fn is_slow(&self, lasted: Duration) -> bool {
        lasted >= self.threshold
    }

    /// Logs a refill if it was slow, while its callers still wait. If spans are exported, notes the
    /// outcome of every refill in its span.
    pub(crate) fn tell_of(
        &self,
        key: &CounterKey,
        store_of_issuer: impl FnOnce() -> String,
        progress: &ReservationProgress,
        outcome: &Result<Unpublished, StoreError>,
    ) {
        let lasted = progress.lasted();
        #[cfg(feature = "otlp")]
        {
            let (word, error) = in_words(outcome);
            let attempts = progress.n_attempts();
            log::note_reserved(&progress.call(), word, error.as_deref(), attempts);
        }
        if !self.is_slow(lasted) {
            return;
        }
        let (word, error) = in_words(outcome);
        let store = match outcome {
            Ok(block) => block.store().unwrap_or_default(),
            Err(_) => store_of_issuer(),
        };
        let Some(line) = self.told.line(store.clone(), "", Instant::now()) else {
            return;
        };
        tracing::warn!(
            target: TARGET,
            sequence = key.sequence.as_str(),
            period = key.period.shown(),
            error,
            store = Some(store.as_str()).filter(|store| !store.is_empty()),
            outcome = word,
            duration_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX),
            attempts = progress.n_attempts(),
            n_untold = line.n_untold,
            "a refill was slow"
        );
    }
}

/// Returns the outcome as one word, with the error of a failed refill.
fn in_words(outcome: &Result<Unpublished, StoreError>) -> (&'static str, Option<String>) {
    match outcome {
        Ok(block) if block.is_adopted() => ("adopted", None),
        Ok(_) => ("reserved", None),
        // The store answered how to ask for this sequence, and the callers wait on.
        Err(
            StoreError::TimeOrdered(_) | StoreError::HasPeriods(_) | StoreError::OtherOrder { .. },
        ) => ("learned", None),
        Err(error) => ("failed", Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use crate::slow_refills::*;

    #[test]
    fn what_lasts_as_long_as_the_threshold_is_slow() {
        let slow = SlowRefills::new(Duration::from_secs(1));
        assert!(!slow.is_slow(Duration::from_millis(999)));
        assert!(slow.is_slow(Duration::from_secs(1)));
    }
}
