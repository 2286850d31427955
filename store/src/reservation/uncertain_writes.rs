//! Writes whose outcome was not told, remembered until the counter tells it.
//!
//! A write on a counter is conditional on what was seen of it. Read again, the
//! counter says whether one such write was done since, and mostly which; a later
//! write on the same condition that holds says that none was and none will be.
//! So what is lost is counted when it is known to be, not when it is feared.

use std::collections::HashMap;

use odometer_core::{block::Block, period::CounterKey};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::rows::counter::SeenCounter;

/// Ends that one suspect remembers; tries on one condition mostly want the same.
const MAX_ENDS: usize = 64;
/// Counters that may be in doubt; of more the most is taken for lost at once.
const MAX_COUNTERS: usize = 65_536;

/// Writes on one counter, of which at most one may have held.
#[derive(Clone, Debug)]
pub(crate) struct UncertainWrite {
    /// The counter that all of them were conditional on.
    pub(crate) seen: SeenCounter,
    step: i64,
    /// What each would have raised the high-water mark to.
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

    /// How many numbers are lost by a counter that was read since; `None` while that is open.
    ///
    /// Exact where this process alone writes to it. Another one's write that went just as far
    /// cannot be told from ours, nor what came before further ones: then the most it can be.
    pub(crate) fn lost(&self, now: SeenCounter) -> Option<u64> {
        let n_writes = now.version.saturating_sub(self.seen.version);
        if n_writes <= 0 {
            return None;
        }
        let is_ours =
            n_writes > 1 || self.ends.contains(&now.next_value) || self.ends.len() >= MAX_ENDS;
        // The mark never falls, so that a write above it was not done.
        let reached = self.ends.iter().filter(|end| **end <= now.next_value);
        let count = self.count_to(reached.max().copied());
        Some(if is_ours { count } else { 0 })
    }

    /// The most that can be lost.
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

/// What of one counter is in doubt.
#[derive(Clone, Debug, Default)]
pub(crate) struct UncertainCounter {
    pub(crate) write: Option<UncertainWrite>,
    /// A returned block that may have been adopted, by its row in the journal.
    pub(crate) adoption: Option<(Uuid, Block)>,
}

impl UncertainCounter {
    fn is_none(&self) -> bool {
        self.write.is_none() && self.adoption.is_none()
    }

    /// The most that can be lost.
    pub(crate) fn most(&self) -> u64 {
        let write = self.write.as_ref().map_or(0, UncertainWrite::most);
        let adoption = self.adoption.map_or(0, |(_, rest)| rest.count());
        write.saturating_add(adoption)
    }
}

/// Doubts that outlived their reservation.
#[derive(Default)]
pub(crate) struct UncertainWrites {
    by_key: Mutex<HashMap<CounterKey, UncertainCounter>>,
}

impl UncertainWrites {
    /// Hands over what is in doubt of a counter to the reservation that will find out.
    pub(crate) fn take(&self, key: &CounterKey) -> UncertainCounter {
        self.by_key.lock().remove(key).unwrap_or_default()
    }

    /// Keeps a doubt for the next reservation of it; what cannot be kept comes back.
    pub(crate) fn keep(&self, key: &CounterKey, doubt: UncertainCounter) -> UncertainCounter {
        if doubt.is_none() {
            return doubt;
        }
        let mut by_key = self.by_key.lock();
        if by_key.contains_key(key) || by_key.len() >= MAX_COUNTERS {
            return doubt;
        }
        by_key.insert(key.clone(), doubt);
        UncertainCounter::default()
    }

    /// Takes everything out: the most that can be lost of all names.
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
        let doubt = UncertainCounter {
            write: Some(uncertain_write(&[150])),
            adoption: None,
        };
        assert_eq!(uncertain_writes.keep(&key, doubt.clone()).most(), 0);
        // What cannot be kept besides is lost at once.
        assert_eq!(uncertain_writes.keep(&key, doubt.clone()).most(), 10);
        assert_eq!(uncertain_writes.take(&key).most(), 10);
        assert_eq!(uncertain_writes.take(&key).most(), 0);
        uncertain_writes.keep(&key, doubt);
        assert_eq!(uncertain_writes.end(), 10);
    }
}
