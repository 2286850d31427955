//! Notes when each thread that serves callers ran last, so that a thread that stands still is found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A worker ticks once a second. One that did not tick for this long stands still.
const LATE: Duration = Duration::from_secs(30);

/// When each worker of the callers' listener ticked last.
pub struct WorkerTicks {
    since: Instant,
    /// A worker that has ended is gone from here.
    workers: Mutex<Vec<Weak<AtomicU64>>>,
}

/// The ticks of one worker.
pub(crate) struct WorkerTick {
    since: Instant,
    /// Milliseconds from `since` to the last tick.
    last_ms: Arc<AtomicU64>,
}

impl WorkerTicks {
    /// Starts without workers.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            since: Instant::now(),
            workers: Mutex::default(),
        })
    }

    /// Adds a worker that ticks now, until the result is dropped.
    pub(crate) fn join(&self, now: Instant) -> WorkerTick {
        let last_ms = Arc::new(AtomicU64::default());
        self.workers.lock().push(Arc::downgrade(&last_ms));
        let tick = WorkerTick {
            since: self.since,
            last_ms,
        };
        tick.note(now);
        tick
    }

    /// Returns whether a worker stands still at the time `now`.
    pub(crate) fn is_any_late(&self, now: Instant) -> bool {
        let earliest = ms_between(self.since, now).saturating_sub(ms_of(LATE));
        let mut workers = self.workers.lock();
        workers.retain(|worker| worker.strong_count() > 0);
        let mut ticks = workers.iter().filter_map(Weak::upgrade);
        ticks.any(|last_ms| last_ms.load(Ordering::Relaxed) < earliest)
    }
}

impl WorkerTick {
    /// Notes that the worker runs at the time `now`.
    pub(crate) fn note(&self, now: Instant) {
        let ms = ms_between(self.since, now);
        self.last_ms.store(ms, Ordering::Relaxed);
    }
}

fn ms_between(since: Instant, now: Instant) -> u64 {
    ms_of(now.saturating_duration_since(since))
}

fn ms_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_that_stands_still_is_late_until_it_ends() {
        let ticks = WorkerTicks::new();
        let start = Instant::now();
        assert!(!ticks.is_any_late(start + LATE * 10), "nobody is there");
        let [moving, standing] = [start, start].map(|now| ticks.join(now));
        let later = start + LATE + SECOND * 2;
        assert!(!ticks.is_any_late(start + LATE));
        moving.note(later);
        assert!(ticks.is_any_late(later));
        standing.note(later);
        assert!(!ticks.is_any_late(later + LATE));
        assert!(ticks.is_any_late(later + LATE + SECOND));
        drop((moving, standing));
        assert!(!ticks.is_any_late(later + LATE * 2));
    }
}
