//! The numbers in memory that no cursor has yet, in runs. It knows no I/O, no lock and no clock.

use std::{collections::VecDeque, time::Instant};

use odometer_core::block::Block;

/// A number, and its printed form if the service printed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) value: i64,
    pub(crate) id: Option<String>,
}

impl Item {
    pub(crate) fn plain(value: i64) -> Self {
        Self { value, id: None }
    }

    /// Returns the printed form. Without one from the service, it is the bare number.
    pub(crate) fn printed(self) -> String {
        self.id.unwrap_or_else(|| self.value.to_string())
    }
}

/// Numbers at an even distance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) numbers: Block,
    /// The printed form of each number, if the service printed them.
    pub(crate) ids: Option<VecDeque<String>>,
    /// When the numbers were asked for.
    pub(crate) born: Instant,
}

/// Runs in the order in which their numbers are given.
#[derive(Default)]
pub(crate) struct Buffer {
    runs: VecDeque<Run>,
    left: u64,
}

impl Buffer {
    /// Returns how many numbers there are.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Adds runs behind the others. Returns how many numbers they have.
    pub(crate) fn add(&mut self, runs: Vec<Run>) -> u64 {
        let count = count(&runs);
        self.left += count;
        self.runs.extend(runs);
        count
    }

    /// Puts numbers before all others, as if they had not been taken.
    pub(crate) fn put_back(&mut self, numbers: Block, born: Instant) {
        self.left += numbers.count();
        if let Some(first) = self.runs.front_mut()
            && first.ids.is_none()
            && let Some(joined) = joined(&numbers, &first.numbers)
        {
            first.numbers = joined;
            return;
        }
        self.runs.push_front(Run {
            numbers,
            ids: None,
            born,
        });
    }

    /// Takes the next number.
    pub(crate) fn take(&mut self) -> Option<Item> {
        let run = self.cut(0, 1)?;
        Some(Item {
            value: run.numbers.first(),
            id: run.ids.and_then(|mut ids| ids.pop_front()),
        })
    }

    /// Takes an unbroken range, of the first run that has so many. Nothing else moves.
    pub(crate) fn take_range(&mut self, count: u64) -> Option<Block> {
        let mut runs = self.runs.iter();
        let at = runs.position(|run| run.numbers.count() >= count)?;
        Some(self.cut(at, count)?.numbers)
    }

    /// Takes up to `most` of the next numbers, as far as they are one range. `None` also if they
    /// have printed forms.
    pub(crate) fn take_piece(&mut self, most: u64) -> Option<Block> {
        if self.runs.front()?.ids.is_some() {
            return None;
        }
        Some(self.cut(0, most)?.numbers)
    }

    /// Drops the first runs, as far as they were asked for before this time. Returns how many
    /// numbers they had.
    pub(crate) fn drop_older(&mut self, than: Instant) -> u64 {
        let before = self.left;
        while self.runs.front().is_some_and(|run| run.born < than) {
            let dropped = self.runs.pop_front();
            self.left -= dropped.map_or(0, |run| run.numbers.count());
        }
        before - self.left
    }

    /// Drops everything. Returns how many numbers there were.
    pub(crate) fn clear(&mut self) -> u64 {
        self.runs.clear();
        std::mem::take(&mut self.left)
    }

    /// Cuts up to `most` numbers off the start of a run.
    fn cut(&mut self, at: usize, most: u64) -> Option<Run> {
        let run = self.runs.get_mut(at)?;
        let (front, rest) = run.numbers.split_front(most);
        let numbers = front?;
        self.left -= numbers.count();
        let Some(rest) = rest else {
            return self.runs.remove(at);
        };
        run.numbers = rest;
        let n_ids = usize::try_from(numbers.count()).unwrap_or(usize::MAX);
        let ids = run.ids.as_mut();
        Some(Run {
            numbers,
            ids: ids.map(|ids| ids.drain(..n_ids.min(ids.len())).collect()),
            born: run.born,
        })
    }
}

/// Returns how many numbers runs have together.
pub(crate) fn count(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.numbers.count()).sum()
}

/// Returns one block of the numbers of two, if the second goes on where the first ends.
fn joined(first: &Block, second: &Block) -> Option<Block> {
    let is_next = first.step() == second.step() && first.end() == second.first();
    let count = first.count().checked_add(second.count())?;
    let joined = Block::new(first.first(), count, first.step()).ok();
    joined.filter(|_| is_next)
}
