//! The cursor: hands out numbers of blocks in memory, to any number of threads, none twice.
//!
//! One atomic word holds a *generation* and an *offset*; a ring of slots holds the block of each
//! generation. A take claims an offset by `fetch_add`. A batch, the step to the next block and a
//! close move the word by one compare-exchange or swap. The word only goes forward, and each of
//! its steps belongs to exactly one caller: that is why no number is given twice.
//!
//! # Invariants
//!
//! 1. The word is changed only by read-modify-writes that acquire and release. So who sees a
//!    value of it has seen all that came before any earlier change of it.
//! 2. Before the word names a generation, that generation's slot is written. Takers move the word
//!    to a generation they have read in its slot, the owner to one it wrote itself.
//! 3. A slot is written again only after the owner saw a word past the slot's generation.
//! 4. A generation's block never changes. An empty generation (of [`Cursor::new`] and
//!    [`Cursor::close`]) stays empty: late claims may still raise its offset. The next fill goes
//!    to the generation after it.
//! 5. The word leaves a block for the next one only when the block is used up. Only a close
//!    leaves one with numbers left, and returns them.
//!
//! # Why a take may trust what it reads before its claim
//!
//! A take learns from the guess that generation *g* is worth a claim, reads *g*'s slot,
//! and claims by `fetch_add`. If the claim finds the word in *g*, what it read is *g*'s block:
//!
//! - It is not older. The guess names *g* only after the word did, and reading the guess acquires
//!   that; by 2 the slot was written before.
//! - It is not newer. The reads come before the claim, and the claim releases. The owner that
//!   wrote the slot again had acquired a word past the claim (3), and all changes in between were
//!   read-modify-writes (1), which carry the release on. So the reads happen before that write
//!   and cannot see it.
//!
//! If the claim finds another generation *h*, the offset claimed is one of *h*'s, and *h*'s slot
//! is read after the claim, as a seqlock. Should it have been written again meanwhile, nobody can
//! say any more which number it was, or whether it was one: the taker gets another one, and the
//! number counts as [abandoned](Cursor::abandoned).
//!
//! An offset claimed at or past the block's end is no number. The thread that claimed it marks
//! the generation as spent in the guess, and then looks at the word before it claims again. So a
//! thread overshoots a generation at most once, and the offset's bits suffice for 2^32 threads.
//!
//! Generations count modulo 2^31. All of this holds as long as no thread is held up inside one
//! call while 2^30 blocks are filled and used up.

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
use self::word::{CursorWord, after, generation, offset, pack};
use crate::block::Block;
use crate::sync::{AtomicU64, Ordering};

/// Slots in the ring.
const RING: usize = 4;

/// The memory from which one sequence's numbers are handed out: 320 bytes.
///
/// *Takers* ([`take`](Self::take), [`take_batch`](Self::take_batch)) and *observers*
/// ([`remaining`](Self::remaining), [`issued`](Self::issued), [`abandoned`](Self::abandoned),
/// [`rest`](Self::rest)) may be on any thread at any time. The *owner* ([`room`](Self::room),
/// [`fill`](Self::fill), [`set_low_water`](Self::set_low_water), [`close`](Self::close)) works
/// while they do, but there is one owner at a time: what hands the cursor from one owner to the
/// next must order the two, as a lock or a channel does. All are lock-free.
#[derive(Debug)]
pub struct Cursor {
    word: CursorWord,
    slots: [Slot; RING],
    guess: Guess,
    /// The newest generation written to a slot. The owner's.
    top: AtomicU64,
    /// The most that [`Cursor::issued`] has said.
    issued_said: AtomicU64,
    abandoned: AtomicU64,
}

/// One number taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenNumber {
    /// The number.
    pub value: i64,
    /// Whether this take reached the low-water mark of its block: told to one taker a block.
    pub low_water: bool,
}

/// What a claim turned out to be.
enum Claim {
    Issued(TakenNumber),
    /// The block was used up before.
    Overshot,
    /// The slot was written again before it could be read.
    Abandoned,
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

impl Cursor {
    /// A cursor without numbers.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at_generation(0)
    }

    /// A cursor without numbers whose generations count from this one on, modulo 2^31: for tests
    /// of what happens when they wrap.
    #[must_use]
    pub fn starting_at_generation(generation: u32) -> Self {
        let generation = after(u64::from(generation), 0);
        let cursor = Self {
            word: CursorWord::new(pack(generation, 0)),
            slots: std::array::from_fn(|_| Slot::unused()),
            guess: Guess::new(spent(generation)),
            top: AtomicU64::new(generation),
            issued_said: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        };
        cursor.slot(generation).write(generation, View::EMPTY, 0);
        cursor
    }

    /// Takes the next number; `None` where there is none.
    ///
    /// Neither waits nor allocates.
    #[inline]
    pub fn take(&self) -> Option<TakenNumber> {
        let Some(guessed) = self.guess.worth_a_claim() else {
            return self.take_at_edge(None);
        };
        let slot = self.slot(guessed).glance();
        let claimed = self.word.claim();
        // Another generation's word differs by 2^33 or more, so this is below the edge only for
        // an offset of the generation guessed.
        let taken = claimed.wrapping_sub(pack(guessed, 0));
        if taken >= slot.edge {
            return self.take_at_edge(Some(claimed));
        }
        Some(TakenNumber {
            value: number(slot.first, slot.step, taken),
            low_water: false,
        })
    }

    /// How many numbers are left, in the current block and those filled ahead. A snapshot: takers
    /// go on meanwhile.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.read_rest(|blocks| blocks.map(|block| block.count()).sum())
    }

    /// What is left, in the order in which it will be issued: the current block's rest, then the
    /// blocks filled ahead. A snapshot: takers go on meanwhile.
    #[must_use]
    pub fn rest(&self) -> Vec<Block> {
        self.read_rest(|blocks| blocks.collect())
    }

    /// How many numbers were taken since the cursor was made. It never decreases, and is exact
    /// while nobody takes.
    ///
    /// Those [abandoned](Self::abandoned) are among them: what was filled is what was issued, what
    /// was returned by closing, and what is left.
    #[must_use]
    pub fn issued(&self) -> u64 {
        let issued = loop {
            let word = self.word.load();
            if let Some(view) = self.slot(generation(word)).read(generation(word)) {
                break view.issued(offset(word));
            }
        };
        // A close under way says too few for a moment.
        self.issued_said
            .fetch_max(issued, Ordering::AcqRel)
            .max(issued)
    }

    /// How many numbers may have been lost, each because its slot was used again while a taker was
    /// on its way to read it. The taker got another number.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// [`take`](Self::take) where the guess is spent, or the claim made met the low-water mark, the
    /// block's end or another generation.
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
                // Only where the word has gone on: its own slot is never written.
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

    /// What a claim that returned this word is worth.
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

    /// Whether the taker of the number at offset `taken` is to give the low-water signal.
    fn signal(&self, part: &TakenPart, taken: u64) -> bool {
        self.slot(part.generation)
            .signal(part.generation, part.view.count, taken)
    }

    #[inline]
    fn slot(&self, generation: u64) -> &Slot {
        &self.slots[usize::try_from(generation).unwrap_or(0) % RING]
    }

    /// Whether the word is still in this generation.
    fn is_in(&self, current: u64) -> bool {
        generation(self.word.load()) == current
    }

    /// The block after a generation's, if it is filled. The empty one of a close under way is not.
    fn filled_after(&self, current: u64) -> Option<TakenPart> {
        let next = after(current, 1);
        let view = self.slot(next).read(next)?;
        (view.count > 0).then_some(TakenPart {
            generation: next,
            from: 0,
            view,
        })
    }

    /// Folds what is left, in order; again where the word went on to another block meanwhile.
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
