//! Guesses the state of the word for takers: a generation, and whether it is spent.
//!
//! A taker could read the word right before it increments the word. That would fetch the cache line
//! twice, once to read and once to write. With two threads, this more than halves what they take:
//! 0.42 of a bare `fetch_add`, against 0.85 with the guess. So the path of one number reads the
//! guess. The guess lies on another cache line, and changes at most twice for each generation.
//!
//! A guess may lag behind the word. It is never ahead of the word, and it never goes back. What a
//! taker learns about the word by its increment, it writes into the guess.
//!
//! The guess is packed like the word. The offset is 0 for a generation that may have numbers left,
//! and 1 for a generation that is spent. So the values of the guess ascend as the values of the
//! word do, modulo 2^64.

use super::word::{generation, offset, pack};
use crate::sync::{AtomicU64, Ordering};

/// The guess of a cursor.
#[derive(Debug)]
pub(crate) struct Guess(AtomicU64);

/// Packs the guess that a generation may have numbers left.
#[inline]
pub(crate) fn live(generation: u64) -> u64 {
    pack(generation, 0)
}

/// Packs the guess that a generation has no numbers left.
#[inline]
pub(crate) fn spent(generation: u64) -> u64 {
    pack(generation, 1)
}

impl Guess {
    /// Creates the guess with its first value.
    pub(crate) fn new(at: u64) -> Self {
        Self(AtomicU64::new(at))
    }

    /// Returns the generation that is worth an increment; `None` if the taker must read the word
    /// first.
    #[inline]
    pub(crate) fn worth_a_claim(&self) -> Option<u64> {
        let guess = self.0.load(Ordering::Acquire);
        (offset(guess) == 0).then_some(generation(guess))
    }

    /// Moves the guess to what the caller has seen of the word. The guess never goes back.
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

/// Returns whether a guess is ahead of another one, by less than half of all values.
fn is_later(guess: u64, than: u64) -> bool {
    guess.wrapping_sub(than).cast_signed() > 0
}
