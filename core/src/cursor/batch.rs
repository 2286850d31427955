//! Takes many numbers at once: all of them or none, by one compare-exchange.

use super::Cursor;
use super::guess::live;
use super::slot::View;
use super::word::{generation, offset, pack};
use crate::block::Block;

/// The numbers of one batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenBatch {
    /// The numbers.
    pub ranges: Ranges,
    /// Whether this batch reached the low-water mark of a block. Only one taker gets this for each
    /// block.
    pub low_water: bool,
}

/// The numbers of one batch, in order: one range, or two if the batch went on into the next block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranges(Held);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    One([Block; 1]),
    Two([Block; 2]),
}

/// A filled generation, and how many of its numbers are taken.
#[derive(Clone, Copy)]
pub(crate) struct TakenPart {
    pub(crate) generation: u64,
    pub(crate) from: u64,
    pub(crate) view: View,
}

/// The result of one attempt to take a batch.
enum Attempt {
    Taken(TakenBatch),
    TooFew,
    /// The word moved during the attempt.
    Missed,
}

impl Cursor {
    /// Takes `count` numbers at once, all of them or none. `None` also if `count` is 0.
    ///
    /// The numbers come from the first block that has numbers left. If that block has too few, and
    /// `contiguous` is not set, the others come from the start of the next block. The call neither
    /// waits nor allocates.
    pub fn take_batch(&self, count: u64, contiguous: bool) -> Option<TakenBatch> {
        if count == 0 {
            return None;
        }
        loop {
            match self.attempt(count, contiguous) {
                Attempt::Taken(batch) => return Some(batch),
                Attempt::TooFew => return None,
                Attempt::Missed => {}
            }
        }
    }

    fn attempt(&self, count: u64, contiguous: bool) -> Attempt {
        let word = self.word.load();
        let Some(view) = self.slot(generation(word)).read(generation(word)) else {
            // This happens only if the word has gone on: the slot of the current generation is
            // never written.
            return Attempt::Missed;
        };
        let current = TakenPart {
            generation: generation(word),
            from: offset(word),
            view,
        };
        let part = if current.from < view.count {
            Some(current)
        } else {
            self.filled_after(current.generation)
        };
        let Some(part) = part else {
            return self.too_few(word);
        };
        let left = part.view.count - part.from;
        if count <= left {
            return self.take_within(word, &part, count);
        }
        if contiguous {
            return Attempt::TooFew;
        }
        match self.filled_after(part.generation) {
            Some(next) if count - left <= next.view.count => {
                self.take_across(word, &part, &next, count - left)
            }
            Some(_) => Attempt::TooFew,
            None => self.too_few(word),
        }
    }

    /// Decides what to return if no filled block was found. The answer is final only if the word is
    /// still in the generation that was read.
    fn too_few(&self, word: u64) -> Attempt {
        if self.is_in(generation(word)) {
            Attempt::TooFew
        } else {
            Attempt::Missed
        }
    }

    fn take_within(&self, word: u64, part: &TakenPart, count: u64) -> Attempt {
        let end = part.from + count;
        if !self.word.advance(word, pack(part.generation, end)) {
            return Attempt::Missed;
        }
        self.guess.learn(live(part.generation));
        Attempt::Taken(TakenBatch {
            ranges: Ranges::one(part.view.range(part.from, count)),
            low_water: self.signal(part, end - 1),
        })
    }

    /// Takes all numbers that are left in `part`, and `more` numbers of `next`.
    fn take_across(&self, word: u64, part: &TakenPart, next: &TakenPart, more: u64) -> Attempt {
        if !self.word.advance(word, pack(next.generation, more)) {
            return Attempt::Missed;
        }
        self.guess.learn(live(next.generation));
        let left = part.view.count - part.from;
        let signals = [
            self.signal(part, part.view.count - 1),
            self.signal(next, more - 1),
        ];
        Attempt::Taken(TakenBatch {
            ranges: Ranges::two(part.view.range(part.from, left), next.view.range(0, more)),
            low_water: signals.contains(&true),
        })
    }
}

impl Ranges {
    /// Creates one unbroken range.
    #[must_use]
    pub fn one(range: Block) -> Self {
        Self(Held::One([range]))
    }

    /// Creates two ranges. The numbers of `first` come first.
    #[must_use]
    pub fn two(first: Block, second: Block) -> Self {
        Self(Held::Two([first, second]))
    }

    /// Returns the ranges, one or two.
    #[must_use]
    pub fn as_slice(&self) -> &[Block] {
        match &self.0 {
            Held::One(ranges) => ranges,
            Held::Two(ranges) => ranges,
        }
    }

    /// Iterates over the ranges, one or two.
    pub fn iter(&self) -> std::slice::Iter<'_, Block> {
        self.as_slice().iter()
    }

    /// Returns how many numbers the ranges have together.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().map(Block::count).sum()
    }
}

impl<'a> IntoIterator for &'a Ranges {
    type Item = &'a Block;
    type IntoIter = std::slice::Iter<'a, Block>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
