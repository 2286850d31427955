//! The ticker's word and its limit: `[closed:1][worker][position]`, and what stands where.

use super::super::layout::Layout;
use crate::sync::{AtomicU64, Ordering};

/// Set in a word of which nothing is issued.
pub(crate) const CLOSED: u64 = 1 << 63;

/// Set in a limit below which there is nothing to claim.
pub(crate) const SPENT: u64 = 1;

/// Where the parts of a word lie; those of both layouts lie alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    position_bits: u32,
    sequence_bits: u32,
}

/// The word, alone on its cache line, so that takers contend for it and for nothing else.
///
/// There is no plain store: each change is a read-modify-write that acquires and releases.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct TickerWord(AtomicU64);

impl Shape {
    /// The shape for a layout. Of one that no definition has, it is some shape.
    pub(crate) fn of(layout: &Layout) -> Self {
        let sequence_bits = layout.sequence.min(62);
        let position_bits = layout.time.saturating_add(sequence_bits);
        Self {
            position_bits: position_bits.clamp(1, 62),
            sequence_bits,
        }
    }

    /// Puts an open word together. A position has its bits at most.
    pub(crate) fn pack(self, worker: u32, position: u64) -> u64 {
        debug_assert!(position >> self.position_bits == 0);
        ((u64::from(worker) << self.position_bits) | position) & !CLOSED
    }

    pub(crate) fn worker(self, word: u64) -> u32 {
        let worker = (word & !CLOSED) >> self.position_bits;
        u32::try_from(worker).unwrap_or(u32::MAX)
    }

    /// The position of a word.
    pub(crate) fn position(self, word: u64) -> u64 {
        word & ((1 << self.position_bits) - 1)
    }

    /// The first position that is not to be issued.
    pub(crate) fn limit(self, limit: u64) -> u64 {
        self.position(limit & !SPENT)
    }

    /// Where the ids of a tick begin; `tick` fits its bits.
    pub(crate) fn start_of(self, tick: u64) -> u64 {
        tick << self.sequence_bits
    }

    pub(crate) fn tick(self, position: u64) -> u64 {
        position >> self.sequence_bits
    }

    pub(crate) fn counter(self, position: u64) -> u64 {
        position & ((1 << self.sequence_bits) - 1)
    }

    /// Whether a word is open, of the same worker as a limit, and below it.
    #[inline]
    pub(crate) fn is_below(self, word: u64, limit: u64) -> bool {
        let limit = limit & !SPENT;
        word < limit && (word ^ limit) >> self.position_bits == 0
    }
}

impl TickerWord {
    /// A word to begin with.
    pub(crate) fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    /// The word as it is now.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Claims the position that the word returned names.
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

    /// Writes an open word over a closed one.
    pub(crate) fn open(&self, to: u64) {
        self.0.swap(to, Ordering::AcqRel);
    }

    /// Closes the word; returns it as it was.
    pub(crate) fn close(&self) -> u64 {
        self.0.fetch_or(CLOSED, Ordering::AcqRel)
    }
}

/// Whether nothing is issued of this word.
#[inline]
pub(crate) fn is_closed(word: u64) -> bool {
    word & CLOSED != 0
}

/// Whether there is nothing to claim below this limit.
#[inline]
pub(crate) fn is_spent(limit: u64) -> bool {
    limit & SPENT != 0
}
