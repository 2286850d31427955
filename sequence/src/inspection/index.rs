//! Keeps the names in memory in byte order, for callers that page through them.
//!
//! The index is made again when a caller asks and the index is old. An index that took longer to
//! make is kept longer. So a million names cost no larger part of the machine than a few names,
//! however many callers ask.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::name::SequenceName;
use tokio::sync::Mutex;

use crate::directory::shared::Shared;

/// The shortest time for which an index is used.
const FRESH: Duration = Duration::from_millis(500);
/// Multiplies the time that making the index took. The index is used for that long, so indexes cost
/// at most 2 % of one core.
const TIMES: u32 = 50;
/// The time without callers after which the index is dropped, to free its memory.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The index that was made last.
#[derive(Default)]
pub(crate) struct Index(Arc<Mutex<Made>>);

#[derive(Default)]
struct Made {
    names: Arc<[SequenceName]>,
    good_until: Option<Instant>,
    asked_at: Option<Instant>,
}

impl Shared {
    /// Returns the names in memory, in byte order, as they were a short time ago.
    pub(crate) async fn names(self: &Arc<Self>) -> Arc<[SequenceName]> {
        // The task that makes the index keeps the lock, even if its caller goes. Callers that come
        // meanwhile wait for this index.
        let mut made = Arc::clone(&self.index.0).lock_owned().await;
        let now = Instant::now();
        if let Some(names) = made.names_at(now) {
            return names;
        }
        let shared = Arc::clone(self);
        let making = tokio::task::spawn_blocking(move || {
            made.make(|| shared.names.all());
            Arc::clone(&made.names)
        });
        // The task fails only if the runtime ends.
        making.await.unwrap_or_default()
    }

    /// Drops the index if no caller uses it any more.
    pub(crate) fn forget_index(&self, now: Instant) {
        if let Ok(mut made) = self.index.0.try_lock() {
            made.forget(now);
        }
    }
}

impl Made {
    /// Returns the names, if the index is not too old at `now`. Notes that a caller asked.
    fn names_at(&mut self, now: Instant) -> Option<Arc<[SequenceName]>> {
        self.asked_at = Some(now);
        let is_good = self.good_until.is_some_and(|until| now < until);
        is_good.then(|| Arc::clone(&self.names))
    }

    fn forget(&mut self, now: Instant) {
        let rested = |at| now.saturating_duration_since(at) >= FORGOTTEN_AFTER;
        if self.asked_at.is_some_and(rested) {
            *self = Self::default();
        }
    }

    /// Makes the index of these names, which are in byte order.
    fn make(&mut self, names: impl FnOnce() -> Vec<SequenceName>) {
        let started = Instant::now();
        self.names = names().into();
        let took = started.elapsed();
        self.good_until = Some(started + took + FRESH.max(took * TIMES));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn names() -> Vec<SequenceName> {
        vec![SequenceName::parse("orders").unwrap()]
    }

    #[test]
    fn an_index_is_good_for_a_time() {
        let mut made = Made::default();
        let before = Instant::now();
        made.make(names);
        let took = before.elapsed();
        let good_for = made.good_until.unwrap().duration_since(before);
        assert!(good_for >= FRESH, "{good_for:?}");
        assert!(good_for <= FRESH + took * (TIMES + 2), "{good_for:?}");
        // The index is not made again while it is good.
        assert_eq!(*made.names_at(before).unwrap(), *names());
        assert_eq!(made.names_at(before + good_for), None);
        let again = Instant::now();
        made.make(Vec::new);
        assert_eq!(made.names_at(again).unwrap().len(), 0);
    }

    #[test]
    fn names_that_take_long_to_find_are_kept_for_longer() {
        const LONG: Duration = Duration::from_millis(30);
        let mut made = Made::default();
        let before = Instant::now();
        made.make(|| {
            while before.elapsed() < LONG {
                std::hint::spin_loop();
            }
            names()
        });
        let good_for = made.good_until.unwrap().duration_since(before);
        assert!(good_for >= LONG * TIMES, "{good_for:?}");
    }

    #[test]
    fn what_nobody_looks_at_is_forgotten() {
        let mut made = Made::default();
        let start = Instant::now();
        made.names = names().into();
        assert_eq!(made.names_at(start), None);
        made.forget(start + FORGOTTEN_AFTER / 2);
        assert_eq!(made.names.len(), 1);
        made.forget(start + FORGOTTEN_AFTER);
        assert_eq!((made.names.len(), made.asked_at), (0, None));
    }
}
