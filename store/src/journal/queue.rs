//! Counts what waits for the journal's writer, and decides what a full queue accepts.

use crate::rows::block::BlockFate;

/// The counts that the sending end and the writer share.
pub(crate) struct Queue {
    capacity: usize,
    pub(crate) n_rows: usize,
    /// The numbers of the rows that return some.
    pub(crate) n_returning: u64,
    /// How many rows were ever queued.
    pub(crate) n_entered: usize,
    /// Whether the last attempt to write rows failed.
    pub(crate) is_failing: bool,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            n_rows: 0,
            n_returning: 0,
            n_entered: 0,
            is_failing: false,
        }
    }

    /// Counts one more row, which returns `n_numbers`. Returns false if the queue does not accept
    /// the row.
    ///
    /// A full queue accepts only returned blocks, and these only while rows can be written. A
    /// process that stops returns all its blocks in memory at once.
    pub(crate) fn enter(&mut self, fate: BlockFate, n_numbers: u64) -> bool {
        let may_exceed = matches!(fate, BlockFate::Returned { .. }) && !self.is_failing;
        if self.n_rows >= self.capacity && !may_exceed {
            return false;
        }
        self.n_rows = self.n_rows.saturating_add(1);
        self.n_returning = self.n_returning.saturating_add(n_numbers);
        self.n_entered = self.n_entered.saturating_add(1);
        true
    }

    /// Stops counting rows that are no longer queued, and the numbers that they return.
    pub(crate) fn leave(&mut self, n_rows: usize, n_numbers: u64) {
        self.n_rows = self.n_rows.saturating_sub(n_rows);
        self.n_returning = self.n_returning.saturating_sub(n_numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_returned_blocks_only_while_rows_can_be_written() {
        let mut queue = Queue::new(2);
        let returned = BlockFate::Returned { next_unissued: 1 };
        assert!(queue.enter(BlockFate::Held, 0) && queue.enter(BlockFate::Spent, 0));
        for fate in [BlockFate::Held, BlockFate::HandedOver, BlockFate::Spent] {
            assert!(!queue.enter(fate, 0), "{fate:?}");
        }
        assert!(queue.enter(returned, 10));
        queue.is_failing = true;
        assert!(!queue.enter(returned, 10));
        assert_eq!((queue.n_rows, queue.n_returning), (3, 10));
        queue.leave(3, 10);
        assert!(queue.enter(returned, 10) && queue.enter(BlockFate::Spent, 0));
        assert_eq!((queue.n_rows, queue.n_returning), (2, 10));
    }
}
