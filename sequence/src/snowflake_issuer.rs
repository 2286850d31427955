//! What issues time-ordered ids: the ticker of a name, and the lease of the worker id it stamps with.
//!
//! A caller touches the ticker and two words of the lease; the rest is behind a lock that only the
//! actor and the describing calls take. Two guards keep an id from being given twice. The ticker
//! issues only what lies in the time that was reserved for this holder, and that alone prevents it,
//! however long a thread is held up. And nothing is issued once the lease has ended by this
//! process's monotonic clock: from then on another holder may have the worker id.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use odometer_core::{
    block::Block,
    snowflake::{High, Layout, Moment, NotOpened, Refused, Stamped, Ticker},
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{LeaseGrant, LeaseKey};
use parking_lot::Mutex;

use crate::description::LeaseState;

/// So many ticks after the clock's an id may lie: the counter goes on from tick to tick, so the one
/// after this may be needed though few ids of this one are issued.
const AHEAD: u64 = 1;
/// How far after the clock the last id of a batch may lie.
const BATCH_AHEAD_MS: u64 = 1_000;
/// A lease is renewed after this part of its `hold`, and after a minute.
const RENEWALS_A_HOLD: u32 = 3;
const LONGEST_RENEWAL: Duration = Duration::from_secs(60);
/// Nothing is issued in the last part of a lease, so that clocks may run at different speeds.
const MARGIN_PART: u32 = 20;
const LONGEST_MARGIN: Duration = Duration::from_secs(1);

/// Instants are counted from here.
static ANCHOR: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What issues the ids of one name.
pub(crate) struct SnowflakeIssuer {
    ticker: Ticker,
    /// When the lease ends and when it is to be renewed, as [`nanos`] of an instant; the first is 0
    /// where there is none.
    ends: AtomicU64,
    due: AtomicU64,
    /// Whether a taker has told the actor that it is due.
    is_told: AtomicBool,
    /// So many ticks after the clock's the last id of a batch may lie.
    batch_ahead: AtomicU64,
    /// So many ids a batch may have, whatever is reserved just now.
    most: AtomicU64,
    /// Ids issued since it was made.
    n_issued: AtomicU64,
    /// How many of them under earlier leases.
    n_issued_before: AtomicU64,
    held: Mutex<Option<Held>>,
}

/// A worker id that this process holds, or has not given back yet.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) key: LeaseKey,
    /// Its times are stamped from here on, in Unix milliseconds.
    pub(crate) from_ms: i64,
    /// Up to here, that one excluded.
    pub(crate) until_ms: i64,
    pub(crate) renewed_at: SystemTime,
    pub(crate) renewed: Instant,
    /// The database's clock minus ours.
    pub(crate) skew_ms: i64,
    /// Whether the store has said that it is not ours any more. Its time still is.
    pub(crate) is_lost: bool,
}

/// What a lease that is not used any more is given back with.
#[derive(Clone, Debug)]
pub(crate) struct Unused {
    pub(crate) key: LeaseKey,
    /// Nothing was stamped from here on, in Unix milliseconds.
    pub(crate) from_ms: i64,
}

/// What a taker got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenIds<T> {
    pub(crate) ids: T,
    /// Whether the actor is to renew the lease; one taker is told so.
    pub(crate) is_due: bool,
}

/// Why no id was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoIds {
    /// There is no worker id, or its lease has ended.
    NoLease,
    /// The clock stands before the layout's epoch, by so long.
    BeforeEpoch(Duration),
    /// The ticker's own reason.
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

    /// Takes the next id: no await, no lock, no allocation.
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

    /// Takes `count` ids or none; in one unbroken range where `contiguous`.
    pub(crate) fn take_batch(
        &self,
        count: u64,
        contiguous: bool,
    ) -> Result<TakenIds<Vec<Block>>, NoIds> {
        let now = self.in_lease()?;
        // A tick that is all for one caller is begun no further ahead than one that others share.
        let batch_ahead = match contiguous {
            true => AHEAD,
            false => self.batch_ahead.load(Ordering::Relaxed),
        };
        let moment = self.moment(batch_ahead)?;
        let most = self.most.load(Ordering::Relaxed);
        let is_bounded = !contiguous || self.ticker.layout().high == High::Worker;
        if count > most && is_bounded {
            // The ticker would take some of them now and then, as its counter stands.
            return Err(NoIds::Refused(Refused::TooMany { most }));
        }
        let stamped = if contiguous {
            self.ticker.take_unbroken(count, || moment)
        } else {
            self.ticker.take_batch(count, || moment)
        };
        let stamped = stamped.map_err(NoIds::Refused)?;
        self.n_issued.fetch_add(stamped.count(), Ordering::Relaxed);
        Ok(TakenIds {
            ids: blocks(&stamped),
            is_due: self.tell_once(now),
        })
    }

    /// That the lease lasts; the instant by which it does.
    #[inline]
    fn in_lease(&self) -> Result<u64, NoIds> {
        let now = nanos(Instant::now());
        if now < self.ends.load(Ordering::Acquire) || faults::is(Fault::NoLeaseCheck) {
            Ok(now)
        } else {
            Err(NoIds::NoLease)
        }
    }

    /// What the clock says to a layout that keeps to it; any moment for another one.
    #[inline]
    fn moment(&self, batch_ahead: u64) -> Result<Moment, NoIds> {
        let layout = self.ticker.layout();
        let tick = match layout.high {
            High::Worker => 0,
            High::Time => {
                let now_ms = clock::now_ms();
                layout
                    .tick_at(now_ms)
                    .ok_or_else(|| NoIds::BeforeEpoch(before_epoch(layout, now_ms)))?
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

    /// Whether any id was issued under the present lease.
    pub(crate) fn has_issued(&self) -> bool {
        self.n_issued() > self.n_issued_before.load(Ordering::Relaxed)
    }

    /// Whether ids can be issued: a worker id is leased and its lease lasts.
    pub(crate) fn is_serving(&self) -> bool {
        self.in_lease().is_ok() && self.ticker.is_open()
    }

    /// Whether the lease lasts and is to be renewed.
    pub(crate) fn needs_renewal(&self) -> bool {
        self.in_lease()
            .is_ok_and(|now| now >= self.due.load(Ordering::Relaxed))
            && self.held.lock().is_some()
    }

    /// The lease as it is known here.
    pub(crate) fn held(&self) -> Option<Held> {
        self.held.lock().clone()
    }

    /// Whether there is a lease that the store has said to be lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.held.lock().as_ref().is_some_and(|held| held.is_lost)
    }

    /// Notes that the store has said so. Nobody else stamps what was reserved with it, so ids are
    /// issued until it ends; another one is due at once. Says whether it lasts.
    pub(crate) fn lose(&self) -> bool {
        if let Some(held) = &mut *self.held.lock() {
            held.is_lost = true;
        }
        self.due.store(0, Ordering::Relaxed);
        self.in_lease().is_ok()
    }

    /// How the lease stands, while ids are issued under it.
    pub(crate) fn state(&self) -> Option<LeaseState> {
        let held = self.held().filter(|_| self.is_serving())?;
        Some(LeaseState {
            worker: held.key.worker,
            from_ms: held.from_ms,
            until_ms: held.until_ms,
            renewed_at: held.renewed_at,
            seconds_left: self.left().as_secs_f64(),
            skew_ms: held.skew_ms,
        })
    }

    /// Whose ids are issued.
    pub(crate) fn worker(&self) -> Option<u32> {
        self.ticker.worker()
    }

    /// The tick of the next id, were it issued without a look at the clock.
    pub(crate) fn next_tick(&self) -> u64 {
        self.ticker.next_tick()
    }

    /// Whether the clock is where ids can be issued now, or as soon as those of a batch have passed.
    fn is_at_clock(&self) -> bool {
        let layout = self.ticker.layout();
        let is_near = |now: u64| {
            let batch_ahead = self.batch_ahead.load(Ordering::Relaxed);
            self.next_tick() <= now.saturating_add(batch_ahead)
        };
        layout.high == High::Worker || layout.tick_at(clock::now_ms()).is_some_and(is_near)
    }

    /// For how long ids can be issued without the store: until the lease ends, or the reserved time
    /// by either clock; not at all where the clock is behind what is used up.
    pub(crate) fn left(&self) -> Duration {
        let is_issuing = self.is_serving() && self.is_at_clock();
        let (Some(held), true) = (self.held(), is_issuing) else {
            return Duration::ZERO;
        };
        let of_lease = self.ends.load(Ordering::Acquire);
        let of_lease = Duration::from_nanos(of_lease.saturating_sub(nanos(Instant::now())));
        let layout = self.ticker.layout();
        let reserved_ms = match layout.high {
            High::Time => held.until_ms.saturating_sub(clock::now_ms()),
            High::Worker => {
                let ticks = self.ticker.limit_tick().saturating_sub(self.next_tick());
                let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
                ticks.saturating_mul(layout.unit.ms())
            }
        };
        let reserved = Duration::from_millis(u64::try_from(reserved_ms).unwrap_or(0));
        of_lease.min(reserved)
    }

    /// Whether ids that lie so many ticks too far ahead do so because of a batch before them.
    pub(crate) fn is_within_a_batch(&self, ticks: u64) -> bool {
        ticks <= self.batch_ahead.load(Ordering::Relaxed)
    }

    /// Begins to issue under a lease, from the clock on. The ticker is closed.
    ///
    /// # Errors
    /// Why nothing can be issued under it; it is to be given back.
    pub(crate) fn open(
        &self,
        lease: LeaseGrant,
        hold: Duration,
    ) -> Result<(), (NotOpened, Unused)> {
        let layout = self.ticker.layout();
        let now_ms = clock::now_ms();
        let (from_tick, until_tick) = whole_ticks(layout, lease.from_ms, lease.until_ms);
        let now_tick = layout.tick_at(now_ms).unwrap_or(0);
        self.n_issued_before
            .store(self.n_issued(), Ordering::Relaxed);
        let opened = if faults::is(Fault::NoReservedUntil) {
            let end = layout.end_tick();
            self.ticker.open(lease.key.worker, now_tick, end, now_tick)
        } else {
            self.ticker
                .open(lease.key.worker, from_tick, until_tick, now_tick)
        };
        if let Err(refused) = opened {
            let from_ms = lease.from_ms;
            let key = lease.key;
            return Err((refused, Unused { key, from_ms }));
        }
        self.note(lease, hold);
        Ok(())
    }

    /// Goes on under a lease that was renewed; says whether it is still the one that ids are issued
    /// under.
    pub(crate) fn extend(&self, lease: LeaseGrant, hold: Duration) -> bool {
        let (_, until_tick) = whole_ticks(self.ticker.layout(), lease.from_ms, lease.until_ms);
        if !self.ticker.extend(lease.key.worker, until_tick) {
            return false;
        }
        self.note(lease, hold);
        true
    }

    fn note(&self, lease: LeaseGrant, hold: Duration) {
        let now = Instant::now();
        let margin = (hold / MARGIN_PART).min(LONGEST_MARGIN);
        let ends = lease.expires.checked_sub(margin).unwrap_or(now);
        let renewal = (hold / RENEWALS_A_HOLD).min(LONGEST_RENEWAL);
        let layout = self.ticker.layout();
        self.batch_ahead
            .store(batch_ahead(layout, hold), Ordering::Relaxed);
        self.most.store(most(layout, hold), Ordering::Relaxed);
        self.due.store(nanos(now + renewal), Ordering::Relaxed);
        self.is_told.store(false, Ordering::Relaxed);
        let mut held = self.held.lock();
        *held = Some(Held {
            key: lease.key,
            from_ms: lease.from_ms,
            until_ms: lease.until_ms,
            renewed_at: SystemTime::now(),
            renewed: now,
            skew_ms: lease.skew_ms,
            is_lost: false,
        });
        let ends = match faults::is(Fault::NoLeaseReserve) {
            true => now + renewal,
            false => ends,
        };
        self.ends.store(nanos(ends), Ordering::Release);
    }

    /// Issues nothing from here on; what of its time is left of the lease, if there was one that can
    /// be given back.
    pub(crate) fn close(&self) -> Option<Unused> {
        self.ends.store(0, Ordering::Release);
        let closed = self.ticker.close();
        let held = self.held.lock().take().filter(|held| !held.is_lost)?;
        let layout = self.ticker.layout();
        // Where it was closed already, how far it came is not known: the time rests.
        let first_unused = closed.map_or(held.until_ms, |closed| {
            layout.unix_ms_of(closed.first_unused_tick)
        });
        Some(Unused {
            from_ms: first_unused.clamp(held.from_ms, held.until_ms.max(held.from_ms)),
            key: held.key,
        })
    }
}

/// How long it is until the layout's epoch.
fn before_epoch(layout: &Layout, now_ms: i64) -> Duration {
    let ms = layout.epoch_ms.saturating_sub(now_ms);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// The ticks that lie wholly between two instants: the first one, and the one after the last.
fn whole_ticks(layout: &Layout, from_ms: i64, until_ms: i64) -> (u64, u64) {
    let until_tick = layout.tick_at(until_ms).unwrap_or(0);
    let from_tick = match layout.tick_at(from_ms) {
        None => 0,
        Some(tick) if layout.unix_ms_of(tick) < from_ms => tick.saturating_add(1),
        Some(tick) => tick,
    };
    (from_tick, until_tick)
}

fn ticks_in(layout: &Layout, time: Duration) -> u64 {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ms.checked_div(layout.unit.ms().unsigned_abs()).unwrap_or(0)
}

/// How many ticks a batch may reach ahead: a second, as far as a lease that is about to be renewed
/// has so much time reserved, and a tick in any case.
fn batch_ahead(layout: &Layout, hold: Duration) -> u64 {
    let reserved = ticks_in(layout, hold - hold / RENEWALS_A_HOLD).saturating_sub(2);
    let second = ticks_in(layout, Duration::from_millis(BATCH_AHEAD_MS));
    second.min(reserved).max(AHEAD)
}

/// How many ids there are in the time that is reserved whenever a batch comes: as far as that may
/// reach ahead, or half of what a lease reserves where ids are counted.
fn most(layout: &Layout, hold: Duration) -> u64 {
    let ticks = match layout.high {
        High::Time => batch_ahead(layout, hold),
        High::Worker => (ticks_in(layout, hold) / 2).max(1),
    };
    ticks.saturating_mul(layout.ids_a_tick())
}

fn blocks(stamped: &Stamped) -> Vec<Block> {
    let ranges = stamped.ranges();
    ranges
        .filter_map(|(first, count)| Block::new(first, count, 1).ok())
        .collect()
}

/// Nanoseconds since the first use of this.
#[inline]
fn nanos(instant: Instant) -> u64 {
    let since = instant.saturating_duration_since(*ANCHOR);
    since
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(since.subsec_nanos()))
}
