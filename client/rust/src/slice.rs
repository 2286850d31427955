//! Slices: numbers that one thread counts in plain memory.

use std::{fmt, sync::Arc};

use odometer_core::block::Block;

use crate::{error::Error, fork, source::NumberSource, stock::SliceGrant};

/// A small part of a sequence's numbers, for one thread. [`Sequence::local`] makes it.
///
/// It takes up to 1,024 numbers from memory at once, and at most 1/64 of a block. Its numbers
/// ascend until it takes others. If it is dropped, its rest is taken next. Where numbers get too
/// old, or have a printed form, it takes one number at once.
///
/// [`Sequence::local`]: crate::Sequence::local
pub struct Slice {
    source: Arc<NumberSource>,
    /// The number that is taken next, unless it is `end`.
    next: i64,
    end: i64,
    step: i64,
    /// The counts of changes and forks under which the numbers were taken from memory.
    n_changes: u64,
    n_forks: u64,
}

impl Slice {
    pub(crate) fn new(source: Arc<NumberSource>) -> Self {
        Self {
            source,
            next: 0,
            end: 0,
            step: 1,
            n_changes: 0,
            n_forks: 0,
        }
    }

    /// Takes the next number. Never waits for one: see [`Sequence::take`](crate::Sequence::take).
    ///
    /// # Errors
    /// Those of [`Sequence::take`](crate::Sequence::take). If memory is empty, you can wait by
    /// [`Sequence::next_blocking`](crate::Sequence::next_blocking).
    #[inline]
    pub fn take(&mut self) -> Result<i64, Error> {
        let value = self.next;
        if value != self.end && self.n_changes == fork::n_changes() {
            // `Block` has made sure that the number after the last one fits.
            self.next = value.wrapping_add(self.step);
            return Ok(value);
        }
        self.take_at_edge()
    }

    #[cold]
    fn take_at_edge(&mut self) -> Result<i64, Error> {
        self.give_back();
        self.n_forks = fork::n_forks();
        let grant = self.source.take_slice()?;
        self.n_changes = grant.n_changes;
        self.end = grant.numbers.end();
        self.step = grant.numbers.step();
        let value = grant.numbers.first();
        self.next = value.wrapping_add(self.step);
        Ok(value)
    }

    /// Gives what is left back to the memory, which drops it if it was told to forget since.
    fn give_back(&mut self) {
        let rest = self.rest();
        self.next = self.end;
        // After a fork it is the parent's.
        if let Some(numbers) = rest
            && self.n_forks == fork::n_forks()
        {
            self.source.give_back(SliceGrant {
                numbers,
                n_changes: self.n_changes,
            });
        }
    }

    fn rest(&self) -> Option<Block> {
        let distance = self.end.checked_sub(self.next)?;
        let count = u64::try_from(distance.checked_div(self.step)?).ok()?;
        Block::new(self.next, count, self.step).ok()
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.source.name.as_str();
        f.debug_tuple("Slice").field(&name).finish()
    }
}
