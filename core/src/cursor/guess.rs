//! Where takers believe the word to be: a generation, and whether it is spent.
//!
//! Reading the word right before incrementing it would fetch its cache line twice, once to read
//! and once to write: with two threads that more than halves what they take (0.42 of a bare
//! `fetch_add`, against 0.85 this way). So the one-number path reads the guess, which changes
//! once a block and lies on another line. A guess may lag behind. It never leads, and it never
//! goes back: what a taker learns from the word by its increment, it writes here.
//!
//! It is packed like the word, with offset 0 for a generation that may have numbers left and 1 for
//! one that is spent: so its values ascend as the word's do, modulo 2^64.

use super::word::{generation, offset, pack};
use crate::sync::{AtomicU64, Ordering};

/// The guess of a cursor.
#[derive(Debug)]
pub(crate) struct Guess(AtomicU64);

/// A generation that may have numbers left.
#[inline]
pub(crate) fn live(generation: u64) -> u64 {
    pack(generation, 0)
}

/// A generation known to have none left.
#[inline]
pub(crate) fn spent(generation: u64) -> u64 {
    pack(generation, 1)
}

impl Guess {
    /// A guess to begin with.
    pub(crate) fn new(at: u64) -> Self {
        Self(AtomicU64::new(at))
    }

    /// The generation that is worth an increment; `None` where the word must be looked at first.
    #[inline]
    pub(crate) fn worth_a_claim(&self) -> Option<u64> {
        let guess = self.0.load(Ordering::Acquire);
        (offset(guess) == 0).then_some(generation(guess))
    }

    /// Moves the guess on to what the caller has seen of the word; never back.
    pub(crate) fn learn(&self, at: u64) {
        let mut seen = self.0.load(Ordering::Relaxed);
        while is_later(at, seen) {
            match self
                .0
                .compare_exchange(seen, at, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }
}

/// Whether a guess is ahead of another one, by less than half of all there are.
fn is_later(guess: u64, than: u64) -> bool {
    guess.wrapping_sub(than).cast_signed() > 0
}
