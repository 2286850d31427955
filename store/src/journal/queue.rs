//! Counts what waits for the journal's writer, and decides what a full queue accepts.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::rows::block::BlockFate;

/// The counts that the sending end and the writer share.
pub(crate) struct Queue {
    capacity: usize,
    n_rows: AtomicUsize,
    /// The numbers of the rows that return some.
    n_returning: AtomicU64,
    /// Whether the last attempt to write rows failed.
    is_failing: AtomicBool,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            n_rows: AtomicUsize::new(0),
            n_returning: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Counts one more row, which returns `n_numbers`. Returns false if the queue does not accept
    /// the row.
    ///
    /// A full queue accepts only returned blocks, and these only while rows can be written. A
    /// process that stops returns all its blocks in memory at once.
    pub(crate) fn enter(&self, fate: BlockFate, n_numbers: u64) -> bool {
        let may_exceed = match fate {
            BlockFate::Held | BlockFate::HandedOver | BlockFate::Spent => false,
            BlockFate::Returned { .. } => !self.is_failing.load(Ordering::Relaxed),
        };
        let with_one_more = |n_rows: usize| {
            (may_exceed || n_rows < self.capacity).then_some(n_rows.saturating_add(1))
        };
        let entered = self
            .n_rows
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_one_more);
        if entered.is_ok() {
            self.n_returning.fetch_add(n_numbers, Ordering::Relaxed);
        }
        entered.is_ok()
    }

    /// Stops counting rows that are no longer queued, and the numbers that they return.
    pub(crate) fn leave(&self, n_rows: usize, n_numbers: u64) {
        self.n_rows.fetch_sub(n_rows, Ordering::Relaxed);
        self.n_returning.fetch_sub(n_numbers, Ordering::Relaxed);
    }

    pub(crate) fn note_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows.load(Ordering::Relaxed)
    }

    pub(crate) fn n_returning(&self) -> u64 {
        self.n_returning.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_returned_blocks_only_while_rows_can_be_written() {
        let queue = Queue::new(2);
        let returned = BlockFate::Returned { next_unissued: 1 };
        assert!(queue.enter(BlockFate::Held, 0) && queue.enter(BlockFate::Spent, 0));
        for fate in [BlockFate::Held, BlockFate::HandedOver, BlockFate::Spent] {
            assert!(!queue.enter(fate, 0), "{fate:?}");
        }
        assert!(queue.enter(returned, 10));
        queue.note_failing(true);
        assert!(!queue.enter(returned, 10));
        assert_eq!((queue.n_rows(), queue.n_returning()), (3, 10));
        queue.leave(3, 10);
        assert!(queue.enter(returned, 10) && queue.enter(BlockFate::Spent, 0));
        assert_eq!((queue.n_rows(), queue.n_returning()), (2, 10));
    }
}
