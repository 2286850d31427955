//! What the owner of a worker id does with the ticker: open, extend, close.

use std::sync::PoisonError;

use super::shape::{SPENT, is_closed, is_spent};
use super::{NotOpened, Ticker};
use crate::sync::Ordering;

/// What was open until a close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Whose ids were issued.
    pub worker: u32,
    /// Nothing of this tick and those after it was issued in this opening, or ever will be.
    pub first_unused_tick: u64,
}

impl Ticker {
    /// Opens a closed ticker for a worker whose ticks from `from_tick` up to `until_tick`, that one
    /// excluded, are reserved for it. It begins with `from_tick` or `now_tick`, the later one, and
    /// goes on from the counter where the last opening left it.
    ///
    /// # Errors
    /// [`NotOpened`] where it is open, the worker has no place in the layout or no tick is left.
    pub fn open(
        &self,
        worker: u32,
        from_tick: u64,
        until_tick: u64,
        now_tick: u64,
    ) -> Result<(), NotOpened> {
        self.as_owner(|| {
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
            self.word.open(self.shape.pack(worker, first));
            self.limit.fetch_and(!SPENT, Ordering::AcqRel);
            Ok(())
        })
    }

    /// Raises the limit of the worker that it is open for; a lower one leaves it as it is. Says
    /// whether it is open for this worker.
    pub fn extend(&self, worker: u32, until_tick: u64) -> bool {
        self.as_owner(|| {
            let word = self.word.load();
            if is_closed(word) || self.shape.worker(word) != worker {
                return false;
            }
            let until_tick = until_tick.min(self.layout.end_tick());
            let raised = self.shape.pack(worker, self.shape.start_of(until_tick));
            // Takers only mark the limit, so this is repeated once at most.
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

    /// Closes it, at one instant: takes before it are issued, takes after it are refused. `None`
    /// where it is closed already.
    pub fn close(&self) -> Option<Closed> {
        self.as_owner(|| {
            if is_closed(self.word.load()) {
                return None;
            }
            let limit = self.limit.fetch_or(SPENT, Ordering::AcqRel);
            let word = self.word.close();
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

    /// Does what no two may do at once.
    fn as_owner<T>(&self, work: impl FnOnce() -> T) -> T {
        let _alone = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
