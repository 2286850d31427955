//! Issues the numbers of blocks in memory to any number of threads, and no number twice.
//!
//! One atomic word holds a *generation* and an *offset*. A ring of slots holds the block of each
//! generation. A take claims an offset by `fetch_add`. A batch, the step to the next block and a
//! close move the word by one compare-exchange or swap. The word only goes forward, and each of its
//! steps belongs to exactly one caller. So no number is given twice.
//!
//! # Invariants
//!
//! 1. The word is changed only by read-modify-writes that acquire and release. A thread that reads
//!    a value of the word also sees every write that happened before any earlier change to the
//!    word.
//! 2. Before the word names a generation, the slot of that generation is written. Takers move the
//!    word to a generation that they have read in its slot. The owner moves it to a generation that
//!    the owner wrote.
//! 3. A slot is written again only after the owner saw a word past the slot's generation.
//! 4. The block of a generation never changes. An empty generation (of [`Cursor::new`] and
//!    [`Cursor::close`]) stays empty, but late claims may still raise its offset. The next fill
//!    goes to the generation after it.
//! 5. The word leaves a block for the next one when the block is used up. Two calls leave a block
//!    with numbers left. A close returns these numbers. [`Cursor::take_beyond`] returns how many they
//!    are, and nobody gets them.
//!
//! # Why a take may trust what it reads before its claim
//!
//! A take learns from the guess that generation *g* is worth a claim. It reads the slot of *g*, and
//! claims by `fetch_add`. If the claim finds the word in *g*, the take has read the block of *g*:
//!
//! - The block is not older. The guess names *g* only after the word did, and reading the guess
//!   acquires that. The slot was written before that (2).
//! - The block is not newer. The reads come before the claim, and the claim releases. The owner
//!   that wrote the slot again had acquired a word past the claim (3). All changes in between were
//!   read-modify-writes (1), which carry the release on. So the reads happen before that write, and
//!   cannot see it.
//!
//! The claim may find another generation *h*. Then the claimed offset is one of *h*, and the slot
//! of *h* is read after the claim, as in a seqlock. If the slot was written again in the meantime,
//! the taker cannot know which number it claimed, or whether the offset was a number at all. It
//! gets another number, and one number counts as [abandoned](Cursor::take_abandoned).
//!
//! An offset claimed at or past the block's end is no number. The thread that claimed it marks the
//! generation as spent in the guess, and looks at the word before it claims again. So a thread
//! overshoots a generation at most once, and the bits of the offset suffice for 2^32 threads.
//!
//! Generations count modulo 2^31. The proof holds if no thread stays inside one call while 2^30
//! blocks are filled and used up.

mod batch;
mod guess;
mod owner;
mod slot;
mod word;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use batch::{Ranges, TakenBatch};
pub use owner::CursorFull;

use self::batch::TakenPart;
use self::guess::{Guess, live, spent};
use self::owner::AHEAD;
use self::slot::{Slot, View, number};
use self::word::{after, generation, offset, pack};
use crate::block::Block;
use crate::sync::{AtomicU64, Ordering};
use crate::word::AtomicWord;

/// Sets how many slots the ring has.
const RING: usize = 4;

/// The memory from which the numbers of one counter are issued: 320 bytes.
///
/// *Takers* ([`take`](Self::take), [`take_batch`](Self::take_batch),
/// [`take_beyond`](Self::take_beyond)) and *observers*
/// ([`remaining`](Self::remaining), [`issued`](Self::issued), [`take_abandoned`](Self::take_abandoned),
/// [`rest`](Self::rest)) may be on any thread at any time.
///
/// The *owner* ([`room`](Self::room), [`fill`](Self::fill), [`close`](Self::close)) works at the
/// same time as they do, but there is one owner at a time. The hand-over from one owner to the next
/// must order the two, as a lock or a channel does. All calls are lock-free.
#[derive(Debug)]
pub struct Cursor {
    word: AtomicWord,
    slots: [Slot; RING],
    guess: Guess,
    /// The newest generation that was written to a slot. Only the owner uses this field.
    top: AtomicU64,
    /// The highest result of [`Cursor::issued`] so far.
    issued_said: AtomicU64,
    abandoned: AtomicU64,
    /// Is always true. So an enum that holds a cursor keeps its tag here, and needs no cache line for
    /// it.
    #[expect(dead_code, reason = "the compiler uses it for the tags of enums")]
    is_there: bool,
}

/// A number that a take got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenNumber {
    /// The number.
    pub value: i64,
    /// Whether this take reached the low-water mark of its block. Only one taker gets this for each
    /// block.
    pub low_water: bool,
}

/// The result of a claim.
enum Claim {
    Issued(TakenNumber),
    /// The block was used up before the claim.
    Overshot,
    /// The slot was written again before the taker could read it.
    Abandoned,
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

impl Cursor {
    /// Creates a cursor without numbers.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at_generation(0)
    }

    /// Creates a cursor without numbers, whose generations count from `generation` on, modulo 2^31.
    ///
    /// Tests use it to see what happens when generations wrap.
    #[must_use]
    pub fn starting_at_generation(generation: u32) -> Self {
        let generation = after(u64::from(generation), 0);
        let cursor = Self {
            word: AtomicWord::new(pack(generation, 0)),
            slots: std::array::from_fn(|_| Slot::unused()),
            guess: Guess::new(spent(generation)),
            top: AtomicU64::new(generation),
            issued_said: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            is_there: true,
        };
        cursor.slot(generation).write(generation, View::EMPTY, 0);
        cursor
    }

    /// Takes the next number; `None` if there is none.
    ///
    /// The call neither waits nor allocates.
    #[inline]
    pub fn take(&self) -> Option<TakenNumber> {
        let Some(guessed) = self.guess.worth_a_claim() else {
            return self.take_at_edge(None);
        };
        let slot = self.slot(guessed).glance();
        let claimed = self.word.claim();
        // A word of another generation differs by 2^33 or more. So the difference is below the edge
        // only for an offset of the guessed generation.
        let taken = claimed.wrapping_sub(pack(guessed, 0));
        if taken >= slot.edge {
            return self.take_at_edge(Some(claimed));
        }
        Some(TakenNumber {
            value: number(slot.first, slot.step, taken),
            low_water: false,
        })
    }

    /// Returns how many numbers are left, in the current block and the blocks filled ahead.
    ///
    /// The result is a snapshot, because takers go on at the same time.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.read_rest(|blocks| blocks.map(|block| block.count()).sum())
    }

    /// Returns what is left, in the order of issue: the rest of the current block, then the blocks
    /// filled ahead.
    ///
    /// The result is a snapshot, because takers go on at the same time.
    #[must_use]
    pub fn rest(&self) -> Vec<Block> {
        self.read_rest(|blocks| blocks.collect())
    }

    /// Returns how many numbers were taken since the cursor was created.
    ///
    /// The result never decreases, and is exact while no thread takes. It includes the numbers that
    /// were [abandoned](Self::take_abandoned) or [passed over](Self::take_beyond). So all numbers
    /// that were filled are issued, returned by a close, or left.
    #[must_use]
    pub fn issued(&self) -> u64 {
        let issued = loop {
            let word = self.word.load();
            if let Some(view) = self.slot(generation(word)).read(generation(word)) {
                break view.issued(offset(word));
            }
        };
        // During a close, the count in the slot is too low for a moment.
        self.issued_said
            .fetch_max(issued, Ordering::AcqRel)
            .max(issued)
    }

    /// Returns how many numbers may have been lost since the last call.
    ///
    /// A number may be lost if its slot was used again before the taker could read the slot. The
    /// taker got another number.
    #[must_use]
    pub fn take_abandoned(&self) -> u64 {
        self.abandoned.swap(0, Ordering::Relaxed)
    }

    /// Takes a number, like [`take`](Self::take), in the rare cases.
    ///
    /// In these cases, the guess is spent, or the claim met the low-water mark, the block's end or
    /// another generation.
    #[cold]
    fn take_at_edge(&self, claimed: Option<u64>) -> Option<TakenNumber> {
        let mut claimed = claimed;
        loop {
            if let Some(word) = claimed.take() {
                match self.redeem(word) {
                    Claim::Issued(taken) => return Some(taken),
                    Claim::Overshot => self.guess.learn(spent(generation(word))),
                    Claim::Abandoned => {
                        self.abandoned.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            let word = self.word.load();
            let Some(view) = self.slot(generation(word)).read(generation(word)) else {
                // This happens only if the word has gone on: the slot of the current generation is
                // never written.
                continue;
            };
            if offset(word) < view.count {
                claimed = Some(self.word.claim());
            } else if let Some(next) = self.filled_after(generation(word)) {
                if self.word.advance(word, pack(next.generation, 1)) {
                    self.guess.learn(live(next.generation));
                    return Some(self.taken(&next, 0));
                }
            } else if self.is_in(generation(word)) {
                return None;
            }
        }
    }

    /// Finds out what a claim got, from the word that the claim returned.
    fn redeem(&self, claimed: u64) -> Claim {
        let current = generation(claimed);
        let Some(view) = self.slot(current).read(current) else {
            return Claim::Abandoned;
        };
        if offset(claimed) >= view.count {
            return Claim::Overshot;
        }
        self.guess.learn(live(current));
        let part = TakenPart {
            generation: current,
            from: 0,
            view,
        };
        Claim::Issued(self.taken(&part, offset(claimed)))
    }

    fn taken(&self, part: &TakenPart, at: u64) -> TakenNumber {
        TakenNumber {
            value: part.view.number(at),
            low_water: self.signal(part, at),
        }
    }

    /// Returns whether the taker of the number at offset `taken` gives the low-water signal.
    fn signal(&self, part: &TakenPart, taken: u64) -> bool {
        self.slot(part.generation)
            .signal(part.generation, part.view.count, taken)
    }

    #[inline]
    fn slot(&self, generation: u64) -> &Slot {
        &self.slots[usize::try_from(generation).unwrap_or(0) % RING]
    }

    /// Returns whether the word is still in this generation.
    fn is_in(&self, current: u64) -> bool {
        generation(self.word.load()) == current
    }

    /// Returns the block after a generation, if it is filled. The empty block of a close under way
    /// does not count.
    fn filled_after(&self, current: u64) -> Option<TakenPart> {
        let next = after(current, 1);
        let view = self.slot(next).read(next)?;
        (view.count > 0).then_some(TakenPart {
            generation: next,
            from: 0,
            view,
        })
    }

    /// Folds what is left, in order. It starts again if the word goes on to another block in the
    /// meantime.
    fn read_rest<T>(&self, fold: impl Fn(&mut dyn Iterator<Item = Block>) -> T) -> T {
        loop {
            let word = self.word.load();
            let current = generation(word);
            let Some(view) = self.slot(current).read(current) else {
                continue;
            };
            let ahead = (0..AHEAD).map_while(|n| self.filled_after(after(current, n)));
            let ahead = ahead.filter_map(|part| part.view.rest(0));
            let rest = fold(&mut view.rest(offset(word)).into_iter().chain(ahead));
            if self.is_in(current) {
                return rest;
            }
        }
    }
}
