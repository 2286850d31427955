//! Keeps the rows that the writer has taken from the queue and not yet written, and decides how
//! many are written at once.
//!
//! A statement that takes longer than `store.timeout` is given up, and would be given up at every
//! attempt. So after such a statement, half as many rows are written at once, down to a single one.

use std::collections::{HashSet, VecDeque};

use uuid::Uuid;

use crate::{
    journal::writer::ROWS_AT_ONCE,
    rows::block::{BlockFate, JournalRow},
};

/// Sets how many writes must succeed one after the other before twice as many rows are written at
/// once.
const SUCCESSES: u32 = 8;

/// The rows that are not yet written, in their order. They are written from the front.
pub(crate) struct Backlog {
    rows: VecDeque<(JournalRow, BlockFate)>,
    /// How many rows at the front may be written already.
    n_uncertain: usize,
}

impl Backlog {
    pub(crate) fn of(rows: impl Iterator<Item = (JournalRow, BlockFate)>) -> Self {
        Self {
            rows: rows.collect(),
            n_uncertain: 0,
        }
    }

    /// Returns the rows of the next write, and whether they may be written already. This is the
    /// same for all of these rows.
    pub(crate) fn next(&self, n_at_once: usize) -> (Vec<&(JournalRow, BlockFate)>, bool) {
        let is_in_doubt = self.n_uncertain > 0;
        let n_rows = match is_in_doubt {
            true => n_at_once.min(self.n_uncertain),
            false => n_at_once,
        };
        (self.rows.iter().take(n_rows).collect(), is_in_doubt)
    }

    /// Removes the first `n_rows`, which are written.
    pub(crate) fn written(&mut self, n_rows: usize) {
        self.rows.drain(..n_rows.min(self.rows.len()));
        self.n_uncertain = self.n_uncertain.saturating_sub(n_rows);
    }

    /// Notes that the first `n_rows` may be written already. Returns how many rows must not be
    /// written any more.
    ///
    /// If a block may have been returned, another process may have adopted it, and its row may be
    /// removed. So the block's first row is not written again. Otherwise the block could be adopted
    /// twice.
    pub(crate) fn mark_uncertain(&mut self, n_rows: usize) -> usize {
        let n_uncertain = self.n_uncertain.max(n_rows).min(self.rows.len());
        let later = self.rows.split_off(n_uncertain);
        let returned: HashSet<Uuid> = self
            .rows
            .iter()
            .filter(|(_, fate)| matches!(fate, BlockFate::Returned { .. }))
            .map(|(row, _)| row.id)
            .collect();
        let is_given_back = |(row, fate): &(JournalRow, BlockFate)| {
            !matches!(fate, BlockFate::Returned { .. }) && returned.contains(&row.id)
        };
        self.rows.retain(|entry| !is_given_back(entry));
        self.n_uncertain = self.rows.len();
        self.rows.extend(later);
        n_uncertain.saturating_sub(self.n_uncertain)
    }
}

/// The number of rows that are written at once.
pub(crate) struct Pace {
    n_rows: usize,
    n_succeeded: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            n_rows: ROWS_AT_ONCE,
            n_succeeded: 0,
        }
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub(crate) fn succeeded(&mut self) {
        self.n_succeeded = self.n_succeeded.saturating_add(1);
        if self.n_succeeded >= SUCCESSES {
            self.n_rows = self.n_rows.saturating_mul(2).min(ROWS_AT_ONCE);
            self.n_succeeded = 0;
        }
    }

    /// Notes that a write of `n_rows` took too long.
    pub(crate) fn took_too_long(&mut self, n_rows: usize) {
        self.n_rows = (n_rows / 2).max(1);
        self.n_succeeded = 0;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::{block::Block, name::SequenceName, period::CounterKey};

    use super::*;
    use crate::settings::Source;

    const RETURNED: BlockFate = BlockFate::Returned { next_unissued: 2 };

    fn backlog(rows: &[(u128, BlockFate)]) -> Backlog {
        let row = |id| JournalRow {
            id: Uuid::from_u128(id),
            key: CounterKey::whole(SequenceName::parse("orders").unwrap()),
            block: Block::new(1, 10, 1).unwrap(),
            source: Source::default(),
            reserved_at: 0,
            recovered_at: None,
        };
        Backlog::of(rows.iter().map(|&(id, fate)| (row(id), fate)))
    }

    fn next(backlog: &Backlog, n_at_once: usize) -> (Vec<(u128, BlockFate)>, bool) {
        let (rows, is_in_doubt) = backlog.next(n_at_once);
        let rows = rows.into_iter();
        (
            rows.map(|(row, fate)| (row.id.as_u128(), *fate)).collect(),
            is_in_doubt,
        )
    }

    #[test]
    fn rows_that_may_be_written_are_not_mixed_with_others() {
        let mut backlog = backlog(&[
            (1, BlockFate::Held),
            (2, BlockFate::Held),
            (3, BlockFate::Held),
        ]);
        assert_eq!(backlog.mark_uncertain(2), 0);
        let doubtful = vec![(1, BlockFate::Held), (2, BlockFate::Held)];
        assert_eq!(next(&backlog, 9), (doubtful.clone(), true));
        // A smaller write with an unknown outcome does not make the outcome of the others known.
        assert_eq!(backlog.mark_uncertain(1), 0);
        assert_eq!(next(&backlog, 9), (doubtful, true));
        backlog.written(1);
        assert_eq!(next(&backlog, 9), (vec![(2, BlockFate::Held)], true));
        backlog.written(1);
        assert_eq!(next(&backlog, 9), (vec![(3, BlockFate::Held)], false));
        backlog.written(1);
        assert_eq!(next(&backlog, 9), (Vec::new(), false));
    }

    #[test]
    fn a_block_that_may_have_been_given_back_is_not_written_as_held_again() {
        let rows = [
            (1, BlockFate::Held),
            (2, BlockFate::Held),
            (1, RETURNED),
            (3, BlockFate::Held),
            (2, RETURNED),
        ];
        let mut backlog = backlog(&rows);
        assert_eq!(backlog.mark_uncertain(4), 1);
        // The return of the second block was never sent.
        let doubtful = vec![(2, BlockFate::Held), (1, RETURNED), (3, BlockFate::Held)];
        assert_eq!(next(&backlog, 9), (doubtful, true));
        backlog.written(3);
        assert_eq!(next(&backlog, 9), (vec![(2, RETURNED)], false));
    }

    #[test]
    fn half_as_many_rows_are_written_after_each_silence_and_all_again_later() {
        let mut pace = Pace::new();
        let mut n_silences = 0;
        while pace.n_rows() > 1 {
            pace.took_too_long(pace.n_rows());
            n_silences += 1;
        }
        assert_eq!(n_silences, 8);
        pace.took_too_long(1);
        assert_eq!(pace.n_rows(), 1);
        for _ in 0..9 * SUCCESSES {
            pace.succeeded();
        }
        assert_eq!(pace.n_rows(), ROWS_AT_ONCE);
    }
}
