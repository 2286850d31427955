//! The cursor's word: a generation in its high bits, an offset in its low bits.
//!
//! An offset counts the numbers taken of the generation's block. Its 33 bits hold twice the
//! longest block, so that late increments, at most one a thread, never reach the generation.

use crate::sync::{AtomicU64, Ordering};

/// Bits of the offset.
const OFFSET_BITS: u32 = 33;

const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Generations count modulo 2^31.
const GENERATION_MASK: u64 = (1 << (u64::BITS - OFFSET_BITS)) - 1;

/// A number that no generation has.
pub(crate) const NO_GENERATION: u64 = u64::MAX;

/// The word, alone on its cache line, so that takers contend for it and for nothing else.
///
/// There is no plain store: each change is a read-modify-write that acquires and releases.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct CursorWord(AtomicU64);

impl CursorWord {
    /// A word to begin with.
    pub(crate) fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    /// The word as it is now.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Claims the offset that the word returned names.
    #[inline]
    pub(crate) fn claim(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Moves the word, if it is still `from`; says whether it did.
    #[inline]
    pub(crate) fn advance(&self, from: u64, to: u64) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Moves the word, wherever it is; returns where it was.
    pub(crate) fn swap(&self, to: u64) -> u64 {
        self.0.swap(to, Ordering::AcqRel)
    }
}

/// Puts a word together. `offset` fits its bits.
#[inline]
pub(crate) fn pack(generation: u64, offset: u64) -> u64 {
    debug_assert!(generation <= GENERATION_MASK && offset <= OFFSET_MASK);
    (generation << OFFSET_BITS) | offset
}

/// The generation of a word.
#[inline]
pub(crate) fn generation(word: u64) -> u64 {
    word >> OFFSET_BITS
}

/// The offset of a word.
#[inline]
pub(crate) fn offset(word: u64) -> u64 {
    word & OFFSET_MASK
}

/// The generation `n` after another one.
#[inline]
pub(crate) fn after(generation: u64, n: u64) -> u64 {
    generation.wrapping_add(n) & GENERATION_MASK
}

/// How many generations `later` is ahead of `earlier`.
#[inline]
pub(crate) fn distance(earlier: u64, later: u64) -> u64 {
    later.wrapping_sub(earlier) & GENERATION_MASK
}
