//! The ticker: issues the ids of one worker at a time, to any number of threads, none twice.
//!
//! One atomic word names the next position to issue and whose it is, `[closed:1][worker][position]`;
//! a second one is the limit, the first position that is not to be issued, beside the same worker.
//! The worker stands above the position for both layouts, so that closing, worker and position
//! change in one step. A take moves the word: by `fetch_add` where ids are counted
//! ([`High::Worker`]), by compare-exchange where they keep to the clock ([`High::Time`]) and for
//! every batch. Each step of the word belongs to exactly one caller, and within an opening the word
//! only rises: that is why no id is issued twice, and why each caller's ids ascend.
//!
//! # Invariants
//!
//! 1. The word is changed only by read-modify-writes that acquire and release. So who sees a value
//!    of it has seen all that came before any earlier change of it.
//! 2. Openings are numbered. What opens writes, in this order, the number, the limit, the word; it
//!    does so only while the word is closed, and nothing else takes the closed bit away.
//! 3. Opening, extending and closing exclude each other, by a lock that no taker asks for. So the
//!    limit of an opening is raised only while that opening lasts, and never lowered.
//! 4. A limit lies at the start of a tick, so its lowest bit is free: it says that claims by
//!    `fetch_add` are in vain, and takers then go by compare-exchange. It is set while the word is
//!    closed: before that is closed, until after it is opened.
//!
//! # Why a position is issued only below the limit of its own opening
//!
//! A taker reads the number *n* of the opening, moves the word, reads the limit, and reads the
//! number again. It issues only if the word it moved was open, the number is still *n*, and the
//! position lies below the limit. Then all three are of opening *n*:
//!
//! - The word is not older. Opening *n* was numbered after its opener saw a closed word (2), and
//!   reading *n* acquires that; so the taker moved a word that comes after a closed one, and an open
//!   one after it was written by opening *n* or a later one.
//! - The word is not newer. Had opening *m* > *n* written it, moving it would have acquired the
//!   number *m* (1, 2), and the second reading of the number would not give *n*.
//! - The limit is not older: moving the word of opening *n* acquires what *n* wrote before it (2).
//! - The limit is not newer: opening *m* numbers itself before it writes its limit (2), so reading
//!   that would again make the second number *m*.
//!
//! Whoever goes by compare-exchange reads word and limit before moving the word. The word it read
//! is then of opening *n* for the same two reasons, so the limit is, too.
//!
//! Where the number has changed, the position moved past is burnt, and the taker starts again. So
//! a limit that a taker read may be lower than the one of now, and refuse; it never allows what its
//! opening did not. The worker's bits, which then agree by themselves, are compared all the same.
//!
//! # Why a close is exact
//!
//! It sets the closed bit in one step. Whoever moved the word before has a position below the one
//! that the close saw; whoever moves it later sees the closed bit and issues nothing. Positions at
//! or past the limit were issued to nobody, and nobody raises the limit until the close has read it
//! (3) or while the word is closed. So the lower of the two, rounded up to a whole tick, is the
//! first tick of which nothing was issued or will be.
//!
//! # Why claims past the limit never reach the bits of the worker
//!
//! A `fetch_add` may find the word at or past the limit. Its thread then sees to it that the limit
//! says so (4) or lies above the word, before it claims again; and an extension takes that mark away
//! only where it lies above the word. So at the highest limit there are at most two such claims of a
//! thread: one that was on its way before the extension, and one after it. The highest limit there
//! can be lies [`HEADROOM`](super::HEADROOM) positions before the end of the bits, which is room for
//! 32,768 threads. A closed word is claimed at most once a thread, by claims that were on their way
//! (4), and is written anew by the next opening. All else moves by compare-exchange, never past the
//! limit.
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
pub use stamped::{Stamped, Stamps};

use self::shape::{CLOSED, SPENT, Shape, TickerWord, is_closed, is_spent};
use super::layout::{High, Layout};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// What issues the ids of one sequence.
///
/// *Takers* ([`take`](Self::take), [`take_batch`](Self::take_batch)) and observers may be on any
/// thread at any time, and wait for nobody. [`open`](Self::open), [`extend`](Self::extend) and
/// [`close`](Self::close) may be, too; they wait for one another, for some instructions.
#[derive(Debug)]
pub struct Ticker {
    word: TickerWord,
    limit: AtomicU64,
    opening: AtomicU64,
    layout: Layout,
    shape: Shape,
    owners: Mutex<()>,
}

/// Whether the ids of a batch may be of several ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    Any,
    Unbroken,
}

impl Ticker {
    /// A ticker that is closed; the layout is one that a definition may have.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        Self {
            word: TickerWord::new(CLOSED),
            limit: AtomicU64::new(SPENT),
            opening: AtomicU64::new(0),
            layout: *layout,
            shape: Shape::of(layout),
            owners: Mutex::new(()),
        }
    }

    /// Takes the next id. Neither waits nor allocates.
    ///
    /// `clock` is read once, and only by a layout that keeps to it ([`High::Time`]).
    ///
    /// # Errors
    /// [`Refused`] says what would help; nothing is burnt then but, of counted ids, what lies past
    /// the limit.
    #[inline]
    pub fn take(&self, clock: impl FnOnce() -> Moment) -> Result<i64, Refused> {
        match self.layout.high {
            High::Worker => self.count_on(),
            High::Time => Ok(self.stamp(1, Some(clock()), Run::Any)?.first()),
        }
    }

    /// Takes `count` ids in one step, all of them or none; a `count` of 0 is taken for 1. Neither
    /// waits nor allocates.
    ///
    /// `clock` is read once, and only by a layout that keeps to it ([`High::Time`]).
    ///
    /// # Errors
    /// [`Refused`] says what would help; nothing is burnt then.
    pub fn take_batch(
        &self,
        count: u64,
        clock: impl FnOnce() -> Moment,
    ) -> Result<Stamped, Refused> {
        self.stamp(count.max(1), self.moment(clock), Run::Any)
    }

    /// As [`take_batch`](Self::take_batch), with ids that follow one another without a gap. Of a
    /// layout that keeps to the clock they are of one tick, and what is left of a tick that has not
    /// enough of them is burnt; the first of them may lie as far ahead as a batch may reach.
    ///
    /// # Errors
    /// As for a batch; [`Refused::TooMany`] where a tick never has so many.
    pub fn take_unbroken(
        &self,
        count: u64,
        clock: impl FnOnce() -> Moment,
    ) -> Result<Stamped, Refused> {
        self.stamp(count.max(1), self.moment(clock), Run::Unbroken)
    }

    /// What the ids are composed by.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether it may issue. A snapshot, as all below.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !is_closed(self.word.load())
    }

    /// Whose ids it issues; `None` while it is closed.
    #[must_use]
    pub fn worker(&self) -> Option<u32> {
        let word = self.word.load();
        (!is_closed(word)).then(|| self.shape.worker(word))
    }

    /// The tick of the next id, were it issued without a look at the clock.
    #[must_use]
    pub fn next_tick(&self) -> u64 {
        self.shape.tick(self.shape.position(self.word.load()))
    }

    /// The first tick that is not to be issued; 0 where it was never opened.
    #[must_use]
    pub fn limit_tick(&self) -> u64 {
        let limit = self.limit.load(Ordering::Acquire);
        self.shape.tick(self.shape.limit(limit))
    }

    /// The next of the ids that are counted, by `fetch_add`. The word itself is not read before:
    /// that would fetch its cache line twice, as the cursor's guess explains.
    #[inline]
    fn count_on(&self) -> Result<i64, Refused> {
        let opening = self.opening.load(Ordering::Acquire);
        if is_spent(self.limit.load(Ordering::Relaxed)) {
            return self.count_exactly();
        }
        let word = self.word.claim();
        let limit = self.limit.load(Ordering::Acquire);
        if self.shape.is_below(word, limit) && self.is_still(opening) {
            // Of this layout an open word is an id.
            return Ok(word.cast_signed());
        }
        self.learn_spent();
        self.count_exactly()
    }

    /// As [`count_on`](Self::count_on), by compare-exchange: it never moves the word past the limit.
    #[cold]
    fn count_exactly(&self) -> Result<i64, Refused> {
        Ok(self.stamp(1, None, Run::Any)?.first())
    }

    /// Sees to it that the limit says that nothing is below it, unless something is.
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

    /// What the clock says, to a layout that asks it.
    fn moment(&self, clock: impl FnOnce() -> Moment) -> Option<Moment> {
        match self.layout.high {
            High::Worker => None,
            High::Time => Some(clock()),
        }
    }

    /// Takes by compare-exchange; without a moment ids are counted on.
    fn stamp(&self, count: u64, moment: Option<Moment>, run: Run) -> Result<Stamped, Refused> {
        loop {
            let opening = self.opening.load(Ordering::Acquire);
            let word = self.word.load();
            if is_closed(word) {
                return Err(Refused::Closed);
            }
            let limit = self.limit.load(Ordering::Acquire);
            let worker = self.shape.worker(word);
            if self.shape.worker(limit) != worker {
                // Opened again since the word was read.
                continue;
            }
            let position = self.shape.position(word);
            let first = match moment {
                None => position,
                Some(moment) => match run {
                    Run::Any => self.first_within(position, count, moment)?,
                    Run::Unbroken => self.first_of_run(position, count, moment)?,
                },
            };
            let end = self.end_of(first, count, limit)?;
            if self.word.advance(word, self.shape.pack(worker, end)) && self.is_still(opening) {
                return Ok(Stamped::new(self.layout, worker, first, count));
            }
        }
    }

    /// Where a batch begins that keeps to the clock: at the word, or, where the clock is past that,
    /// in the clock's tick. The counter goes on in either case. It does not start at 0 with each
    /// tick, or most ids of a slow sequence would be even.
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
        let first = self.caught_up(position, now)?;
        let last = first.saturating_add(count - 1);
        let first_past = past(self.shape.tick(first), now, ahead);
        let ticks = first_past.max(past(self.shape.tick(last), now, batch_ahead));
        if ticks > 0 {
            return Err(Refused::Ahead { ticks });
        }
        Ok(first)
    }

    /// Where a batch begins all of which is of one tick: where it would begin anyway, or with the
    /// tick after that.
    fn first_of_run(&self, position: u64, count: u64, moment: Moment) -> Result<u64, Refused> {
        let most = self.layout.ids_a_tick();
        if count > most {
            return Err(Refused::TooMany { most });
        }
        let first = self.caught_up(position, moment.tick)?;
        let fits = count <= most - self.shape.counter(first);
        let tick = self.shape.tick(first).saturating_add(u64::from(!fits));
        if tick >= self.layout.end_tick() {
            return Err(Refused::TimeEnds);
        }
        // The tick after the clock's may be needed, whatever a batch may reach.
        let ahead = moment.ahead.max(moment.batch_ahead).max(1);
        match past(tick, moment.tick, ahead) {
            0 if fits => Ok(first),
            0 => Ok(self.shape.start_of(tick)),
            ticks => Err(Refused::Ahead { ticks }),
        }
    }

    /// The position, or the clock's tick with the same counter, where that is later.
    fn caught_up(&self, position: u64, now: u64) -> Result<u64, Refused> {
        if self.shape.tick(position) >= now {
            Ok(position)
        } else if now < self.layout.end_tick() {
            Ok(self.shape.start_of(now) | self.shape.counter(position))
        } else {
            Err(Refused::TimeEnds)
        }
    }

    /// The position after a batch, if all of it lies below the limit.
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

    /// Replaces the limit, if it is still `from`; says whether it did.
    fn replace_limit(&self, from: u64, to: u64) -> bool {
        self.limit
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// How far a tick lies past what is allowed: `ahead` ticks after `now`.
fn past(tick: u64, now: u64, ahead: u64) -> u64 {
    tick.saturating_sub(now.saturating_add(ahead))
}
