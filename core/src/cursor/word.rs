//! Packs the cursor's word: a generation in the high bits, an offset in the low bits.
//!
//! An offset counts the numbers taken from the generation's block. Its 33 bits hold twice the
//! longest block. So late increments, at most one for each thread, never reach the generation.

/// Sets how many bits the offset has.
const OFFSET_BITS: u32 = 33;

const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Masks a generation, because generations count modulo 2^31.
const GENERATION_MASK: u64 = (1 << (u64::BITS - OFFSET_BITS)) - 1;

/// Marks a slot of no generation. No generation has this number.
pub(crate) const NO_GENERATION: u64 = u64::MAX;

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
