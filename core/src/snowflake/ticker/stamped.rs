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

/// The ids of a batch as contiguous ranges. Each item is the first id of a range, and how many ids
/// it has.
///
/// Counted ids are one range. Ids that keep to the clock have one range for each tick, because the
/// worker id is below the tick.
#[derive(Clone, Debug)]
pub struct IdRanges {
    rest: IdBatch,
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

    /// Returns the tick of the last id.
    #[must_use]
    pub fn last_tick(&self) -> u64 {
        let last = self.position.saturating_add(self.count.saturating_sub(1));
        Shape::of(&self.layout).tick(last)
    }

    /// Returns the contiguous ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> IdRanges {
        IdRanges { rest: *self }
    }

    /// Returns the ids, ascending.
    pub fn ids(&self) -> impl Iterator<Item = i64> + use<> {
        let stamped = *self;
        (0..stamped.count).map(move |at| stamped.at(at))
    }

    fn at(&self, at: u64) -> i64 {
        let shape = Shape::of(&self.layout);
        let position = self.position.saturating_add(at);
        self.layout
            .compose(self.worker, shape.tick(position), shape.counter(position))
    }
}

impl Iterator for IdRanges {
    type Item = (i64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &mut self.rest;
        if rest.count == 0 {
            return None;
        }
        let first = rest.first();
        let counter = Shape::of(&rest.layout).counter(rest.position);
        let n = match rest.layout.high {
            High::Worker => rest.count,
            High::Time => rest.count.min(rest.layout.ids_a_tick() - counter),
        };
        rest.position = rest.position.saturating_add(n);
        rest.count -= n;
        Some((first, n))
    }
}

impl IntoIterator for &IdBatch {
    type Item = (i64, u64);
    type IntoIter = IdRanges;

    fn into_iter(self) -> IdRanges {
        self.ranges()
    }
}
