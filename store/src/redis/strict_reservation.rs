//! Makes one reservation of a sequence with strict order: one step in Redis, and all that has to
//! come before it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::sizing::{Demand, SizeReason};
use odometer_database::{
    failure::StatementFailure,
    retry::{AttemptError, Retry},
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
    metrics::AbandonedCause,
};
use uuid::Uuid;

use super::{
    ahead::{CeilingRise, Extended},
    new_window::{SeenWindows, granted},
    scripts::{self, RawAnswer, RawWindowState, ScriptAnswer, WindowState},
    server::{RedisServer, ScriptFailure},
    store::RedisStore,
    window::{Fallen, OpenWindow, WindowEntry},
};
use crate::{
    Fallback,
    error::{Attempted, StoreError, survive},
    reservation::{
        attempts::Reservation,
        counter_read::{ReadCounter, StrictIn},
        pace::{Allowed, Need, above_burst, late, rate_limited},
        request::{ReserveRequest, Reserved},
    },
    rows::{counter::GuardedCounter, payment::limit_of},
};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::redis::flight";

/// How often a full window is looked at again while another replica raises its ceiling.
pub(crate) const FULL_AGAIN: u32 = 3;

pub(crate) struct StrictReservation<'a> {
    pub(crate) store: &'a Arc<RedisStore>,
    pub(crate) request: ReserveRequest,
    pub(crate) counter: Arc<WindowEntry>,
    pub(crate) server: Arc<RedisServer>,
    /// The counter's key in Redis.
    pub(crate) redis_key: String,
    pub(crate) retry: Retry,
    pub(crate) count: u64,
    /// A window that the row names, and that Redis does not have yet.
    pub(crate) awaited: Option<i64>,
    pub(crate) n_full: u32,
    /// Whether this reservation has read the definition.
    pub(crate) is_fresh: bool,
    n_conflicts: u32,
    /// A window that is not in Redis any more.
    pub(crate) lost: Option<OpenWindow>,
    /// How many leases were over when their replies came.
    pub(crate) n_late: u32,
    /// How often Redis failed in this reservation.
    pub(crate) n_falls: u32,
    /// Whether an attempt has waited until the speed limit allows enough.
    is_limited: bool,
    /// The last recovery that was seen before this reservation.
    recovered_at: Option<i64>,
}

impl<'a> StrictReservation<'a> {
    /// Prepares a reservation.
    ///
    /// # Errors
    /// The reason why nothing is known of the counter yet.
    pub(crate) async fn new(
        store: &'a Arc<RedisStore>,
        request: ReserveRequest,
        count: u64,
    ) -> Result<Self, StoreError> {
        let heartbeat = &store.database.heartbeat;
        let recovered_at = heartbeat.recovered_at(&request.key.sequence);
        let n_recoveries = heartbeat.n_recoveries();
        let server = store.server_of(&request.key.sequence)?;
        let redis_key = store.key_of(&request.key, n_recoveries).await?;
        let retry = store.database.retry();
        let counter = store.counters.of(&request.key);
        counter.forget_before(n_recoveries);
        Ok(Self {
            counter,
            server,
            redis_key,
            retry,
            store,
            request,
            count,
            awaited: None,
            n_full: 0,
            is_fresh: false,
            n_conflicts: 0,
            lost: None,
            n_late: 0,
            n_falls: 0,
            is_limited: false,
            recovered_at,
        })
    }

    /// Tries until there are numbers, or a reason why there are none.
    pub(crate) async fn run(mut self) -> Result<Reserved, StoreError> {
        loop {
            self.request.progress.count_attempt();
            let outcome = self.attempt().await;
            if let Err(AttemptError::Conflict | AttemptError::Failed(_)) = outcome {
                self.n_conflicts = self.n_conflicts.saturating_add(1);
            }
            let name = &self.request.key.sequence;
            let judge = |failure: &StatementFailure| survive(name, failure);
            let reserved = self.retry.after(outcome, judge, late(self.is_limited));
            if let Some(reserved) = reserved.await? {
                return Ok(reserved);
            }
            self.store.database.metrics.reservation_retries.increment(1);
        }
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.store.fallback == Fallback::Database
    }

    async fn attempt(&mut self) -> Attempted<Reserved> {
        if self.is_leased() {
            match self.counter.has_fallen() {
                Fallen::No => {}
                Fallen::MayReturn if self.server.is_up() => {}
                Fallen::Yes | Fallen::MayReturn => return Box::pin(self.in_row()).await,
            }
        }
        let Some(generation) = self.server.generation().await else {
            return Box::pin(self.away()).await;
        };
        if let Some(mut window) = self.counter.window() {
            // A new connection may lead to another server.
            let is_same = window.generation == generation;
            if is_same || (!self.is_leased() && !self.store.database.is_up()) {
                window.generation = generation;
                return self.step(window).await;
            }
        }
        Box::pin(self.establish(generation)).await
    }

    /// Goes on without Redis: refuses the caller, or takes the numbers from the row.
    pub(crate) async fn away(&mut self) -> Attempted<Reserved> {
        if !self.is_leased() {
            return Err(StoreError::Unavailable.into());
        }
        if self.counter.has_fallen() == Fallen::No {
            self.fall("Redis is away");
        }
        self.in_row().await
    }

    /// Finds the window that the row names in Redis, or opens the next one.
    ///
    /// This looks at Redis first. A window that Redis shows was installed, and a window is
    /// installed only once. So if the row still names that window afterwards, no later window was
    /// in use yet.
    async fn establish(&mut self, generation: u64) -> Attempted<Reserved> {
        let n_changes = self.counter.n_changes();
        let look = scripts::LOOK.key(&self.redis_key);
        let in_redis = match self.server.run::<RawWindowState>(&look).await {
            Ok(raw) => WindowState::of(&raw),
            Err(_) => return self.away().await,
        };
        let looked = self.look().await?;
        self.is_fresh = true;
        self.check_forward(in_redis, &looked)?;
        let in_row = looked.window;
        let row_ends_at = looked.known.seen.next_value;
        let there = in_redis.filter(|there| {
            let is_named = in_row.is_open && there.window == in_row.number;
            there.is_ours && (is_named || faults::is(Fault::NoRowCheck))
        });
        if let Some(there) = there {
            let window = OpenWindow {
                number: there.window,
                base: there.base,
                used: there.used,
                cap: there.cap,
                known: looked.known.clone(),
                rate: looked.rate,
                generation,
            };
            // If a replica raised the window in the row and Redis was not informed, the window is
            // good up to its earlier ceiling.
            let is_whole = window.ceiling()? == row_ends_at && window.cap < scripts::MAX / 2;
            let is_given_up = self.n_full >= FULL_AGAIN || self.counter.has_given_up(window.number);
            if is_whole || !is_given_up {
                self.counter.keep(&window, n_changes);
                return self.step(window).await;
            }
            let left_in_row = looked.known.definition.left(row_ends_at);
            if left_in_row < self.count {
                return self.use_up(window, n_changes, left_in_row).await;
            }
        }
        let seen = SeenWindows {
            in_redis,
            in_row: looked,
            generation,
            n_changes,
        };
        self.next_window(seen).await
    }

    /// Uses the last numbers of a window, if the row has too few numbers for another window.
    ///
    /// No caller is refused as exhausted while a ceiling may still be on its way to Redis.
    async fn use_up(
        &mut self,
        window: OpenWindow,
        n_changes: u64,
        left_in_row: u64,
    ) -> Attempted<Reserved> {
        if window.rest() >= self.count {
            self.counter.keep(&window, n_changes);
            return self.step(window).await;
        }
        self.counter.note_conflict(window.number, window.ceiling()?);
        if self.counter.has_given_up(window.number) {
            let left = window.rest().max(left_in_row);
            return Err(StoreError::Exhausted { left }.into());
        }
        Err(AttemptError::Conflict)
    }

    /// Reads the row and the definition.
    pub(crate) async fn look(&mut self) -> Result<ReadCounter, StoreError> {
        Box::pin(self.of_row(StrictIn::Redis).look()).await
    }

    /// Prepares a reservation from the row, within the time of this one.
    pub(crate) fn of_row(&self, strict: StrictIn) -> Reservation<'_> {
        let reservation = Reservation::new(&self.store.database, self.request.clone());
        let mut reservation = reservation.with_strict_in(strict);
        reservation.retry.until = self.retry.until;
        reservation
    }

    /// Checks that the row is not behind Redis. What Redis knows of a counter was in the row
    /// before, so a row that says less has gone back.
    fn check_forward(
        &self,
        in_redis: Option<WindowState>,
        looked: &ReadCounter,
    ) -> Result<(), StoreError> {
        let Some(there) = in_redis else {
            return Ok(());
        };
        let set_aside_to = i64::try_from(there.cap)
            .ok()
            .and_then(|cap| cap.checked_mul(looked.known.definition.step))
            .and_then(|length| length.checked_add(there.base));
        let is_behind = there.window > looked.window.number
            || set_aside_to.is_none_or(|to| to > looked.known.seen.next_value);
        if is_behind && !faults::is(Fault::NoWentBackChecks) {
            let heartbeat = &self.store.database.heartbeat;
            return Err(heartbeat.name_went_back(&self.request.key.sequence));
        }
        Ok(())
    }

    /// Takes the wanted numbers from the window.
    pub(crate) async fn step(&mut self, mut window: OpenWindow) -> Attempted<Reserved> {
        let left = window.rest().saturating_add(window.left_in_row()?);
        self.request.want.check_handover(left)?;
        if self.is_leased() && !self.lease(&window).await? {
            self.counter.lose(window.number);
            return Err(AttemptError::Again);
        }
        let mut step = scripts::STEP.key(&self.redis_key);
        step.arg(window.number).arg(self.count);
        let started = Instant::now();
        let answer = self.server.run::<RawAnswer>(&step).await;
        self.store
            .metrics()
            .step_duration
            .record(started.elapsed().as_secs_f64());
        let answer = match answer {
            Ok(raw) => ScriptAnswer::of(raw),
            Err(failure) => {
                if failure == ScriptFailure::Uncertain {
                    self.abandon(AbandonedCause::Uncertain, self.count);
                }
                // Without a lease, numbers come from nowhere else. If only the connection broke and
                // the server lives, a new one comes within 0.1 s after the loss of the last one.
                if self.is_leased() || self.server.generation().await.is_some() {
                    return Err(AttemptError::Again);
                }
                return Err(StoreError::Unavailable.into());
            }
        };
        match answer {
            ScriptAnswer::Done { used, cap } => {
                self.store.metrics().steps.increment(1);
                (window.used, window.cap) = (used, cap);
                self.counter.note(window.number, used, cap);
                let reserved = self.reserved(&window)?;
                self.extend_ahead(window);
                Ok(reserved)
            }
            ScriptAnswer::Full { used, cap } => {
                (window.used, window.cap) = (used, cap);
                self.counter.note(window.number, used, cap);
                self.extend_now(window).await
            }
            ScriptAnswer::Lost => {
                self.lost = self.counter.lose(window.number);
                Err(AttemptError::Again)
            }
        }
    }

    fn reserved(&self, window: &OpenWindow) -> Result<Reserved, StoreError> {
        let mut known = window.known.clone();
        known.seen.next_value = known.seen.next_value.max(window.ceiling()?);
        Ok(Reserved {
            key: self.request.key.clone(),
            source: self.store.database.identity.source,
            id: Uuid::now_v7(),
            block: window.taken(window.used, self.count)?,
            adopted: false,
            known,
            stored_rate: window.rate,
            n_conflicts: self.n_conflicts,
            why: Some(SizeReason::Waiting),
            reserved_at: now_ms(),
            recovered_at: self.recovered_at,
            more_to_adopt: false,
        })
    }

    /// Raises the ceiling before another try, because the wanted numbers do not fit below it.
    async fn extend_now(&mut self, window: OpenWindow) -> Attempted<Reserved> {
        let left = window.left_in_row()?;
        let missing = self.count.saturating_sub(window.rest());
        if missing > left {
            if self.is_fresh {
                let left = left.saturating_add(window.rest());
                return Err(StoreError::Exhausted { left }.into());
            }
            if !self.store.database.is_up() {
                // Smaller counts may fit.
                return Err(StoreError::Unavailable.into());
            }
            // `max` may have been raised at another replica: look again before refusing.
            self.counter.forget();
            return Err(AttemptError::Again);
        }
        if let Some(cap) = self.counter.owed(window.number, window.cap) {
            self.window_task().tell(window.number, cap).await;
            return Err(AttemptError::Again);
        }
        self.n_full = self.n_full.saturating_add(1);
        let demand = self.demand(window.rate);
        let count = granted(&window.known.definition, &demand, left, missing);
        let (task, rate) = (self.window_task(), demand.rates.average());
        let rise = CeilingRise {
            wanted: count,
            at_least: missing,
        };
        let row = self.settled_row().await?;
        let extending = task.extend(row, &window, rate, rise, self.retry.until);
        match extending.await {
            Ok(Extended::Raised) => {
                self.n_full = 0;
                Err(AttemptError::Again)
            }
            Ok(Extended::Lost) => {
                self.lost = self.counter.lose(window.number);
                Err(AttemptError::Again)
            }
            // Redis learns of the ceiling when it is back.
            Ok(Extended::Away) => Box::pin(self.away()).await,
            Err(AttemptError::Failed(failure)) => Err(self.failed(failure, count)),
            Err(error) => {
                if matches!(error, AttemptError::Conflict) && self.n_full >= FULL_AGAIN {
                    // No replica raises the ceiling in Redis: open the next window.
                    self.counter.forget();
                }
                Err(error)
            }
        }
    }

    pub(crate) fn demand(&self, stored: Option<f64>) -> Demand {
        let told = self.request.want.demand();
        self.counter.demand(told.copied(), stored)
    }

    pub(crate) fn row(&self) -> Result<GuardedCounter, StoreError> {
        let database = &self.store.database;
        let guard = database.heartbeat.guard()?;
        Ok(database.guarded(&self.request.key, &guard))
    }

    /// Returns the row for a statement that cannot be left out. Waits while the database is doubted.
    pub(crate) async fn settled_row(&self) -> Result<GuardedCounter, StoreError> {
        self.store.database.settled(self.retry.until).await;
        self.row()
    }

    /// Counts what the failure of a statement on the row may have lost. The statement would have
    /// set `count` numbers aside.
    pub(crate) fn failed(&self, failure: StatementFailure, count: u64) -> AttemptError<StoreError> {
        if matches!(failure, StatementFailure::MayHaveCommitted(_)) {
            self.abandon(AbandonedCause::Uncertain, count);
        }
        failure.into()
    }

    pub(crate) fn abandon(&self, cause: AbandonedCause, count: u64) {
        if count > 0 && !faults::is(Fault::Uncounted) {
            let metrics = &self.store.database.metrics;
            metrics.abandoned(cause).increment(count);
        }
    }

    /// Lets the row count for some time, because Redis failed.
    pub(crate) fn fall(&mut self, why: &str) {
        self.n_falls = self.n_falls.saturating_add(1);
        self.counter.fall();
        self.store.metrics().fallbacks.increment(1);
        tracing::warn!(
            target: TARGET,
            sequence = self.request.key.sequence.as_str(),
            period = self.request.key.period.as_str(),
            "numbers come from the database for now: {why}"
        );
    }

    /// Cuts a window to what the speed limit allows now. If this is less than the callers want, waits
    /// until there is more. The next attempt goes on then.
    ///
    /// # Errors
    /// `RateLimited` if the wait would be too long, `AboveBurst` if it would never end.
    pub(crate) async fn within_limit(
        &mut self,
        in_row: &ReadCounter,
        count: u64,
    ) -> Attempted<u64> {
        let definition = &in_row.known.definition;
        let Some(limit) = limit_of(definition) else {
            return Ok(count);
        };
        if self.count > limit.burst() {
            let counted_by = self.request.counted_by.as_deref();
            return Err(above_burst(limit, counted_by, definition).into());
        }
        let (wait, n_now) = match Allowed::of(limit, in_row.bucket, count, Need::all(self.count)) {
            Allowed::Now(n_now) => return Ok(n_now),
            Allowed::After { wait, n_now } => (wait, n_now),
        };
        self.store.database.metrics.limited.increment(1);
        if wait >= self.retry.until.saturating_duration_since(Instant::now()) {
            return Err(rate_limited(wait, n_now).into());
        }
        self.is_limited = true;
        self.retry.spare();
        tokio::time::sleep(wait).await;
        Err(AttemptError::Again)
    }

    /// Sleeps, but not past the deadline.
    pub(crate) async fn sleep(&self, pause: Duration) {
        let left = self.retry.until.saturating_duration_since(Instant::now());
        tokio::time::sleep(pause.min(left)).await;
    }
}
