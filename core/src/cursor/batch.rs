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

/// The numbers of one batch, in order: one range, or two if the batch went on into a next block that
/// does not begin where the block before it ends.
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

/// Says why one attempt took no batch.
enum NotTaken {
    TooFew,
    /// The word moved during the attempt.
    Missed,
}

impl Cursor {
    /// Takes `count` numbers at once, all of them or none. `None` also if `count` is 0.
    ///
    /// The numbers come from the first block that has numbers left. If that block has too few, the
    /// others come from the start of the next block. If `contiguous` is set, they do so only if the
    /// next block begins where the first one ends. The call neither waits nor allocates.
    pub fn take_batch(&self, count: u64, contiguous: bool) -> Option<TakenBatch> {
        if count == 0 {
            return None;
        }
        loop {
            let word = self.word.load();
            let Some(view) = self.slot(generation(word)).read(generation(word)) else {
                // This happens only if the word has gone on: the slot of the current generation is
                // never written.
                continue;
            };
            let current = TakenPart {
                generation: generation(word),
                from: offset(word),
                view,
            };
            // The common case returns from here, so that its result is not copied on the way out.
            // `bench/run --row core` measures batches.
            if count <= current.left() {
                if let Some(batch) = self.take_within(word, &current, count) {
                    return Some(batch);
                }
                continue;
            }
            match self.take_at_end(word, current, count, contiguous) {
                Ok(batch) => return Some(batch),
                Err(NotTaken::TooFew) => return None,
                Err(NotTaken::Missed) => {}
            }
        }
    }

    /// Takes `count` numbers in one range, like [`take_batch`](Self::take_batch), but may pass over the
    /// rest of a block and take them from the start of the next one. Returns also how many numbers it
    /// passed over: nobody gets them.
    ///
    /// It passes over fewer numbers than `count`, and at most one part in `part_of_next` of the next
    /// block, which is 1 or more.
    pub fn take_beyond(&self, count: u64, part_of_next: u64) -> Option<(TakenBatch, u64)> {
        if count == 0 {
            return None;
        }
        loop {
            match self.try_beyond(self.word.load(), count, part_of_next) {
                Ok(taken) => return Some(taken),
                Err(NotTaken::TooFew) => return None,
                Err(NotTaken::Missed) => {}
            }
        }
    }

    fn try_beyond(
        &self,
        word: u64,
        count: u64,
        part_of_next: u64,
    ) -> Result<(TakenBatch, u64), NotTaken> {
        let view = self.slot(generation(word)).read(generation(word));
        let current = TakenPart {
            generation: generation(word),
            from: offset(word),
            view: view.ok_or(NotTaken::Missed)?,
        };
        let first = self.first_left(word, current)?;
        if count <= first.left() {
            let taken = self.take_within(word, &first, count);
            return Ok((taken.ok_or(NotTaken::Missed)?, 0));
        }
        let next = self.filled_after(first.generation);
        let next = next.ok_or_else(|| self.too_few(word))?;
        let most = next.left().checked_div(part_of_next).unwrap_or(0);
        if count > next.left() || first.left() > most {
            return Err(NotTaken::TooFew);
        }
        let range = Ranges::one(next.view.range(0, count));
        let taken = self.take_across(word, (&first, &next), range, count)?;
        Ok((taken, first.left()))
    }

    /// Returns the first block that has numbers left.
    fn first_left(&self, word: u64, current: TakenPart) -> Result<TakenPart, NotTaken> {
        if current.left() > 0 {
            return Ok(current);
        }
        let next = self.filled_after(current.generation);
        next.ok_or_else(|| self.too_few(word))
    }

    /// Takes a batch for which the current block has too few numbers.
    #[cold]
    fn take_at_end(
        &self,
        word: u64,
        current: TakenPart,
        count: u64,
        contiguous: bool,
    ) -> Result<TakenBatch, NotTaken> {
        let first = self.first_left(word, current)?;
        if count <= first.left() {
            let taken = self.take_within(word, &first, count);
            return taken.ok_or(NotTaken::Missed);
        }
        let more = count - first.left();
        let Some(next) = self.filled_after(first.generation) else {
            return Err(self.too_few(word));
        };
        if more > next.left() {
            return Err(NotTaken::TooFew);
        }
        let left = first.view.range(first.from, first.left());
        let ranges = Ranges::of(left, next.view.range(0, more));
        match contiguous && ranges.as_slice().len() > 1 {
            true => Err(NotTaken::TooFew),
            false => self.take_across(word, (&first, &next), ranges, more),
        }
    }

    /// Decides what to return if no filled block was found. The answer is final only if the word is
    /// still in the generation that was read.
    fn too_few(&self, word: u64) -> NotTaken {
        if self.is_in(generation(word)) {
            NotTaken::TooFew
        } else {
            NotTaken::Missed
        }
    }

    /// Takes from one block; `None` if the word moved.
    #[inline]
    fn take_within(&self, word: u64, part: &TakenPart, count: u64) -> Option<TakenBatch> {
        let end = part.from + count;
        if !self.word.advance(word, pack(part.generation, end)) {
            return None;
        }
        self.guess.learn(live(part.generation));
        Some(TakenBatch {
            ranges: Ranges::one(part.view.range(part.from, count)),
            low_water: self.signal(part, end - 1),
        })
    }

    /// Takes `ranges`, and moves from `part`, whatever is left of it, to offset `more` of `next`.
    fn take_across(
        &self,
        word: u64,
        (part, next): (&TakenPart, &TakenPart),
        ranges: Ranges,
        more: u64,
    ) -> Result<TakenBatch, NotTaken> {
        if !self.word.advance(word, pack(next.generation, more)) {
            return Err(NotTaken::Missed);
        }
        self.guess.learn(live(next.generation));
        let signals = [
            self.signal(part, part.view.count - 1),
            self.signal(next, more - 1),
        ];
        Ok(TakenBatch {
            ranges,
            low_water: signals.contains(&true),
        })
    }
}

impl TakenPart {
    /// Returns how many numbers are left. The offset of a word may be past the last number.
    fn left(&self) -> u64 {
        self.view.count.saturating_sub(self.from)
    }
}

impl Ranges {
    /// Creates one unbroken range.
    #[must_use]
    pub fn one(range: Block) -> Self {
        Self(Held::One([range]))
    }

    /// Creates the ranges of two parts. The numbers of `first` come first.
    #[must_use]
    pub fn of(first: Block, second: Block) -> Self {
        let two = Held::Two([first, second]);
        Self(first.joined(second).map_or(two, |both| Held::One([both])))
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
