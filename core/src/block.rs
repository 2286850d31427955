//! Blocks: contiguous numbers reserved by one store write.

use thiserror::Error;

/// The most numbers one block may hold: 2^32.
pub const MAX_COUNT: u64 = 1 << 32;

/// Contiguous numbers of one sequence: `first`, `first + step`, … , never empty.
///
/// The number after the last one, [`Block::end`], still fits an `i64`, so no arithmetic on a
/// block can overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    first: i64,
    count: u64,
    step: i64,
}

/// Why numbers are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidBlock {
    /// The first number is below 0.
    #[error("A block may not start at {first}, below 0.")]
    NegativeFirst {
        /// The first number.
        first: i64,
    },
    /// No number at all, or more than [`MAX_COUNT`].
    #[error("A block of {count} numbers is not possible; it holds 1 to {MAX_COUNT}.")]
    Count {
        /// The number of numbers.
        count: u64,
    },
    /// The distance between two numbers is below 1.
    #[error("A block's step may not be {step}; the least is 1.")]
    Step {
        /// The distance.
        step: i64,
    },
    /// The number after the last one is above 2^63 − 1.
    #[error("A block of {count} numbers from {first} in steps of {step} ends above 2^63 - 1.")]
    TooFar {
        /// The first number.
        first: i64,
        /// The number of numbers.
        count: u64,
        /// The distance.
        step: i64,
    },
}

impl Block {
    /// The block of `count` numbers from `first` on, `step` apart.
    ///
    /// # Errors
    /// [`InvalidBlock`] unless `first >= 0`, `1 <= count <= MAX_COUNT`, `step >= 1` and
    /// `first + count * step <= i64::MAX`.
    pub fn new(first: i64, count: u64, step: i64) -> Result<Self, InvalidBlock> {
        if first < 0 {
            return Err(InvalidBlock::NegativeFirst { first });
        }
        if count == 0 || count > MAX_COUNT {
            return Err(InvalidBlock::Count { count });
        }
        if step < 1 {
            return Err(InvalidBlock::Step { step });
        }
        count
            .cast_signed()
            .checked_mul(step)
            .and_then(|length| first.checked_add(length))
            .map(|_| Self { first, count, step })
            .ok_or(InvalidBlock::TooFar { first, count, step })
    }

    /// A part of a block that was checked when it was made.
    pub(crate) fn part(first: i64, count: u64, step: i64) -> Self {
        debug_assert!(Self::new(first, count, step).is_ok());
        Self { first, count, step }
    }

    /// The first number.
    #[must_use]
    pub fn first(&self) -> i64 {
        self.first
    }

    /// The last number.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.end() - self.step
    }

    /// How many numbers: 1 to [`MAX_COUNT`].
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The distance between two numbers: 1 or more.
    #[must_use]
    pub fn step(&self) -> i64 {
        self.step
    }

    /// The first number after it: `last + step`.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.at(self.count)
    }

    /// The number at an offset, the first one's being 0; `None` from `count` on.
    #[must_use]
    pub fn value_at(&self, offset: u64) -> Option<i64> {
        (offset < self.count).then(|| self.at(offset))
    }

    /// Its first `n` numbers, or all of them where it has fewer, and the rest.
    #[must_use]
    pub fn split_front(self, n: u64) -> (Option<Self>, Option<Self>) {
        let n = n.min(self.count);
        let front = (n > 0).then(|| Self::part(self.first, n, self.step));
        let rest = (n < self.count).then(|| Self::part(self.at(n), self.count - n, self.step));
        (front, rest)
    }

    /// Its numbers, ascending.
    pub fn values(&self) -> impl Iterator<Item = i64> + use<> {
        let block = *self;
        (0..block.count).map(move |offset| block.at(offset))
    }

    /// `offset <= count`, so nothing overflows: see [`Block::new`].
    fn at(&self, offset: u64) -> i64 {
        self.first + offset.cast_signed() * self.step
    }
}
