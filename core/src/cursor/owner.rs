//! Lets the owner fill a cursor and close it.

use thiserror::Error;

use super::guess::{live, spent};
use super::slot::View;
use super::word::{after, distance, generation, offset, pack};
use super::{Cursor, RING};
use crate::block::Block;
use crate::sync::Ordering;

/// Bounds the generations filled ahead of the current one. Together with the current one these are
/// three. The fourth slot stays free for a close.
pub(crate) const AHEAD: u64 = 2;

/// Says that the cursor has no free slot for another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the cursor has no free slot for another block")]
pub struct CursorFull;

impl Cursor {
    /// Returns how many more blocks [`fill`](Self::fill) accepts now: 0 to 3.
    ///
    /// Only the owner calls it. Takers can only raise the result.
    #[must_use]
    pub fn room(&self) -> usize {
        let word = self.word.load();
        let ahead = distance(generation(word), self.top.load(Ordering::Relaxed));
        // The next fill leaves a current block that is used up.
        let used_up = offset(word) >= self.owned(generation(word)).count;
        let room = (AHEAD + u64::from(used_up)).saturating_sub(ahead);
        usize::try_from(room).unwrap_or(RING)
    }

    /// Appends a block, which is issued after the blocks in the cursor. Only the owner calls it.
    ///
    /// The low-water signal is given by the take that leaves at most `low_water_left` numbers of
    /// this block. For 0 this is the take of the last number. From `block.count() - 1` on it is the
    /// take of the first number.
    ///
    /// # Errors
    /// [`CursorFull`] while two blocks are filled ahead of one in use. Nothing has changed then.
    pub fn fill(&self, block: Block, low_water_left: u64) -> Result<(), CursorFull> {
        self.leave_used_up();
        let current = generation(self.word.load());
        let top = self.top.load(Ordering::Relaxed);
        if distance(current, top) >= AHEAD {
            return Err(CursorFull);
        }
        let newest = self.owned(top);
        let view = View {
            first: block.first(),
            step: block.step(),
            count: block.count(),
            // A thread that moves on to the new block has used up or passed over all before it.
            issued_before: newest.issued(newest.count),
        };
        let new = after(top, 1);
        self.slot(new)
            .write(new, view, signal_at(view.count, low_water_left));
        self.top.store(new, Ordering::Relaxed);
        self.leave_used_up();
        Ok(())
    }

    /// Takes back all numbers that are left, at one instant. Only the owner calls it.
    ///
    /// Takes before that instant are issued, and takes after it find nothing. A later
    /// [`fill`](Self::fill) opens the cursor again.
    ///
    /// It returns exactly what no taker got, in the order in which it would have been issued.
    #[must_use = "what is returned is in nobody else's hands"]
    pub fn close(&self) -> Vec<Block> {
        let top = self.top.load(Ordering::Relaxed);
        let empty = after(top, 1);
        let earlier = self.word.load();
        let view = View {
            // Only the swap shows how many numbers are taken. Until then, this count may be too
            // low.
            issued_before: self.owned(generation(earlier)).issued(offset(earlier)),
            ..View::EMPTY
        };
        self.slot(empty).write(empty, view, 0);
        self.top.store(empty, Ordering::Relaxed);

        let word = self.word.swap(pack(empty, 0));
        self.guess.learn(spent(empty));
        let current = self.owned(generation(word));
        self.slot(empty)
            .set_issued_before(current.issued(offset(word)));

        let ahead = (1..=distance(generation(word), top))
            .filter_map(|n| self.owned(after(generation(word), n)).rest(0));
        current
            .rest(offset(word))
            .into_iter()
            .chain(ahead)
            .collect()
    }

    /// Reads the slot of a generation that is current or filled ahead. The read succeeds, because
    /// only the owner writes slots.
    fn owned(&self, generation: u64) -> View {
        let view = self.slot(generation).read(generation);
        debug_assert!(view.is_some());
        view.unwrap_or(View::EMPTY)
    }

    /// Moves the word on from a block that is used up, or from an empty generation, if the next
    /// block is filled. Then the slot is free again.
    fn leave_used_up(&self) {
        loop {
            let word = self.word.load();
            if offset(word) < self.owned(generation(word)).count {
                return;
            }
            let Some(next) = self.filled_after(generation(word)) else {
                return;
            };
            if self.word.advance(word, pack(next.generation, 0)) {
                self.guess.learn(live(next.generation));
                return;
            }
        }
    }
}

/// Returns the offset that a take must claim to leave at most `left` of `count` numbers. `count` is
/// 1 or more.
fn signal_at(count: u64, left: u64) -> u64 {
    (count - 1).saturating_sub(left)
}
