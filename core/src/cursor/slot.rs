//! Defines one slot of the cursor's ring: the block of one generation.
//!
//! Only the owner writes a slot, and only after the word has left the slot's former generation.
//! Takers change nothing but `edge`. All fields are atomic. So a read that comes too late sees
//! wrong numbers, but no undefined behaviour, and the generation shows that it came too late.

use super::word::{NO_GENERATION, generation, offset, pack};
use crate::block::Block;
use crate::sync::{AtomicI64, AtomicU64, Ordering, fence};

/// The block of one generation: a [`View`], and the edge.
#[derive(Debug)]
pub(crate) struct Slot {
    generation: AtomicU64,
    /// The offset from which a take must look further. Takes below it need to look at nothing else.
    ///
    /// The edge is the offset of the take that gives the low-water signal. After the signal it is
    /// `count`. It is never above `count`. It is packed like the word, so that a late change meets
    /// no other generation.
    edge: AtomicU64,
    first: AtomicI64,
    step: AtomicI64,
    count: AtomicU64,
    issued_before: AtomicU64,
}

/// The block of one generation, as it was read from its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) first: i64,
    pub(crate) step: i64,
    /// 0 for an empty generation.
    pub(crate) count: u64,
    /// The numbers taken from all generations before this one.
    pub(crate) issued_before: u64,
}

/// The fields of a slot that a take reads before its claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance {
    pub(crate) edge: u64,
    pub(crate) first: i64,
    pub(crate) step: i64,
}

impl Slot {
    /// Creates a slot of no generation.
    pub(crate) fn unused() -> Self {
        Self {
            generation: AtomicU64::new(NO_GENERATION),
            edge: AtomicU64::new(0),
            first: AtomicI64::new(0),
            step: AtomicI64::new(1),
            count: AtomicU64::new(0),
            issued_before: AtomicU64::new(0),
        }
    }

    /// Replaces what the slot holds. `signal_at` is at most `view.count`.
    ///
    /// Only the owner calls it, after it saw a word past the generation that is replaced.
    ///
    /// The order of the writes is that of a seqlock: no generation, then the fields, then the new
    /// generation. A thread that sees no generation also sees the word that the owner saw.
    pub(crate) fn write(&self, generation: u64, view: View, signal_at: u64) {
        debug_assert!(signal_at <= view.count);
        self.generation.store(NO_GENERATION, Ordering::Release);
        fence(Ordering::Release);
        self.edge
            .store(pack(generation, signal_at), Ordering::Relaxed);
        self.first.store(view.first, Ordering::Relaxed);
        self.step.store(view.step, Ordering::Relaxed);
        self.count.store(view.count, Ordering::Relaxed);
        self.issued_before
            .store(view.issued_before, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
    }

    /// Corrects how many numbers were taken before this generation. Only the owner calls it.
    pub(crate) fn set_issued_before(&self, issued_before: u64) {
        self.issued_before.store(issued_before, Ordering::Release);
    }

    /// Reads the block, if the slot is of this generation before and after the read.
    pub(crate) fn read(&self, generation: u64) -> Option<View> {
        if self.generation.load(Ordering::Acquire) != generation {
            return None;
        }
        let view = View {
            first: self.first.load(Ordering::Relaxed),
            step: self.step.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
            issued_before: self.issued_before.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.generation.load(Ordering::Relaxed) == generation).then_some(view)
    }

    /// Reads what the slot holds, without a look at its generation.
    ///
    /// It is for a claim that follows, which shows whether the result can be trusted.
    #[inline]
    pub(crate) fn glance(&self) -> Glance {
        Glance {
            edge: offset(self.edge.load(Ordering::Relaxed)),
            first: self.first.load(Ordering::Relaxed),
            step: self.step.load(Ordering::Relaxed),
        }
    }

    /// Gives the low-water signal of generation `of`, if the number at offset `taken` makes it due.
    ///
    /// It returns true to one caller at most.
    pub(crate) fn signal(&self, of: u64, count: u64, taken: u64) -> bool {
        let edge = self.edge.load(Ordering::Relaxed);
        let is_due = generation(edge) == of && offset(edge) < count && offset(edge) <= taken;
        // Another thread changes the edge only by giving the signal, or for another generation.
        is_due
            && self
                .edge
                .compare_exchange(edge, pack(of, count), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl View {
    /// Stands for the block of an empty generation.
    pub(crate) const EMPTY: Self = Self {
        first: 0,
        step: 1,
        count: 0,
        issued_before: 0,
    };

    /// Returns the number at an offset below `count`.
    #[inline]
    pub(crate) fn number(&self, offset: u64) -> i64 {
        number(self.first, self.step, offset)
    }

    /// Returns `count` numbers from an offset on. The block must have that many.
    pub(crate) fn range(&self, from: u64, count: u64) -> Block {
        debug_assert!(count > 0 && from + count <= self.count);
        Block::part(self.number(from), count, self.step)
    }

    /// Returns what is left at an offset. The offset may be past the last number.
    pub(crate) fn rest(&self, from: u64) -> Option<Block> {
        (from < self.count).then(|| self.range(from, self.count - from))
    }

    /// Returns how many numbers are taken in all at an offset. The offset may be past the last
    /// number.
    pub(crate) fn issued(&self, offset: u64) -> u64 {
        self.issued_before.wrapping_add(offset.min(self.count))
    }
}

/// Returns the number at an offset of a block.
///
/// [`Block::new`] has made sure that the number does not overflow. A glance may read three values
/// that do not belong together. Then the result is not used.
#[inline]
pub(crate) fn number(first: i64, step: i64, offset: u64) -> i64 {
    first.wrapping_add(step.wrapping_mul(offset.cast_signed()))
}
