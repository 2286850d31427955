//! Where takers believe the word to be: a generation, and whether it is spent.
//!
//! Reading the word right before incrementing it would fetch its cache line twice, once to read
//! and once to write: with two threads that more than halves what they take (0.42 of a bare
//! `fetch_add`, against 0.85 this way). So the one-number path reads the guess, which changes
//! once a block and lies on another line. A guess may lag behind. It never leads, and it never
//! goes back: what a taker learns from the word by its increment, it writes here.
//!
//! Packed as twice the generation, plus one where it is spent: the values ascend as the word does,
//! modulo 2^32.

use super::atomic::{AtomicU64, Ordering};

/// Guesses count modulo 2^32: 31 bits of a generation and one more.
const MASK: u64 = (1 << 32) - 1;

/// The guess of a cursor.
#[derive(Debug)]
pub(super) struct Guess(AtomicU64);

/// A generation that may have numbers left.
#[inline]
pub(super) fn live(generation: u64) -> u64 {
    generation << 1
}

/// A generation known to have none left.
#[inline]
pub(super) fn spent(generation: u64) -> u64 {
    (generation << 1) | 1
}

impl Guess {
    /// A guess to begin with.
    pub(super) fn new(at: u64) -> Self {
        Self(AtomicU64::new(at))
    }

    /// The generation that is worth an increment; `None` where the word must be looked at first.
    #[inline]
    pub(super) fn worth_a_claim(&self) -> Option<u64> {
        let guess = self.0.load(Ordering::Acquire);
        (guess & 1 == 0).then_some(guess >> 1)
    }

    /// Moves the guess on to what the caller has seen of the word; never back.
    pub(super) fn learn(&self, at: u64) {
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
    let ahead = guess.wrapping_sub(than) & MASK;
    ahead != 0 && ahead <= MASK / 2
}
