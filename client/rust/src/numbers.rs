//! The numbers of one sequence: what the cursor gives without a lock, and what is behind it.
//!
//! A block is moved to the cursor in pieces. At the end of each piece the taker comes here, so the
//! rate is known, and a prefetch starts in time, although most takers never come here.

use std::{collections::VecDeque, time::Instant};

use odometer_core::{block::Block, cursor::Cursor};

use crate::{
    buffer::{Buffer, Item, Run},
    size::Size,
};

/// How many pieces a block has, if it has enough numbers.
const PIECES: u64 = 64;
/// The most numbers of a slice, which is a piece at most.
const MAX_SLICE: u64 = 1024;

/// All numbers of a stock but those of the cursor, which is an argument: the *front*.
pub(crate) struct Numbers {
    buffer: Buffer,
    /// The blocks of which numbers are left.
    blocks: VecDeque<BlockMark>,
    /// How many numbers were added since the last clearing.
    n_added: u64,
    /// How many numbers of the front are counted in the rate.
    n_noted: u64,
    /// Whether numbers get too old. Then each take looks at the clock, so the front stays empty.
    has_age: bool,
    pub(crate) size: Size,
}

/// A block, as it was added.
struct BlockMark {
    size: u64,
    /// How many numbers had been added with it.
    end: u64,
}

impl Numbers {
    pub(crate) fn new(initial_size: u64, has_age: bool) -> Self {
        Self {
            buffer: Buffer::default(),
            blocks: VecDeque::new(),
            n_added: 0,
            n_noted: 0,
            has_age,
            size: Size::new(initial_size),
        }
    }

    /// Returns how many numbers are in memory.
    pub(crate) fn left(&self, front: &Cursor) -> u64 {
        front.remaining() + self.buffer.left()
    }

    /// Adds a block behind the others.
    pub(crate) fn add(&mut self, runs: Vec<Run>) {
        let size = self.buffer.add(runs);
        self.n_added += size;
        if size > 0 {
            let end = self.n_added;
            self.blocks.push_back(BlockMark { size, end });
        }
    }

    /// Counts in the rate what was taken from the front.
    pub(crate) fn note_front(&mut self, front: &Cursor, now: Instant) {
        let n_issued = front.issued();
        let count = n_issued.saturating_sub(self.n_noted);
        self.n_noted = n_issued;
        if count > 0 {
            self.size.rate.note(now, count);
        }
    }

    /// Takes the next number.
    pub(crate) fn take(&mut self, front: &Cursor, now: Instant) -> Option<Item> {
        if let Some(taken) = front.take() {
            return Some(Item::plain(taken.value));
        }
        let item = self.buffer.take()?;
        self.size.rate.note(now, 1);
        Some(item)
    }

    /// Takes an unbroken range, if there is one. If not, all numbers stay.
    pub(crate) fn take_range(&mut self, front: &Cursor, count: u64, now: Instant) -> Option<Block> {
        if let Some(range) = range_of_front(front, count) {
            return Some(range);
        }
        for block in front.close().into_iter().rev() {
            self.buffer.put_back(block, now);
        }
        let range = self.buffer.take_range(count);
        if range.is_some() {
            self.size.rate.note(now, count);
        }
        self.fill_front(front);
        range
    }

    /// Takes some numbers for one thread.
    pub(crate) fn take_slice(&mut self, front: &Cursor, now: Instant) -> Option<Block> {
        let most = if self.has_age {
            1
        } else {
            self.piece().min(MAX_SLICE)
        };
        if let Some(slice) = self.buffer.take_piece(most) {
            self.size.rate.note(now, slice.count());
            return Some(slice);
        }
        let in_front = front.rest().first().map_or(0, Block::count);
        range_of_front(front, most.min(in_front)).or_else(|| {
            let item = self.take(front, now)?;
            Block::new(item.value, 1, 1).ok()
        })
    }

    /// Takes back what a slice did not use. It comes next.
    pub(crate) fn give_back(&mut self, rest: Block, now: Instant) {
        self.buffer.put_back(rest, now);
        self.size.rate.take_back(rest.count());
    }

    /// Moves numbers to the front, as far as it has room.
    pub(crate) fn fill_front(&mut self, front: &Cursor) {
        while !self.has_age && front.room() > 0 {
            let piece = self.piece();
            let Some(block) = self.buffer.take_piece(piece) else {
                return;
            };
            // The take of its last number comes here again.
            if front.fill(block, 0).is_err() {
                self.buffer.put_back(block, Instant::now());
                return;
            }
        }
    }

    /// Returns whether it is time for a refill: one block is left, and little of it.
    pub(crate) fn is_low(&mut self, front: &Cursor, now: Instant) -> bool {
        let left = self.left(front);
        let n_taken = self.n_added.saturating_sub(left);
        while self.blocks.front().is_some_and(|it| it.end <= n_taken) {
            self.blocks.pop_front();
        }
        if self.blocks.len() > 1 {
            return false;
        }
        let size = self.blocks.front().map_or(0, |block| block.size);
        left == 0 || (left as f64) < self.size.low_water_mark(now, size)
    }

    /// Drops what was asked for before this time. Returns how many numbers.
    pub(crate) fn drop_older(&mut self, than: Instant) -> u64 {
        self.buffer.drop_older(than)
    }

    /// Drops everything. Returns how many numbers.
    pub(crate) fn clear(&mut self, front: &Cursor) -> u64 {
        let in_front: u64 = front.close().iter().map(Block::count).sum();
        self.blocks.clear();
        self.n_added = 0;
        in_front + self.buffer.clear()
    }

    /// Returns how many numbers are taken out of the buffer at once: a part of the block that the
    /// next one belongs to.
    fn piece(&self) -> u64 {
        let n_moved = self.n_added.saturating_sub(self.buffer.left());
        let block = self.blocks.iter().find(|block| block.end > n_moved);
        let size = block.map_or(0, |block| block.size);
        (size / PIECES).max(1)
    }
}

fn range_of_front(front: &Cursor, count: u64) -> Option<Block> {
    let batch = front.take_batch(count, true)?;
    batch.ranges.as_slice().first().copied()
}
