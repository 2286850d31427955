//! Logs slow refills: one line from time to time, however many there are.

use std::time::{Duration, Instant};

use odometer_process::log_throttle::LogThrottle;
use odometer_store::{ReservationProgress, StoreError, Unpublished};

use odometer_core::{name::SequenceName, period::CounterKey};
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
        store: &str,
        progress: &ReservationProgress,
        outcome: &Result<Unpublished, StoreError>,
    ) {
        let slow = SlowRefill {
            key,
            store,
            lasted: progress.lasted(),
            n_attempts: Some(progress.n_attempts()),
            outcome: in_words(outcome),
        };
        #[cfg(feature = "otlp")]
        {
            let (word, error) = &slow.outcome;
            log::note_reserved(
                &progress.call(),
                word,
                error.as_deref(),
                progress.n_attempts(),
            );
        }
        self.tell(slow);
    }

    /// Logs that the store took long to say why there is no issuer for a name.
    pub(crate) fn tell_of_failure(
        &self,
        name: &SequenceName,
        error: &StoreError,
        lasted: Duration,
    ) {
        self.tell(SlowRefill {
            key: &CounterKey::whole(name.clone()),
            store: "",
            lasted,
            n_attempts: None,
            outcome: ("failed", Some(error.to_string())),
        });
    }

    fn tell(&self, slow: SlowRefill<'_>) {
        if !self.is_slow(slow.lasted) {
            return;
        }
        let Some(line) = self.told.line(slow.store.to_owned(), "", Instant::now()) else {
            return;
        };
        let (word, error) = slow.outcome;
        tracing::warn!(
            target: TARGET,
            sequence = slow.key.sequence.as_str(),
            period = slow.key.period.shown(),
            error,
            store = Some(slow.store).filter(|store| !store.is_empty()),
            outcome = word,
            duration_ms = u64::try_from(slow.lasted.as_millis()).unwrap_or(u64::MAX),
            attempts = slow.n_attempts,
            n_untold = line.n_untold,
            "a refill was slow"
        );
    }
}

/// A refill that may have been slow.
struct SlowRefill<'a> {
    key: &'a CounterKey,
    /// The name of the store; empty if it is not known.
    store: &'a str,
    lasted: Duration,
    n_attempts: Option<u32>,
    /// The outcome as one word, with the error of a failed refill.
    outcome: (&'static str, Option<String>),
}

/// Returns the outcome as one word, with the error of a failed refill.
fn in_words(outcome: &Result<Unpublished, StoreError>) -> (&'static str, Option<String>) {
    match outcome {
        Ok(block) if block.is_adopted() => ("adopted", None),
        Ok(_) => ("reserved", None),
        // The sequence needs another issuer by now, and the callers wait on.
        Err(StoreError::Changed(_)) => ("learned", None),
        Err(error) => ("failed", Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use crate::actor::slow_refills::*;

    #[test]
    fn what_lasts_as_long_as_the_threshold_is_slow() {
        let slow = SlowRefills::new(Duration::from_secs(1));
        assert!(!slow.is_slow(Duration::from_millis(999)));
        assert!(slow.is_slow(Duration::from_secs(1)));
    }
}
