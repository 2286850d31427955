//! Issues the ids of one worker id at a time to any number of threads, and no id twice.
//!
//! One atomic word names the worker id and the next position to issue:
//! `[closed:1][worker][position]`. A second atomic, the limit, names the same worker id and the
//! first position that may not be issued. The worker id is above the position for both layouts. So
//! the closed bit, worker id and position change in one step.
//!
//! A take moves the word. Counted ids ([`High::Worker`]) are taken by `fetch_add`. Ids that keep to
//! the clock ([`High::Time`]) and all batches are taken by compare-exchange. Each step of the word
//! belongs to exactly one caller, and within an opening the word only rises. So no id is issued
//! twice, and the ids of each caller ascend.
//!
//! # Invariants
//!
//! 1. The word is changed only by read-modify-writes that acquire and release. A thread that reads
//!    a value of the word also sees every write that happened before any earlier change to the
//!    word.
//! 2. Openings are numbered. An opening writes its number, then the limit, then the word. It does
//!    so only while the word is closed, and nothing else clears the closed bit.
//! 3. Opening, extending and closing exclude each other by a lock, which no taker uses. So the
//!    limit of an opening is raised only during that opening, and is never lowered.
//! 4. A limit lies at the start of a tick, so its lowest bit is free. This bit is the spent mark:
//!    claims by `fetch_add` are in vain, and takers use compare-exchange. The mark is set while the
//!    word is closed: it is set before the word is closed, and cleared after the word is opened.
//!
//! # Why a position is issued only below the limit of its own opening
//!
//! A taker reads the number *n* of the opening, moves the word, reads the limit, and reads the
//! number again. It issues an id only if the word that it moved was open, the number is still *n*,
//! and the position lies below the limit. Then word, limit and number are all of opening *n*:
//!
//! - The word is not older. Opening *n* got its number after its opener saw a closed word (2), and
//!   reading *n* acquires that. So the word that the taker moved comes after a closed word. An open
//!   word after a closed one was written by opening *n* or a later one.
//! - The word is not newer. If opening *m* > *n* had written the word, moving it would have
//!   acquired the number *m* (1, 2). Then the second reading of the number would not give *n*.
//! - The limit is not older. Moving the word of opening *n* acquires what *n* wrote before the word
//!   (2).
//! - The limit is not newer. Opening *m* writes its number before its limit (2). So a taker that
//!   reads this limit would read the number *m* the second time.
//!
//! A taker that uses compare-exchange reads the word and the limit before it moves the word. The
//! word that it read is of opening *n* for the same two reasons, and so is the limit.
//!
//! If the number has changed, the position is skipped: no caller gets it, and the taker starts
//! again. A limit that a taker read may be lower than the present one, and refuse an id. But it
//! never allows an id that its opening did not allow. The bits of the worker id then agree by
//! themselves, but they are compared, too.
//!
//! # Why a close is exact
//!
//! A close sets the closed bit in one step. A taker that moved the word before has a position below
//! the one that the close saw. A taker that moves the word later sees the closed bit, and issues
//! nothing.
//!
//! No position at or past the limit was issued. The limit is not raised until the close has read it
//! (3), or while the word is closed. So take the lower of limit and position, rounded up to a whole
//! tick. It is the first tick of which no id was issued or will be.
//!
//! # Why claims past the limit never reach the bits of the worker id
//!
//! A `fetch_add` may find the word at or past the limit. Before its thread claims again, the thread
//! makes sure that the limit has the spent mark (4) or lies above the word. An extension clears the
//! mark only if the new limit lies above the word. So at the highest limit, a thread makes at most
//! two such claims: one that was under way before the extension, and one after it.
//!
//! The highest possible limit lies [`HEADROOM`](super::HEADROOM) positions before the end of the
//! bits, which is enough for 32,768 threads. A thread claims a closed word at most once, by a claim
//! that was under way (4), and the next opening writes the word again. All other moves use
//! compare-exchange, and never go past the limit.
//!
//! All of this holds for fewer than 2^64 openings.

mod owner;
mod refused;
mod shape;
mod stamped;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use owner::Closed;
pub use refused::{Moment, NotOpened, Refused};
pub use stamped::IdBatch;

use self::shape::{CLOSED, SPENT, Shape, is_closed, is_spent};
use super::layout::{High, Layout};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::word::AtomicWord;

/// Issues the ids of one sequence.
///
/// *Takers* ([`take`](Self::take), [`take_batch`](Self::take_batch)) and observers may be on any
/// thread at any time, and never wait. [`open`](Self::open), [`extend`](Self::extend) and
/// [`close`](Self::close) may be on any thread, too. They wait for one another, but only for a few
/// instructions.
#[derive(Debug)]
pub struct Ticker {
    word: AtomicWord,
    limit: AtomicU64,
    opening: AtomicU64,
    layout: Layout,
    shape: Shape,
    owners: Mutex<()>,
}

impl Ticker {
    /// Creates a closed ticker. The layout must be one that a definition may have.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        Self {
            word: AtomicWord::new(CLOSED),
            limit: AtomicU64::new(SPENT),
            opening: AtomicU64::new(0),
            layout: *layout,
            shape: Shape::of(layout),
            owners: Mutex::new(()),
        }
    }

    /// Takes the next id. The call neither waits nor allocates.
    ///
    /// `clock` is read once, and only by a layout that keeps to the clock ([`High::Time`]).
    ///
    /// # Errors
    /// [`Refused`] says what would help. No position is skipped then, except that counted ids may
    /// skip positions past the limit.
    #[inline]
    pub fn take(&self, clock: impl FnOnce() -> Moment) -> Result<i64, Refused> {
        match self.layout.high {
            High::Worker => self.count_on(),
            High::Time => Ok(self
                .take_by_compare_exchange(1, false, Some(clock()))?
                .first()),
        }
    }

    /// Takes `count` ids in one step, all of them or none. A `count` of 0 counts as 1. The call
    /// neither waits nor allocates.
    ///
    /// If `contiguous` is set, there is no gap between the ids. In a layout that keeps to the
    /// clock, they are then of one tick. If a tick has too few ids left, they are skipped, and the
    /// next tick is used. The first id may lie as far ahead as a batch may reach, and at least one
    /// tick ahead.
    ///
    /// `clock` is read once, and only by a layout that keeps to the clock ([`High::Time`]).
    ///
    /// # Errors
    /// [`Refused`] says what would help. No position is skipped then. A contiguous batch is refused
    /// with [`Refused::TooMany`] if no tick has that many ids.
    pub fn take_batch(
        &self,
        count: u64,
        contiguous: bool,
        clock: impl FnOnce() -> Moment,
    ) -> Result<IdBatch, Refused> {
        let moment = match self.layout.high {
            High::Worker => None,
            High::Time => Some(clock()),
        };
        self.take_by_compare_exchange(count.max(1), contiguous, moment)
    }

    /// Returns the layout of the ids.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns whether the ticker is open. The result is a snapshot, as for all calls below.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !is_closed(self.word.load())
    }

    /// Returns the worker id that the ticker issues ids for; `None` while it is closed.
    #[must_use]
    pub fn worker(&self) -> Option<u32> {
        let word = self.word.load();
        (!is_closed(word)).then(|| self.shape.worker(word))
    }

    /// Returns the tick of the next id, if that id were issued without a look at the clock.
    #[must_use]
    pub fn next_tick(&self) -> u64 {
        self.shape.tick(self.shape.position(self.word.load()))
    }

    /// Returns the first tick that may not be issued; 0 if the ticker was never opened.
    #[must_use]
    pub fn limit_tick(&self) -> u64 {
        let limit = self.limit.load(Ordering::Acquire);
        self.shape.tick(self.shape.limit(limit))
    }

    /// Takes the next counted id by `fetch_add`.
    ///
    /// The word is not read before the `fetch_add`, because that would fetch its cache line twice.
    /// The guess of the cursor explains this.
    #[inline]
    fn count_on(&self) -> Result<i64, Refused> {
        let opening = self.opening.load(Ordering::Acquire);
        if is_spent(self.limit.load(Ordering::Relaxed)) {
            return self.count_exactly();
        }
        let word = self.word.claim();
        let limit = self.limit.load(Ordering::Acquire);
        if self.shape.is_below(word, limit) && self.is_still(opening) {
            // In this layout, an open word is an id.
            return Ok(word.cast_signed());
        }
        self.learn_spent();
        self.count_exactly()
    }

    /// Takes the next counted id by compare-exchange, which never moves the word past the limit.
    #[cold]
    fn count_exactly(&self) -> Result<i64, Refused> {
        Ok(self.take_by_compare_exchange(1, false, None)?.first())
    }

    /// Sets the spent mark of the limit, unless there are positions below the limit.
    #[cold]
    fn learn_spent(&self) {
        loop {
            let limit = self.limit.load(Ordering::Acquire);
            let word = self.word.load();
            let is_known = is_spent(limit) || is_closed(word) || self.shape.is_below(word, limit);
            if is_known || self.replace_limit(limit, limit | SPENT) {
                return;
            }
        }
    }

    /// Takes ids by compare-exchange. Without a moment, ids are counted.
    fn take_by_compare_exchange(
        &self,
        count: u64,
        contiguous: bool,
        moment: Option<Moment>,
    ) -> Result<IdBatch, Refused> {
        loop {
            let opening = self.opening.load(Ordering::Acquire);
            let word = self.word.load();
            if is_closed(word) {
                return Err(Refused::Closed);
            }
            let limit = self.limit.load(Ordering::Acquire);
            let worker = self.shape.worker(word);
            if self.shape.worker(limit) != worker {
                // The ticker was opened again after the word was read.
                continue;
            }
            let position = self.shape.position(word);
            let first = match moment {
                None => position,
                Some(moment) if contiguous => self.first_of_run(position, count, moment)?,
                Some(moment) => self.first_within(position, count, moment)?,
            };
            let end = self.end_of(first, count, limit)?;
            if self.word.advance(word, self.shape.pack(worker, end)) && self.is_still(opening) {
                return Ok(IdBatch::new(self.layout, worker, first, count));
            }
        }
    }

    /// Returns the first position of a batch that keeps to the clock.
    ///
    /// It is the position of the word. If the clock is past that, it is in the clock's tick. The
    /// counter goes on in both cases. It does not start at 0 with each tick, because most ids of a
    /// slow sequence would then be even.
    fn first_within(&self, position: u64, count: u64, moment: Moment) -> Result<u64, Refused> {
        let now = moment.tick;
        let counter = self.shape.counter(position);
        let ahead = moment.ahead;
        let batch_ahead = ahead.max(moment.batch_ahead);
        let ticks = batch_ahead.saturating_add(1);
        let most = ticks.saturating_mul(self.layout.ids_a_tick()) - counter;
        if count > most {
            return Err(Refused::TooMany { most });
        }
        let first = self.at_or_after_clock(position, now)?;
        let last = first.saturating_add(count - 1);
        let first_past = past(self.shape.tick(first), now, ahead);
        let ticks = first_past.max(past(self.shape.tick(last), now, batch_ahead));
        if ticks > 0 {
            return Err(Refused::Ahead { ticks });
        }
        Ok(first)
    }

    /// Returns the first position of a batch with all ids in one tick. The batch begins at the
    /// present position, or with the next tick if the present tick has too few ids left.
    fn first_of_run(&self, position: u64, count: u64, moment: Moment) -> Result<u64, Refused> {
        let most = self.layout.ids_a_tick();
        if count > most {
            return Err(Refused::TooMany { most });
        }
        let first = self.at_or_after_clock(position, moment.tick)?;
        let fits = count <= most - self.shape.counter(first);
        let tick = self.shape.tick(first).saturating_add(u64::from(!fits));
        if tick >= self.layout.end_tick() {
            return Err(Refused::TimeEnds);
        }
        // A batch may need the tick after the clock's, even if no batch may reach ahead.
        let ahead = moment.ahead.max(moment.batch_ahead).max(1);
        match past(tick, moment.tick, ahead) {
            0 if fits => Ok(first),
            0 => Ok(self.shape.start_of(tick)),
            ticks => Err(Refused::Ahead { ticks }),
        }
    }

    /// Returns the position, or the clock's tick with the same counter if that is later.
    fn at_or_after_clock(&self, position: u64, now: u64) -> Result<u64, Refused> {
        if self.shape.tick(position) >= now {
            Ok(position)
        } else if now < self.layout.end_tick() {
            Ok(self.shape.start_of(now) | self.shape.counter(position))
        } else {
            Err(Refused::TimeEnds)
        }
    }

    /// Returns the position after a batch, if the whole batch lies below the limit.
    fn end_of(&self, first: u64, count: u64, limit: u64) -> Result<u64, Refused> {
        let limit = self.shape.limit(limit);
        let end = first.saturating_add(count);
        if end <= limit {
            return Ok(end);
        }
        let highest = self.shape.start_of(self.layout.end_tick());
        Err(if count > highest {
            Refused::TooMany { most: highest }
        } else if end > highest {
            Refused::TimeEnds
        } else {
            Refused::Limit
        })
    }

    #[inline]
    fn is_still(&self, opening: u64) -> bool {
        self.opening.load(Ordering::Acquire) == opening
    }

    /// Replaces the limit, if it is still `from`. It returns whether it replaced the limit.
    fn replace_limit(&self, from: u64, to: u64) -> bool {
        self.limit
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// Returns how many ticks a tick lies past the last one that is allowed, which is `ahead` ticks
/// after `now`.
fn past(tick: u64, now: u64, ahead: u64) -> u64 {
    tick.saturating_sub(now.saturating_add(ahead))
}
