//! Refills that were slow, in the log: a line now and then, however many there are.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::actor::SequenceActor;
use crate::store::{Course, StoreError, Unpublished};
#[cfg(feature = "otlp")]
use crate::telemetry;

/// Of one store, a slow refill is logged at most so often.
const PAUSE: Duration = Duration::from_secs(10);

/// Which refills are slow, and of which stores that was told when.
pub(super) struct SlowRefills {
    threshold: Duration,
    /// By store; of names that are not known yet, under none.
    told: Mutex<BTreeMap<String, Told>>,
}

/// The last line about a store.
struct Told {
    at: Instant,
    /// Slow ones since then, without a line.
    n_untold: u64,
}

impl SlowRefills {
    /// What takes so long is slow.
    pub(super) fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            told: Mutex::default(),
        }
    }

    fn is_slow(&self, lasted: Duration) -> bool {
        lasted >= self.threshold
    }

    /// Counts a slow one; where it is to be told, how many were not since the last that was.
    fn n_to_tell(&self, store: &str, now: Instant) -> Option<u64> {
        let mut told = self.told.lock();
        let Some(last) = told.get_mut(store) else {
            told.insert(
                store.to_owned(),
                Told {
                    at: now,
                    n_untold: 0,
                },
            );
            return Some(0);
        };
        if now.saturating_duration_since(last.at) < PAUSE {
            last.n_untold = last.n_untold.saturating_add(1);
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.n_untold))
    }
}

impl SequenceActor {
    /// Says in the log what took long, while its callers still wait; a collector is told of all.
    pub(super) fn tell_of(&self, course: &Course, outcome: &Result<Unpublished, StoreError>) {
        let (lasted, slow) = (course.lasted(), &self.shared.slow_refills);
        #[cfg(feature = "otlp")]
        {
            let (word, error) = in_words(outcome);
            let attempts = course.n_attempts();
            telemetry::note_reserved(&course.call(), word, error.as_deref(), attempts);
        }
        if !slow.is_slow(lasted) {
            return;
        }
        let (word, error) = in_words(outcome);
        let store = match outcome {
            Ok(block) => block.store().unwrap_or_default(),
            Err(_) => self.issuer.store(),
        };
        let Some(n_untold) = slow.n_to_tell(&store, Instant::now()) else {
            return;
        };
        let key = &self.issuer.key;
        tracing::warn!(
            sequence = key.sequence.as_str(),
            period = key.period.shown(),
            error,
            store = Some(store.as_str()).filter(|store| !store.is_empty()),
            outcome = word,
            duration_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX),
            attempts = course.n_attempts(),
            n_untold,
            "a refill was slow"
        );
    }
}

/// What came of it, in a word, and why nothing did.
fn in_words(outcome: &Result<Unpublished, StoreError>) -> (&'static str, Option<String>) {
    match outcome {
        Ok(block) if block.is_adopted() => ("adopted", None),
        Ok(_) => ("reserved", None),
        // How the sequence is to be asked: its callers wait on.
        Err(
            StoreError::TimeOrdered(_) | StoreError::HasPeriods(_) | StoreError::OtherOrder { .. },
        ) => ("learned", None),
        Err(error) => ("failed", Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_store_one_is_told_now_and_then_and_how_many_were_not() {
        let slow = SlowRefills::new(Duration::from_secs(1));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(slow.n_to_tell("default", at(0)), Some(0));
        for ms in 1..=1000 {
            assert_eq!(slow.n_to_tell("default", at(ms)), None);
        }
        assert_eq!(slow.n_to_tell("other", at(1000)), Some(0));
        assert_eq!(slow.n_to_tell("default", at(9_999)), None);
        assert_eq!(slow.n_to_tell("default", at(10_000)), Some(1001));
        assert_eq!(slow.n_to_tell("default", at(19_999)), None);
        assert_eq!(slow.n_to_tell("default", at(60_000)), Some(1));
        assert_eq!(slow.n_to_tell("default", at(70_000)), Some(0));
    }

    #[test]
    fn what_lasts_as_long_as_the_threshold_is_slow() {
        let slow = SlowRefills::new(Duration::from_secs(1));
        assert!(!slow.is_slow(Duration::from_millis(999)));
        assert!(slow.is_slow(Duration::from_secs(1)));
    }
}
