//! Packs the cursor's word: a generation in the high bits, an offset in the low bits.
//!
//! An offset counts the numbers taken from the generation's block. Its 33 bits hold twice the
//! longest block. So late increments, at most one for each thread, never reach the generation.

use crate::sync::{AtomicU64, Ordering};

/// Sets how many bits the offset has.
const OFFSET_BITS: u32 = 33;

const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Masks a generation, because generations count modulo 2^31.
const GENERATION_MASK: u64 = (1 << (u64::BITS - OFFSET_BITS)) - 1;

/// Marks a slot of no generation. No generation has this number.
pub(crate) const NO_GENERATION: u64 = u64::MAX;

/// The cursor's word. It is alone on its cache line, so that takers contend only for the word.
///
/// There is no plain store. Each change is a read-modify-write that acquires and releases.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct CursorWord(AtomicU64);

impl CursorWord {
    /// Creates a word with its first value.
    pub(crate) fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    /// Returns the present value of the word.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Claims an offset: the one in the word that is returned.
    #[inline]
    pub(crate) fn claim(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Moves the word, if it is still `from`. It returns whether it moved the word.
    #[inline]
    pub(crate) fn advance(&self, from: u64, to: u64) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Moves the word from any value, and returns that value.
    pub(crate) fn swap(&self, to: u64) -> u64 {
        self.0.swap(to, Ordering::AcqRel)
    }
}

/// Packs a word. `offset` must fit its bits.
#[inline]
pub(crate) fn pack(generation: u64, offset: u64) -> u64 {
    debug_assert!(generation <= GENERATION_MASK && offset <= OFFSET_MASK);
    (generation << OFFSET_BITS) | offset
}

/// Returns the generation of a word.
#[inline]
pub(crate) fn generation(word: u64) -> u64 {
    word >> OFFSET_BITS
}

/// Returns the offset of a word.
#[inline]
pub(crate) fn offset(word: u64) -> u64 {
    word & OFFSET_MASK
}

/// Returns the generation that is `n` after another one.
#[inline]
pub(crate) fn after(generation: u64, n: u64) -> u64 {
    generation.wrapping_add(n) & GENERATION_MASK
}

/// Returns by how many generations `later` is ahead of `earlier`.
#[inline]
pub(crate) fn distance(earlier: u64, later: u64) -> u64 {
    later.wrapping_sub(earlier) & GENERATION_MASK
}
