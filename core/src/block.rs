//! Defines blocks: contiguous numbers that one store write reserves.

use thiserror::Error;

/// Bounds the numbers of one block: 2^32.
pub const MAX_COUNT: u64 = 1 << 32;

/// Contiguous numbers of one sequence: `first`, `first + step`, … . A block is never empty.
///
/// The number after the last one, [`Block::end`], still fits an `i64`. So no arithmetic on a block
/// can overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    first: i64,
    count: u64,
    step: i64,
}

/// Says why numbers are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidBlock {
    /// The first number is below 0.
    #[error("A block may not start at {first}, below 0.")]
    NegativeFirst {
        /// The first number.
        first: i64,
    },
    /// The count is 0, or more than [`MAX_COUNT`].
    #[error("A block of {count} numbers is not possible; it holds 1 to {MAX_COUNT}.")]
    Count {
        /// The count that was asked for.
        count: u64,
    },
    /// The distance between two numbers is below 1.
    #[error("A block's step may not be {step}; the least is 1.")]
    Step {
        /// The distance between two numbers.
        step: i64,
    },
    /// The number after the last one is above 2^63 − 1.
    #[error("A block of {count} numbers from {first} in steps of {step} ends above 2^63 - 1.")]
    TooFar {
        /// The first number.
        first: i64,
        /// The count that was asked for.
        count: u64,
        /// The distance between two numbers.
        step: i64,
    },
}

impl Block {
    /// Creates the block of `count` numbers that starts at `first`, with the distance `step`.
    ///
    /// # Errors
    /// [`InvalidBlock`] unless `first >= 0`, `1 <= count <= MAX_COUNT`, `step >= 1` and `first +
    /// count * step <= i64::MAX`.
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

    /// Creates a part of a block that [`Block::new`] has checked already.
    pub(crate) fn part(first: i64, count: u64, step: i64) -> Self {
        debug_assert!(Self::new(first, count, step).is_ok());
        Self { first, count, step }
    }

    /// Returns the first number.
    #[must_use]
    pub fn first(&self) -> i64 {
        self.first
    }

    /// Returns the last number.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.end() - self.step
    }

    /// Returns how many numbers the block has: 1 to [`MAX_COUNT`].
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the distance between two numbers: 1 or more.
    #[must_use]
    pub fn step(&self) -> i64 {
        self.step
    }

    /// Returns the first number after the block: `last + step`.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.at(self.count)
    }

    /// Returns the number at an offset. The first number has offset 0. `None` if the offset is
    /// `count` or more.
    #[must_use]
    pub fn value_at(&self, offset: u64) -> Option<i64> {
        (offset < self.count).then(|| self.at(offset))
    }

    /// Returns whether the block has `number`.
    #[must_use]
    pub fn contains(&self, number: i64) -> bool {
        (self.first..=self.last()).contains(&number) && (number - self.first) % self.step == 0
    }

    /// Splits the block into its first `n` numbers and the rest. If the block has fewer than `n`
    /// numbers, the first part is the whole block.
    #[must_use]
    pub fn split_front(self, n: u64) -> (Option<Self>, Option<Self>) {
        let n = n.min(self.count);
        let front = (n > 0).then(|| Self::part(self.first, n, self.step));
        let rest = (n < self.count).then(|| Self::part(self.at(n), self.count - n, self.step));
        (front, rest)
    }

    /// Returns the block of these numbers and those of `next`. `None` if `next` does not go on where
    /// this block ends, or if both together have more than [`MAX_COUNT`] numbers.
    #[must_use]
    pub fn joined(self, next: Self) -> Option<Self> {
        let goes_on = self.step == next.step && self.end() == next.first;
        let count = self.count.checked_add(next.count).filter(|_| goes_on)?;
        Self::new(self.first, count, self.step).ok()
    }

    /// Counts the numbers of the block that are `first` or above.
    ///
    /// `first` is a number of the block, or lies below or above the whole block.
    #[must_use]
    pub fn count_from(&self, first: i64) -> u64 {
        let n_below = first
            .checked_sub(self.first)
            .and_then(|span| u64::try_from(span).ok())
            .map_or(0, |span| span.div_ceil(self.step.unsigned_abs()));
        self.count.saturating_sub(n_below)
    }

    /// Returns the numbers of the block in ascending order.
    pub fn values(&self) -> impl Iterator<Item = i64> + use<> {
        let block = *self;
        (0..block.count).map(move |offset| block.at(offset))
    }

    /// Returns the number at an offset. `offset <= count`, so nothing overflows: see
    /// [`Block::new`].
    fn at(&self, offset: u64) -> i64 {
        self.first + offset.cast_signed() * self.step
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests may fail loudly"
    )]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_knows_its_numbers() {
        let block = Block::new(10, 3, 5).unwrap();
        assert_eq!((block.first(), block.last(), block.end()), (10, 20, 25));
        assert_eq!((block.count(), block.step()), (3, 5));
        assert_eq!(block.values().collect::<Vec<_>>(), [10, 15, 20]);
        let numbers: Vec<i64> = (0..40).filter(|number| block.contains(*number)).collect();
        assert_eq!(numbers, [10, 15, 20]);
        assert_eq!(block.value_at(2), Some(20));
        assert_eq!(block.value_at(3), None);
        assert_eq!(block.value_at(u64::MAX), None);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let negative = InvalidBlock::NegativeFirst { first: -1 };
        assert_eq!(Block::new(-1, 1, 1), Err(negative));
        for count in [0, MAX_COUNT + 1, u64::MAX] {
            assert_eq!(Block::new(0, count, 1), Err(InvalidBlock::Count { count }));
        }
        for step in [0, -1, i64::MIN] {
            assert_eq!(Block::new(0, 1, step), Err(InvalidBlock::Step { step }));
        }
    }

    #[test]
    fn the_number_after_a_block_still_fits() {
        let last = Block::new(i64::MAX - 1, 1, 1).unwrap();
        assert_eq!((last.last(), last.end()), (i64::MAX - 1, i64::MAX));
        for (first, count, step) in [
            (i64::MAX, 1, 1),
            (i64::MAX - 1, 2, 1),
            (1, 1, i64::MAX),
            (0, MAX_COUNT, i64::MAX),
        ] {
            assert_eq!(
                Block::new(first, count, step),
                Err(InvalidBlock::TooFar { first, count, step })
            );
        }
    }

    #[test]
    fn two_blocks_are_one_if_the_second_goes_on_where_the_first_ends() {
        let block = |first, count, step| Block::new(first, count, step).unwrap();
        let first = block(1, 3, 2);
        assert_eq!(first.joined(block(7, 2, 2)), Some(block(1, 5, 2)));
        for next in [block(9, 2, 2), block(7, 2, 1), block(1, 2, 2)] {
            assert_eq!(first.joined(next), None);
        }
        let half = block(1, MAX_COUNT / 2 + 1, 1);
        assert_eq!(half.joined(block(half.end(), MAX_COUNT / 2, 1)), None);
    }

    #[test]
    fn a_block_splits_at_either_end_too() {
        let block = Block::new(1, 3, 2).unwrap();
        assert_eq!(block.split_front(0), (None, Some(block)));
        assert_eq!(block.split_front(3), (Some(block), None));
        assert_eq!(block.split_front(u64::MAX), (Some(block), None));
    }

    proptest! {
        #![proptest_config(crate::tests::properties())]

        #[test]
        fn splitting_keeps_every_number(
            first in 0..i64::MAX / 2,
            count in 1_u64..100,
            step in 1_i64..1 << 40,
            n in 0_u64..110,
        ) {
            let block = Block::new(first, count, step).unwrap();
            let (front, rest) = block.split_front(n);
            prop_assert_eq!(front.map_or(0, |front| front.count()), n.min(count));
            let parts = front.iter().chain(&rest).flat_map(Block::values);
            prop_assert!(parts.eq(block.values()));
            if let (Some(front), Some(rest)) = (front, rest) {
                prop_assert_eq!(front.end(), rest.first());
            }
        }

        #[test]
        fn a_block_is_made_exactly_when_its_end_fits(
            first in any::<i64>(),
            count in prop_oneof![any::<u64>(), 0..MAX_COUNT + 2],
            step in prop_oneof![any::<i64>(), -1_i64..1000],
        ) {
            let end = i128::from(first) + i128::from(count) * i128::from(step);
            let fits = first >= 0
                && (1..=MAX_COUNT).contains(&count)
                && step >= 1
                && end <= i128::from(i64::MAX);
            let block = Block::new(first, count, step);
            prop_assert_eq!(block.is_ok(), fits);
            if let Ok(block) = block {
                prop_assert_eq!(i128::from(block.end()), end);
                prop_assert_eq!(i128::from(block.last()), end - i128::from(step));
            }
        }
    }
}
