//! Issues the ids of a time-ordered (snowflake) sequence: by a ticker, under the lease of a worker
//! id.
//!
//! A caller touches only the ticker and a few atomic words. All other state is behind a lock that
//! no caller for ids takes.
//!
//! Two checks keep an id from being issued twice. The ticker issues only ids of the time that was
//! reserved for this holder. This check alone is enough, however long a thread is held up. The
//! second check: nothing is issued after the lease has ended by the monotonic clock of this
//! process. From then on another holder may have the worker id.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use odometer_core::{
    block::Block,
    snowflake::{High, IdBatch, Layout, Moment, NotOpened, Refused, Ticker},
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{LeaseGrant, LeaseKey};
use parking_lot::Mutex;

use crate::inspection::description::LeaseState;

/// Bounds how many ticks ahead of the clock an id may be.
///
/// The counter goes on from tick to tick. So the next tick may be needed although few ids of the
/// present tick were issued.
const AHEAD: u64 = 1;
/// Bounds how far ahead of the clock the last id of a batch may be.
const BATCH_AHEAD_MS: u64 = 1_000;
/// Sets when a lease is renewed: after one part in this many of the time that it reaches ahead, or
/// after [`LONGEST_RENEWAL`] if that is sooner.
const RENEWALS_A_HOLD: u32 = 3;
const LONGEST_RENEWAL: Duration = Duration::from_secs(60);
/// Sets how long before its end a lease issues nothing: one part in this many of `hold`, at most
/// [`LONGEST_MARGIN`]. Clocks may run at different speeds.
const MARGIN_PART: u32 = 20;
const LONGEST_MARGIN: Duration = Duration::from_secs(1);

/// The instant from which [`nanos`] counts.
static ANCHOR: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Issues the ids of one name.
pub(crate) struct SnowflakeIssuer {
    ticker: Ticker,
    /// When the lease ends, as [`nanos`] of an instant; 0 without a lease. `due` is when the lease
    /// needs renewal.
    ends: AtomicU64,
    due: AtomicU64,
    /// Whether a caller has already notified the actor that the renewal is due.
    is_told: AtomicBool,
    /// How many ticks ahead of the clock the last id of a batch may be.
    batch_ahead: AtomicU64,
    /// How many ids a batch may have, however much reserved time is left now.
    most: AtomicU64,
    /// Ids issued since this issuer was created.
    n_issued: AtomicU64,
    /// How many of these ids were issued under earlier leases.
    n_issued_before: AtomicU64,
    held: Mutex<Option<Held>>,
}

/// A worker id that this process holds, or has not given back yet.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lease: LeaseGrant,
    renewed_at: SystemTime,
    pub(crate) renewed: Instant,
    /// Whether the store reported that the lease is lost. Its reserved time still belongs to this
    /// process alone.
    pub(crate) is_lost: bool,
}

/// The unused part of a lease that is given back.
#[derive(Clone, Debug)]
pub(crate) struct Unused {
    pub(crate) key: LeaseKey,
    /// No id was issued with this time or a later one, in Unix milliseconds.
    pub(crate) from_ms: i64,
}

impl Unused {
    /// Returns the lease as one under which no id was issued.
    pub(crate) fn whole(lease: LeaseGrant) -> Self {
        Self {
            key: lease.key,
            from_ms: lease.from_ms,
        }
    }
}

/// What a caller got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenIds<T> {
    pub(crate) ids: T,
    /// Whether this caller must notify the actor, which then renews the lease. One caller gets
    /// true.
    pub(crate) is_due: bool,
}

/// Why no id was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoIds {
    /// There is no worker id, or its lease has ended.
    NoLease,
    /// The clock is before the epoch of the layout, by this much.
    BeforeEpoch(Duration),
    /// The ticker has a reason of its own.
    Refused(Refused),
}

impl SnowflakeIssuer {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            ticker: Ticker::new(layout),
            ends: AtomicU64::new(0),
            due: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            batch_ahead: AtomicU64::new(AHEAD),
            most: AtomicU64::new(u64::MAX),
            n_issued: AtomicU64::new(0),
            n_issued_before: AtomicU64::new(0),
            held: Mutex::new(None),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.ticker.layout()
    }

    /// Takes the next id. Does not await, lock or allocate.
    #[inline]
    pub(crate) fn take(&self) -> Result<TakenIds<i64>, NoIds> {
        let now = self.in_lease()?;
        let moment = self.moment(AHEAD)?;
        let id = self.ticker.take(|| moment).map_err(NoIds::Refused)?;
        self.n_issued.fetch_add(1, Ordering::Relaxed);
        Ok(TakenIds {
            ids: id,
            is_due: self.tell_once(now),
        })
    }

    /// Takes `count` ids or none. They are one unbroken range if `contiguous`.
    pub(crate) fn take_batch(
        &self,
        count: u64,
        contiguous: bool,
    ) -> Result<TakenIds<Vec<Block>>, NoIds> {
        let now = self.in_lease()?;
        // A tick for one caller alone may be no further ahead than a tick that callers share.
        let batch_ahead = match contiguous {
            true => AHEAD,
            false => self.batch_ahead.load(Ordering::Relaxed),
        };
        let moment = self.moment(batch_ahead)?;
        let most = self.most.load(Ordering::Relaxed);
        let is_bounded = !contiguous || self.ticker.layout().high == High::Worker;
        if count > most && is_bounded {
            // The ticker would accept some of these batches, as its counter allows. Refuse them
            // all.
            return Err(NoIds::Refused(Refused::TooMany { most }));
        }
        let stamped = self.ticker.take_batch(count, contiguous, || moment);
        let stamped = stamped.map_err(NoIds::Refused)?;
        self.n_issued.fetch_add(stamped.count(), Ordering::Relaxed);
        Ok(TakenIds {
            ids: blocks(&stamped),
            is_due: self.tell_once(now),
        })
    }

    /// Returns the most ids of one call, as far as the layout and the lease bound them. Without a
    /// lease, no bound is known but that of a tick.
    pub(crate) fn most_at_once(&self, contiguous: bool) -> u64 {
        let most = self.most.load(Ordering::Relaxed);
        let layout = self.ticker.layout();
        match (layout.high, contiguous) {
            (High::Time, true) => layout.ids_a_tick(),
            (High::Time, false) | (High::Worker, _) => most,
        }
    }

    /// Checks that the lease has not ended. Returns the instant of the check, as [`nanos`].
    #[inline]
    fn in_lease(&self) -> Result<u64, NoIds> {
        let now = nanos(Instant::now());
        if now < self.ends.load(Ordering::Acquire) || faults::is(Fault::NoLeaseCheck) {
            Ok(now)
        } else {
            Err(NoIds::NoLease)
        }
    }

    /// Reads the clock, for a layout whose ids keep to the clock. For another layout, the tick has
    /// no meaning.
    #[inline]
    fn moment(&self, batch_ahead: u64) -> Result<Moment, NoIds> {
        let layout = self.ticker.layout();
        let tick = match layout.high {
            High::Worker => 0,
            High::Time => {
                let now_ms = clock::now_ms();
                layout
                    .tick_at(now_ms)
                    .ok_or_else(|| NoIds::BeforeEpoch(time_between(now_ms, layout.epoch_ms)))?
            }
        };
        Ok(Moment {
            tick,
            ahead: AHEAD,
            batch_ahead,
        })
    }

    #[inline]
    fn tell_once(&self, now: u64) -> bool {
        now >= self.due.load(Ordering::Relaxed)
            && !self.is_told.load(Ordering::Relaxed)
            && !self.is_told.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn n_issued(&self) -> u64 {
        self.n_issued.load(Ordering::Relaxed)
    }

    /// Returns whether any id was issued under the present lease.
    pub(crate) fn has_issued(&self) -> bool {
        self.n_issued() > self.n_issued_before.load(Ordering::Relaxed)
    }

    /// Returns whether ids can be issued: a worker id is leased, and its lease has not ended.
    pub(crate) fn is_serving(&self) -> bool {
        self.in_lease().is_ok() && self.ticker.is_open()
    }

    /// Returns whether the lease has not ended and needs renewal.
    pub(crate) fn needs_renewal(&self) -> bool {
        self.in_lease()
            .is_ok_and(|now| now >= self.due.load(Ordering::Relaxed))
            && self.held.lock().is_some()
    }

    /// Returns a copy of the lease that this process has.
    pub(crate) fn held(&self) -> Option<Held> {
        self.held.lock().clone()
    }

    /// Returns whether this process has a lease that the store reported as lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.held.lock().as_ref().is_some_and(|held| held.is_lost)
    }

    /// Notes that the store reported the lease as lost. Returns whether the lease has not ended
    /// yet.
    ///
    /// No other holder issues ids of the time that was reserved with the lease. So ids are issued
    /// until the lease ends, and another lease is due at once.
    pub(crate) fn lose(&self) -> bool {
        if let Some(held) = &mut *self.held.lock() {
            held.is_lost = true;
        }
        self.due.store(0, Ordering::Relaxed);
        self.in_lease().is_ok()
    }

    /// Returns the state of the lease, if ids can be issued under it.
    pub(crate) fn state(&self) -> Option<LeaseState> {
        let held = self.held().filter(|_| self.is_serving())?;
        Some(LeaseState {
            lease: held.lease,
            renewed_at: held.renewed_at,
            seconds_left: self.left().as_secs_f64(),
        })
    }

    /// Returns the worker id of the ids that are issued now; `None` while the ticker is closed.
    pub(crate) fn worker(&self) -> Option<u32> {
        self.ticker.worker()
    }

    /// Returns the tick that the next id would have if the clock were not read.
    pub(crate) fn next_tick(&self) -> u64 {
        self.ticker.next_tick()
    }

    /// Returns whether the clock allows ids now, or as soon as the ticks of a batch have passed.
    fn is_at_clock(&self) -> bool {
        let layout = self.ticker.layout();
        let is_near = |now: u64| {
            let batch_ahead = self.batch_ahead.load(Ordering::Relaxed);
            self.next_tick() <= now.saturating_add(batch_ahead)
        };
        layout.high == High::Worker || layout.tick_at(clock::now_ms()).is_some_and(is_near)
    }

    /// Returns for how long ids can be issued without the store.
    ///
    /// Ids end with the lease, by the monotonic clock, or with the reserved time, if that is
    /// sooner. The result is zero if the clock is behind the time that is used up.
    pub(crate) fn left(&self) -> Duration {
        let is_issuing = self.is_serving() && self.is_at_clock();
        let (Some(held), true) = (self.held(), is_issuing) else {
            return Duration::ZERO;
        };
        let of_lease = self.ends.load(Ordering::Acquire);
        let of_lease = Duration::from_nanos(of_lease.saturating_sub(nanos(Instant::now())));
        let layout = self.ticker.layout();
        let reserved = match layout.high {
            High::Time => time_between(clock::now_ms(), held.lease.until_ms),
            High::Worker => {
                let ticks = self.ticker.limit_tick().saturating_sub(self.next_tick());
                Duration::from_millis(ticks.saturating_mul(layout.unit.ms().unsigned_abs()))
            }
        };
        of_lease.min(reserved)
    }

    /// Returns whether an earlier batch can be the reason that ids are this many ticks too far
    /// ahead.
    pub(crate) fn is_within_a_batch(&self, ticks: u64) -> bool {
        ticks <= self.batch_ahead.load(Ordering::Relaxed)
    }

    /// Begins to issue ids under a lease, from the present time on. The ticker must be closed.
    ///
    /// # Errors
    /// Returns why no id can be issued under the lease, with the part of the lease to give back.
    pub(crate) fn open(&self, lease: LeaseGrant) -> Result<(), (NotOpened, Unused)> {
        let layout = self.ticker.layout();
        let now_ms = clock::now_ms();
        let now_tick = layout.tick_at(now_ms).unwrap_or(0);
        let (from_tick, until_tick) = match faults::is(Fault::NoReservedUntil) {
            true => (now_tick, layout.end_tick()),
            false => layout.whole_ticks(lease.from_ms, lease.until_ms),
        };
        self.n_issued_before
            .store(self.n_issued(), Ordering::Relaxed);
        let opened = self
            .ticker
            .open(lease.key.worker, from_tick, until_tick, now_tick);
        if let Err(refused) = opened {
            return Err((refused, Unused::whole(lease)));
        }
        self.note(lease);
        Ok(())
    }

    /// Goes on under a renewed lease. Returns false if ids are not issued under that lease any
    /// more.
    pub(crate) fn extend(&self, mut lease: LeaseGrant) -> bool {
        if let Some(held) = &*self.held.lock() {
            // What was reserved before may be used already, even if a clock was set back since.
            lease.until_ms = lease.until_ms.max(held.lease.until_ms);
        }
        let layout = self.ticker.layout();
        let (_, until_tick) = layout.whole_ticks(lease.from_ms, lease.until_ms);
        if !self.ticker.extend(lease.key.worker, until_tick) {
            return false;
        }
        self.note(lease);
        true
    }

    fn note(&self, lease: LeaseGrant) {
        let (now, hold) = (Instant::now(), lease.ttl);
        let margin = (hold / MARGIN_PART).min(LONGEST_MARGIN);
        let ends = lease.expires.checked_sub(margin).unwrap_or(now);
        let renewal = (lease.reach / RENEWALS_A_HOLD).min(LONGEST_RENEWAL);
        let layout = self.ticker.layout();
        self.batch_ahead
            .store(batch_ahead(layout, hold), Ordering::Relaxed);
        self.most.store(most(layout, hold), Ordering::Relaxed);
        self.due.store(nanos(now + renewal), Ordering::Relaxed);
        self.is_told.store(false, Ordering::Relaxed);
        let mut held = self.held.lock();
        *held = Some(Held {
            lease,
            renewed_at: SystemTime::now(),
            renewed: now,
            is_lost: false,
        });
        let ends = match faults::is(Fault::NoLeaseReserve) {
            true => now + renewal,
            false => ends,
        };
        self.ends.store(nanos(ends), Ordering::Release);
    }

    /// Ends issuing. Returns the unused part of the lease, if there was a lease that can be given
    /// back.
    pub(crate) fn close(&self) -> Option<Unused> {
        self.ends.store(0, Ordering::Release);
        let closed = self.ticker.close();
        let held = self.held.lock().take().filter(|held| !held.is_lost)?;
        let lease = held.lease;
        let layout = self.ticker.layout();
        // If the ticker was closed before, the last tick used is not known. Then all of the time
        // counts as used.
        let first_unused = closed.map_or(lease.until_ms, |closed| {
            layout.unix_ms_of(closed.first_unused_tick)
        });
        Some(Unused {
            from_ms: first_unused.clamp(lease.from_ms, lease.until_ms.max(lease.from_ms)),
            key: lease.key,
        })
    }
}

/// Returns the time from one Unix millisecond to another one; zero if the other one is not later.
pub(crate) fn time_between(from_ms: i64, until_ms: i64) -> Duration {
    let ms = until_ms.saturating_sub(from_ms);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn ticks_in(layout: &Layout, time: Duration) -> u64 {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ms.checked_div(layout.unit.ms().unsigned_abs()).unwrap_or(0)
}

/// Returns how many ticks ahead a batch may reach: a second, but at least one tick. It is less than
/// a second if a lease that is about to be renewed has less time reserved.
fn batch_ahead(layout: &Layout, hold: Duration) -> u64 {
    let reserved = ticks_in(layout, hold - hold / RENEWALS_A_HOLD).saturating_sub(2);
    let second = ticks_in(layout, Duration::from_millis(BATCH_AHEAD_MS));
    second.min(reserved).max(AHEAD)
}

/// Returns how many ids the reserved time has at any moment when a batch may come. If ids keep to
/// the clock, these are the ids of the ticks that a batch may reach ahead. If ids are counted, they
/// are half of what a lease reserves.
fn most(layout: &Layout, hold: Duration) -> u64 {
    let ticks = match layout.high {
        High::Time => batch_ahead(layout, hold),
        High::Worker => (ticks_in(layout, hold) / 2).max(1),
    };
    ticks.saturating_mul(layout.ids_a_tick())
}

fn blocks(stamped: &IdBatch) -> Vec<Block> {
    let ranges = stamped.ranges();
    ranges
        .filter_map(|(first, count)| Block::new(first, count, 1).ok())
        .collect()
}

/// Returns the nanoseconds from [`ANCHOR`] to an instant.
#[inline]
fn nanos(instant: Instant) -> u64 {
    let since = instant.saturating_duration_since(*ANCHOR);
    since
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(since.subsec_nanos()))
}
