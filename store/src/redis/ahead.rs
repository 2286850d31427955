//! Raises ceilings: in the row first, and in Redis once that is committed.
//!
//! This happens ahead of time. So callers wait for neither, and the database may be away for as
//! long as `block.hold`. The sizes are decided as for blocks: if less than `block.hold` is left,
//! the ceiling rises by what `block.refill` needs.

use std::{sync::Arc, time::Instant};

use odometer_core::sizing::{self, Demand};
use odometer_database::failure::StatementFailure;
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
use crate::{error::StoreError, rows::counter::GuardedCounter};

/// A counter whose window a task raises, or leases.
pub(crate) struct WindowTask {
    store: Arc<RedisStore>,
    server: Arc<RedisServer>,
    counter: Arc<WindowEntry>,
    redis_key: String,
}

/// A ceiling that is to be raised.
pub(crate) struct Extension {
    task: WindowTask,
    row: GuardedCounter,
    pub(crate) window: OpenWindow,
    /// How many numbers are added to the window.
    count: u64,
    /// The length by which these numbers raise the row.
    length: i64,
    ceiling: i64,
    rate: f64,
}

/// The outcome of an [`Extension`].
pub(crate) enum Extended {
    Raised,
    /// The row's high-water mark is not where the window ends, or the row has another window. Or
    /// the window's counts cannot grow any more.
    Conflict,
    /// The row was raised, and the window is not in Redis any more, or another one is.
    Lost,
    /// The row was raised, and Redis does not answer.
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

    pub(crate) fn extension(
        &self,
        window: OpenWindow,
        demand: &Demand,
        count: u64,
    ) -> Result<Extension, StoreError> {
        Ok(Extension {
            task: self.window_task(),
            row: self.row()?,
            count,
            length: length_of(&window.known.definition, count)?,
            ceiling: window.ceiling()?,
            rate: demand.rates.average(),
            window,
        })
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
        let count = granted(definition, &demand, left, 1);
        let Ok(extension) = self.extension(window, &demand, count) else {
            return;
        };
        self.store.tasks().spawn(async move {
            let until = Instant::now() + extension.task.store.database.settings.deadline;
            // If this fails, the next step near the ceiling tries again. A caller that meets the
            // ceiling is given the cause. If Redis is away, it learns of the ceiling later. If the
            // window is lost, the replica that opens the next one counts the numbers.
            if let Ok(Extended::Conflict) = extension.run(until).await {
                let counter = &extension.task.counter;
                counter.note_conflict(extension.window.number, extension.ceiling);
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
}

impl Extension {
    /// Raises the ceiling in the row, and then in Redis.
    ///
    /// # Errors
    /// How the statement on the row failed.
    pub(crate) async fn run(&self, until: Instant) -> Result<Extended, StatementFailure> {
        let raised = self.window.cap.saturating_add(self.count);
        if raised >= scripts::MAX {
            // Redis counts no further in one window.
            return Ok(Extended::Conflict);
        }
        let database = &self.task.store.database;
        let (window, ceiling) = (self.window.number, self.ceiling);
        let (length, rate, row) = (self.length, self.rate, self.row.clone());
        let raising = database.connection.run(until, |connection| {
            row.raise(connection, window, ceiling, length, rate)
        });
        if !raising.await? {
            database.metrics.conflict.increment(1);
            return Ok(Extended::Conflict);
        }
        database.metrics.reserved.increment(1);
        let cap = self.cap_by_row(until).await.unwrap_or(raised);
        self.task.counter.owe(window, cap);
        Ok(match self.task.raise(window, cap).await {
            Ok(ScriptAnswer::Done { used, cap } | ScriptAnswer::Full { used, cap }) => {
                self.task.counter.note(window, used, cap);
                Extended::Raised
            }
            Ok(ScriptAnswer::Lost) => Extended::Lost,
            Err(_) => Extended::Away,
        })
    }

    /// Reads the window's end from the row, under a fault that trusts the row for it.
    async fn cap_by_row(&self, until: Instant) -> Option<u64> {
        if !faults::is(Fault::CeilingFromRow) {
            return None;
        }
        let key = self.row.key.clone();
        let connection = &self.task.store.database.connection;
        let reading = connection.run(until, |database| row::next_value(database, key));
        let length = reading.await.ok()?.checked_sub(self.window.base)?;
        u64::try_from(length.checked_div(self.window.known.definition.step)?).ok()
    }
}
