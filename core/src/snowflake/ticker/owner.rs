//! Lets the holder of a worker id open, extend and close the ticker.

use std::sync::PoisonError;

use super::shape::{CLOSED, SPENT, is_closed, is_spent};
use super::{NotOpened, Ticker};
use crate::sync::Ordering;

/// The opening that a close ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// The worker id of the opening.
    pub worker: u32,
    /// The first tick that this opening did not use. The opening issued no id of this tick or a
    /// later one, and never will.
    pub first_unused_tick: u64,
}

impl Ticker {
    /// Opens a closed ticker for a worker id.
    ///
    /// The ticks from `from_tick` up to, but without, `until_tick` must be reserved for the worker
    /// id. The ticker begins with the later one of `from_tick` and `now_tick`. The counter goes on
    /// from the last opening.
    ///
    /// # Errors
    /// [`NotOpened`] if the ticker is open, the layout does not have the worker id, or no tick is
    /// left.
    pub fn open(
        &self,
        worker: u32,
        from_tick: u64,
        until_tick: u64,
        now_tick: u64,
    ) -> Result<(), NotOpened> {
        self.while_locked(|| {
            let word = self.word.load();
            if !is_closed(word) {
                return Err(NotOpened::Open);
            }
            if worker >= self.layout.workers() {
                let workers = self.layout.workers();
                return Err(NotOpened::Worker { worker, workers });
            }
            let tick = from_tick.max(now_tick);
            let end = self.layout.end_tick();
            if tick >= end {
                return Err(NotOpened::TimeEnds);
            }
            let until_tick = until_tick.min(end);
            if tick >= until_tick {
                return Err(NotOpened::NoTime { tick, until_tick });
            }
            let counter = self.shape.counter(self.shape.position(word));
            let first = self.shape.start_of(tick) | counter;
            let limit = self.shape.start_of(until_tick);
            let opening = self.opening.load(Ordering::Relaxed).saturating_add(1);
            self.opening.store(opening, Ordering::Release);
            let limit = self.shape.pack(worker, limit);
            self.limit.store(limit | SPENT, Ordering::Release);
            self.word.swap(self.shape.pack(worker, first));
            self.limit.fetch_and(!SPENT, Ordering::AcqRel);
            Ok(())
        })
    }

    /// Raises the limit, if the ticker is open for this worker id. A lower `until_tick` changes
    /// nothing.
    ///
    /// It returns whether the ticker is open for this worker id.
    pub fn extend(&self, worker: u32, until_tick: u64) -> bool {
        self.while_locked(|| {
            let word = self.word.load();
            if is_closed(word) || self.shape.worker(word) != worker {
                return false;
            }
            let until_tick = until_tick.min(self.layout.end_tick());
            let raised = self.shape.pack(worker, self.shape.start_of(until_tick));
            // Takers only set the spent mark of the limit, so this is repeated at most once.
            loop {
                let limit = self.limit.load(Ordering::Acquire);
                if raised <= limit & !SPENT {
                    return true;
                }
                let is_behind = !self.shape.is_below(self.word.load(), raised);
                let to = match is_spent(limit) && is_behind {
                    true => raised | SPENT,
                    false => raised,
                };
                if self.replace_limit(limit, to) {
                    return true;
                }
            }
        })
    }

    /// Closes the ticker at one instant. Takes before it are issued, and takes after it are
    /// refused. `None` if the ticker is closed already.
    pub fn close(&self) -> Option<Closed> {
        self.while_locked(|| {
            if is_closed(self.word.load()) {
                return None;
            }
            let limit = self.limit.fetch_or(SPENT, Ordering::AcqRel);
            let word = self.word.set(CLOSED);
            let limit = self.shape.limit(limit);
            let position = self.shape.position(word).min(limit);
            let is_begun = self.shape.counter(position) > 0;
            let tick = self.shape.tick(position);
            Some(Closed {
                worker: self.shape.worker(word),
                first_unused_tick: tick.saturating_add(u64::from(is_begun)),
            })
        })
    }

    /// Does work that no two threads may do at the same time.
    fn while_locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let _alone = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
