//! Raises ceilings: in the row first, and in Redis once that is committed.
//!
//! This happens ahead of time. So callers wait for neither, and the database may be away for as
//! long as `block.hold`. The sizes are decided as for blocks: if less than `block.hold` is left,
//! the ceiling rises by what `block.refill` needs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{period::CounterKey, sizing};
use odometer_database::{failure::StatementFailure, retry::AttemptError};
use odometer_process::faults::{self, Fault};

use super::{
    new_window::{granted, length_of},
    row,
    scripts::{self, RawAnswer, ScriptAnswer},
    server::{RedisServer, ScriptFailure},
    store::RedisStore,
    strict_reservation::StrictReservation,
    window::{OpenWindow, WindowEntry},
};
use crate::{
    error::Attempted,
    reservation::pace::{Allowed, Need, rate_limited, share_of},
    rows::{
        counter::GuardedCounter,
        payment::{Payment, limit_of},
    },
};

/// Bounds how often a ceiling is raised in the row before the window is looked at again. A raise that
/// waits for the speed limit does not count.
const MAX_RAISES: u32 = 3;
/// Bounds a wait that is added to a time.
const FOREVER: Duration = Duration::from_secs(86_400);

/// By how many numbers a ceiling rises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CeilingRise {
    pub(crate) wanted: u64,
    /// A caller waits for so many. 1 if nobody waits.
    pub(crate) at_least: u64,
}

/// A counter whose window a task raises, or leases.
pub(crate) struct WindowTask {
    store: Arc<RedisStore>,
    server: Arc<RedisServer>,
    counter: Arc<WindowEntry>,
    redis_key: String,
}

/// What became of a window whose ceiling was raised in the row.
pub(crate) enum Extended {
    /// The ceiling is raised in Redis, too.
    Raised,
    /// The window is not in Redis any more, or another one is.
    Lost,
    /// Redis does not answer.
    Away,
}

impl StrictReservation<'_> {
    pub(crate) fn window_task(&self) -> WindowTask {
        WindowTask {
            store: Arc::clone(self.store),
            server: Arc::clone(&self.server),
            counter: Arc::clone(&self.counter),
            redis_key: self.redis_key.clone(),
        }
    }

    /// Raises the ceiling in the background, if the numbers below it do not last for `block.hold`.
    pub(crate) fn extend_ahead(&self, window: OpenWindow) {
        let demand = self.demand(None);
        let definition = &window.known.definition;
        let low_water = sizing::low_water(
            &definition.block,
            &demand.rates,
            demand.this_second,
            demand.seconds_left,
        );
        let Ok(left) = window.left_in_row() else {
            return;
        };
        if window.rest() >= low_water || left == 0 || faults::is(Fault::NoPrefetch) {
            return;
        }
        let Some(turn) = self.counter.extension_permit() else {
            return;
        };
        if let Some(cap) = self.counter.owed(window.number, window.cap) {
            let task = self.window_task();
            self.store.tasks().spawn(async move {
                task.tell(window.number, cap).await;
                drop(turn);
            });
            return;
        }
        let (count, rate) = (
            granted(definition, &demand, left, 1),
            demand.rates.average(),
        );
        let (Ok(row), Ok(ceiling)) = (self.row(), window.ceiling()) else {
            return;
        };
        let task = self.window_task();
        self.store.tasks().spawn(async move {
            let until = Instant::now() + task.store.database.settings.deadline;
            // If this fails, the next step near the ceiling tries again. A caller that meets the
            // ceiling is given the cause. If Redis is away, it learns of the ceiling later. If the
            // window is lost, the replica that opens the next one counts the numbers.
            let rise = CeilingRise {
                wanted: count,
                at_least: 1,
            };
            let extending = task.extend(row, &window, rate, rise, until);
            if let Err(AttemptError::Conflict) = extending.await {
                task.counter.note_conflict(window.number, ceiling);
            }
            drop(turn);
        });
    }
}

impl WindowTask {
    /// Raises the ceiling in Redis to what the row already has. It may be repeated at any time.
    pub(crate) async fn tell(&self, window: i64, cap: u64) {
        match self.raise(window, cap).await {
            Ok(ScriptAnswer::Done { used, cap }) => self.counter.note(window, used, cap),
            // The next step gets the same answer, and handles it.
            Ok(ScriptAnswer::Full { .. } | ScriptAnswer::Lost) => self.counter.owe(window, 0),
            Err(_) => {}
        }
    }

    /// Takes the lease of a window, or prolongs it. Returns false if the row has no such open
    /// window.
    ///
    /// # Errors
    /// How the statement failed.
    pub(crate) async fn take_lease(
        &self,
        row: GuardedCounter,
        window: i64,
        until: Instant,
    ) -> Result<bool, StatementFailure> {
        let asked_at = Instant::now();
        let connection = &self.store.database.connection;
        let leasing = connection.run(until, |database| row.lease(database, window));
        let is_leased = leasing.await?;
        if is_leased {
            self.counter.note_lease(window, asked_at);
        }
        Ok(is_leased)
    }

    async fn raise(&self, window: i64, cap: u64) -> Result<ScriptAnswer, ScriptFailure> {
        let mut raise = scripts::RAISE.key(&self.redis_key);
        raise.arg(window).arg(cap).arg(scripts::KEY_TTL_MS);
        let answer = self.server.run::<RawAnswer>(&raise).await;
        answer.map(ScriptAnswer::of)
    }

    /// Raises the ceiling of a window: in the row, and then in Redis.
    ///
    /// # Errors
    /// How the statement on the row failed. `RateLimited` if the speed limit does not allow enough
    /// numbers in time. `Conflict` if the row's high-water mark is not where the window ends, if the
    /// row has another window, or if the window's counts cannot grow any more.
    pub(crate) async fn extend(
        &self,
        row: GuardedCounter,
        window: &OpenWindow,
        rate: f64,
        rise: CeilingRise,
        until: Instant,
    ) -> Attempted<Extended> {
        let key = row.key.clone();
        let raised = self.raise_row(row, window, rate, rise, until).await?;
        let number = window.number;
        let cap = self.cap_by_row(key, window, until).await.unwrap_or(raised);
        self.counter.owe(number, cap);
        Ok(match self.raise(number, cap).await {
            Ok(ScriptAnswer::Done { used, cap } | ScriptAnswer::Full { used, cap }) => {
                self.counter.note(number, used, cap);
                Extended::Raised
            }
            Ok(ScriptAnswer::Lost) => Extended::Lost,
            Err(_) => Extended::Away,
        })
    }

    /// Raises the ceiling in the row, by as many numbers as the speed limit allows. Returns the
    /// window's numbers after that. If the limit allows too few, waits until there are more, once.
    async fn raise_row(
        &self,
        row: GuardedCounter,
        window: &OpenWindow,
        rate: f64,
        rise: CeilingRise,
        until: Instant,
    ) -> Attempted<u64> {
        let database = &self.store.database;
        let definition = &window.known.definition;
        let limit = limit_of(definition);
        let place = (window.number, window.ceiling()?);
        let mut count = limit.map_or(rise.wanted, |limit| {
            let share = share_of(limit, rise.at_least);
            rise.wanted.min(share)
        });
        let mut n_left = MAX_RAISES;
        while n_left > 0 {
            let raised = window.cap.saturating_add(count);
            if raised >= scripts::MAX {
                // Redis counts no further in one window.
                return Err(AttemptError::Conflict);
            }
            let paid = (
                length_of(definition, count)?,
                Payment::of(definition, count),
            );
            let (counter, key) = (row.clone(), row.key.clone());
            let raising = database.connection.run(until, |connection| {
                counter.raise(connection, place, paid, rate)
            });
            if raising.await? {
                database.metrics.reserved.increment(1);
                return Ok(raised);
            }
            let Some(limit) = limit else {
                break;
            };
            let reading = database
                .connection
                .run(until, |connection| row::bucket(connection, key, place));
            let Some(bucket) = reading.await? else {
                break;
            };
            let need = Need::of_callers(limit, rise.at_least).at_most(count);
            count = match Allowed::of(limit, Some(bucket), count, need) {
                Allowed::Now(n_now) => {
                    n_left -= 1;
                    n_now
                }
                Allowed::After { wait, n_now } => {
                    database.metrics.limited.increment(1);
                    if Instant::now() + wait.min(FOREVER) >= until {
                        return Err(rate_limited(wait, n_now).into());
                    }
                    tokio::time::sleep(wait).await;
                    need.enough
                }
            };
        }
        database.metrics.conflict.increment(1);
        Err(AttemptError::Conflict)
    }

    /// Reads the window's end from the row, under a fault that trusts the row for it.
    async fn cap_by_row(
        &self,
        key: CounterKey,
        window: &OpenWindow,
        until: Instant,
    ) -> Option<u64> {
        if !faults::is(Fault::CeilingFromRow) {
            return None;
        }
        let connection = &self.store.database.connection;
        let reading = connection.run(until, |database| row::next_value(database, key));
        let length = reading.await.ok()?.checked_sub(window.base)?;
        u64::try_from(length.checked_div(window.known.definition.step)?).ok()
    }
}
