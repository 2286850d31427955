//! Remembers writes whose outcome is unknown, until the counter shows their outcome.
//!
//! A write on a counter is conditional on the counter as it was read before. A later read of the
//! counter shows whether one such write was done, and mostly which one. A later write on the same
//! condition that succeeds shows that no earlier one was done or will be done. So numbers count as
//! abandoned when their loss is known, not when it is only possible.

use std::collections::HashMap;

use odometer_core::{block::Block, period::CounterKey};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::rows::counter::SeenCounter;

/// Bounds the ends that one uncertain write remembers. Attempts on one condition mostly want the
/// same end.
const MAX_ENDS: usize = 64;
/// Bounds the counters with uncertain writes. For a counter beyond this bound, the most that can be
/// lost counts as abandoned at once.
const MAX_COUNTERS: usize = 65_536;

/// Writes on one counter, of which at most one can have been done.
#[derive(Clone, Debug)]
pub(crate) struct UncertainWrite {
    /// The counter on which all of these writes were conditional.
    pub(crate) seen: SeenCounter,
    step: i64,
    /// The high-water mark that each write would have set.
    ends: Vec<i64>,
}

impl UncertainWrite {
    pub(crate) fn new(seen: SeenCounter, block: Block) -> Self {
        Self {
            seen,
            step: block.step(),
            ends: vec![block.end()],
        }
    }

    /// Adds another write on the same condition.
    pub(crate) fn add(&mut self, block: Block) {
        let is_full = self.ends.len() >= MAX_ENDS;
        if !is_full && !self.ends.contains(&block.end()) {
            self.ends.push(block.end());
        }
    }

    /// Returns how many numbers are lost, by a counter that was read later. Returns `None` if this
    /// counter does not show it yet.
    ///
    /// The result is exact if only this process writes the counter. It is the most that can be lost
    /// in two cases: another process's write reached the same end, or further writes followed.
    pub(crate) fn lost(&self, now: SeenCounter) -> Option<u64> {
        let n_writes = now.version.saturating_sub(self.seen.version);
        if n_writes <= 0 {
            return None;
        }
        let is_ours =
            n_writes > 1 || self.ends.contains(&now.next_value) || self.ends.len() >= MAX_ENDS;
        // The high-water mark never falls, so a write with a higher end was not done.
        let reached = self.ends.iter().filter(|end| **end <= now.next_value);
        let count = self.count_to(reached.max().copied());
        Some(if is_ours { count } else { 0 })
    }

    /// Returns the most numbers that can be lost.
    pub(crate) fn most(&self) -> u64 {
        self.count_to(self.ends.iter().max().copied())
    }

    fn count_to(&self, end: Option<i64>) -> u64 {
        end.and_then(|end| end.checked_sub(self.seen.next_value))
            .and_then(|span| span.checked_div(self.step))
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0)
    }
}

/// The uncertain write and the uncertain adoption of one counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct UncertainCounter {
    pub(crate) write: Option<UncertainWrite>,
    /// A returned block that may have been adopted, with the id of its row in the journal.
    pub(crate) adoption: Option<(Uuid, Block)>,
}

impl UncertainCounter {
    fn is_none(&self) -> bool {
        self.write.is_none() && self.adoption.is_none()
    }

    /// Returns the most numbers that can be lost.
    pub(crate) fn most(&self) -> u64 {
        let write = self.write.as_ref().map_or(0, UncertainWrite::most);
        let adoption = self.adoption.map_or(0, |(_, rest)| rest.count());
        write.saturating_add(adoption)
    }
}

/// The uncertain writes that were not settled within their reservation.
#[derive(Default)]
pub(crate) struct UncertainWrites {
    by_key: Mutex<HashMap<CounterKey, UncertainCounter>>,
}

impl UncertainWrites {
    /// Removes and returns the uncertain writes of a counter, for the reservation that will settle
    /// them.
    pub(crate) fn take(&self, key: &CounterKey) -> UncertainCounter {
        self.by_key.lock().remove(key).unwrap_or_default()
    }

    /// Keeps the uncertain writes of a counter for its next reservation. Returns what cannot be
    /// kept.
    pub(crate) fn keep(&self, key: &CounterKey, uncertain: UncertainCounter) -> UncertainCounter {
        if uncertain.is_none() {
            return uncertain;
        }
        let mut by_key = self.by_key.lock();
        if by_key.contains_key(key) || by_key.len() >= MAX_COUNTERS {
            return uncertain;
        }
        by_key.insert(key.clone(), uncertain);
        UncertainCounter::default()
    }

    /// Removes everything. Returns the most numbers that can be lost, over all counters.
    pub(crate) fn end(&self) -> u64 {
        let all = std::mem::take(&mut *self.by_key.lock());
        all.values()
            .map(UncertainCounter::most)
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::name::SequenceName;

    use super::*;

    fn seen(next_value: i64, version: i64) -> SeenCounter {
        SeenCounter {
            next_value,
            version,
        }
    }

    fn uncertain_write(ends: &[i64]) -> UncertainWrite {
        let block = |end: i64| Block::new(100, u64::try_from((end - 100) / 5).unwrap(), 5).unwrap();
        let mut uncertain_write = UncertainWrite::new(seen(100, 7), block(ends[0]));
        for end in &ends[1..] {
            uncertain_write.add(block(*end));
        }
        uncertain_write
    }

    #[test]
    fn a_counter_that_did_not_move_leaves_it_open() {
        assert_eq!(uncertain_write(&[150]).lost(seen(100, 7)), None);
    }

    #[test]
    fn the_write_that_held_is_told_by_its_end() {
        assert_eq!(uncertain_write(&[150, 200]).lost(seen(150, 8)), Some(10));
        assert_eq!(uncertain_write(&[150, 200]).lost(seen(200, 8)), Some(20));
    }

    #[test]
    fn another_one_s_write_lost_nothing_of_ours() {
        assert_eq!(uncertain_write(&[150, 200]).lost(seen(175, 8)), Some(0));
        assert_eq!(uncertain_write(&[150]).lost(seen(100, 8)), Some(0));
    }

    #[test]
    fn after_several_writes_it_is_the_most_that_fits_below_the_mark() {
        assert_eq!(uncertain_write(&[150, 200]).lost(seen(180, 9)), Some(10));
        assert_eq!(uncertain_write(&[150, 200]).lost(seen(900, 12)), Some(20));
        assert_eq!(uncertain_write(&[150]).lost(seen(120, 9)), Some(0));
    }

    #[test]
    fn a_doubt_is_kept_for_the_next_reservation_only() {
        let uncertain_writes = UncertainWrites::default();
        let key = CounterKey::whole(SequenceName::parse("orders").unwrap());
        let uncertain = UncertainCounter {
            write: Some(uncertain_write(&[150])),
            adoption: None,
        };
        assert_eq!(uncertain_writes.keep(&key, uncertain.clone()).most(), 0);
        // A second uncertain write of the same counter cannot be kept, so its numbers count as
        // abandoned at once.
        assert_eq!(uncertain_writes.keep(&key, uncertain.clone()).most(), 10);
        assert_eq!(uncertain_writes.take(&key).most(), 10);
        assert_eq!(uncertain_writes.take(&key).most(), 0);
        uncertain_writes.keep(&key, uncertain);
        assert_eq!(uncertain_writes.end(), 10);
    }
}
