//! Packs the ticker's word and its limit: `[closed:1][worker][position]`.

use super::super::layout::Layout;

/// Marks a word from which nothing is issued.
pub(crate) const CLOSED: u64 = 1 << 63;

/// Marks a limit as spent: there is no position below it to claim.
pub(crate) const SPENT: u64 = 1;

/// The bits of a word's parts. They are the same for both orders of a layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    position_bits: u32,
    sequence_bits: u32,
}

impl Shape {
    /// Returns the shape for a layout. If no definition may have the layout, the shape means
    /// nothing.
    pub(crate) fn of(layout: &Layout) -> Self {
        let sequence_bits = layout.sequence.min(62);
        let position_bits = layout.time.saturating_add(sequence_bits);
        Self {
            position_bits: position_bits.clamp(1, 62),
            sequence_bits,
        }
    }

    /// Packs an open word. `position` must fit its bits.
    pub(crate) fn pack(self, worker: u32, position: u64) -> u64 {
        debug_assert!(position >> self.position_bits == 0);
        ((u64::from(worker) << self.position_bits) | position) & !CLOSED
    }

    pub(crate) fn worker(self, word: u64) -> u32 {
        let worker = (word & !CLOSED) >> self.position_bits;
        u32::try_from(worker).unwrap_or(u32::MAX)
    }

    /// Returns the position of a word.
    pub(crate) fn position(self, word: u64) -> u64 {
        word & ((1 << self.position_bits) - 1)
    }

    /// Returns the first position that may not be issued.
    pub(crate) fn limit(self, limit: u64) -> u64 {
        self.position(limit & !SPENT)
    }

    /// Returns the first position of a tick. `tick` must fit its bits.
    pub(crate) fn start_of(self, tick: u64) -> u64 {
        tick << self.sequence_bits
    }

    pub(crate) fn tick(self, position: u64) -> u64 {
        position >> self.sequence_bits
    }

    pub(crate) fn counter(self, position: u64) -> u64 {
        position & ((1 << self.sequence_bits) - 1)
    }

    /// Returns whether a word is open, has the worker id of a limit, and is below the limit.
    #[inline]
    pub(crate) fn is_below(self, word: u64, limit: u64) -> bool {
        let limit = limit & !SPENT;
        word < limit && (word ^ limit) >> self.position_bits == 0
    }
}

/// Returns whether nothing is issued from this word.
#[inline]
pub(crate) fn is_closed(word: u64) -> bool {
    word & CLOSED != 0
}

/// Returns whether there is nothing to claim below this limit.
#[inline]
pub(crate) fn is_spent(limit: u64) -> bool {
    limit & SPENT != 0
}
