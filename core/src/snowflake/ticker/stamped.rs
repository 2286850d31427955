//! Holds the ids of one batch.

use super::super::layout::{High, Layout};
use super::shape::Shape;

/// The ids of one batch, ascending: contiguous positions of one worker id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdBatch {
    layout: Layout,
    worker: u32,
    position: u64,
    count: u64,
}

impl Layout {
    /// Returns sample ids, which show how ids look: `n` ids of worker id 0 from a tick on.
    #[must_use]
    pub fn sample(&self, tick: u64, n: u64) -> Vec<i64> {
        let first = Shape::of(self).start_of(tick);
        IdBatch::new(*self, 0, first, n).ids().collect()
    }
}

impl IdBatch {
    pub(crate) fn new(layout: Layout, worker: u32, position: u64, count: u64) -> Self {
        Self {
            layout,
            worker,
            position,
            count,
        }
    }

    /// Returns the worker id of the ids.
    #[must_use]
    pub fn worker(&self) -> u32 {
        self.worker
    }

    /// Returns how many ids the batch has: 1 or more.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first and lowest id.
    #[must_use]
    pub fn first(&self) -> i64 {
        self.at(0)
    }

    /// Returns the last and highest id.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.at(self.count.saturating_sub(1))
    }

    /// Returns the ids as contiguous ranges, ascending. Each item is the first id of a range, and
    /// how many ids it has.
    ///
    /// Counted ids are one range. Ids that keep to the clock have one range for each tick, because
    /// the worker id is below the tick.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, u64)> + use<> {
        let mut rest = *self;
        std::iter::from_fn(move || rest.take_range())
    }

    /// Returns the ids, ascending.
    pub fn ids(&self) -> impl Iterator<Item = i64> + use<> {
        let stamped = *self;
        (0..stamped.count).map(move |at| stamped.at(at))
    }

    /// Takes the first contiguous range of the batch; `None` if nothing is left.
    fn take_range(&mut self) -> Option<(i64, u64)> {
        if self.count == 0 {
            return None;
        }
        let first = self.first();
        let counter = Shape::of(&self.layout).counter(self.position);
        let n = match self.layout.high {
            High::Worker => self.count,
            High::Time => self.count.min(self.layout.ids_a_tick() - counter),
        };
        self.position = self.position.saturating_add(n);
        self.count -= n;
        Some((first, n))
    }

    fn at(&self, at: u64) -> i64 {
        let shape = Shape::of(&self.layout);
        let position = self.position.saturating_add(at);
        self.layout
            .compose(self.worker, shape.tick(position), shape.counter(position))
    }
}
