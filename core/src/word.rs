//! Defines the atomic word for which takers contend: that of a cursor, and that of a ticker.

use crate::sync::{AtomicU64, Ordering};

/// An atomic word. It is alone on its cache line, so that takers contend only for the word.
///
/// There is no plain store. Each change is a read-modify-write that acquires and releases.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct AtomicWord(AtomicU64);

impl AtomicWord {
    /// Creates a word with its first value.
    pub(crate) fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    /// Returns the present value of the word.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Claims an offset or a position: the one in the word that is returned.
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

    /// Sets bits of the word, and returns the word before that.
    pub(crate) fn set(&self, bits: u64) -> u64 {
        self.0.fetch_or(bits, Ordering::AcqRel)
    }
}
