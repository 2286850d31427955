//! Raises ceilings: in the row first, and in Redis once that is committed.
//!
//! This happens ahead of time. So callers wait for neither, and the database may be away for as
//! long as `block.hold`. The sizes are decided as for blocks: if less than `block.hold` is left,
//! the ceiling rises by what `block.refill` needs.

use std::{sync::Arc, time::Instant};

use odometer_core::{
    period::CounterKey,
    sizing::{self, Demand},
};
use odometer_database::failure::StatementFailure;
use odometer_process::faults::{self, Fault};

use super::{
    new_window::{granted, length_of},
    row::{self, GuardedCounter},
    scripts::{self, ScriptAnswer},
    server::RedisServer,
    store::RedisStore,
    strict_reservation::StrictReservation,
    window::{OpenWindow, TaskPermit, WindowEntry},
};
use crate::error::StoreError;

/// A ceiling that is to be raised.
pub(crate) struct Extension {
    store: Arc<RedisStore>,
    server: Arc<RedisServer>,
    counter: Arc<WindowEntry>,
    redis_key: String,
    row: GuardedCounter,
    window: i64,
    base: i64,
    step: i64,
    cap: u64,
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
    pub(crate) fn extension(
        &self,
        window: &OpenWindow,
        demand: &Demand,
        count: u64,
    ) -> Result<Extension, StoreError> {
        let definition = &window.known.definition;
        Ok(Extension {
            store: Arc::clone(self.store),
            server: Arc::clone(&self.server),
            counter: Arc::clone(&self.counter),
            redis_key: self.redis_key.clone(),
            row: self.row()?,
            window: window.number,
            base: window.base,
            step: definition.step,
            cap: window.cap,
            count,
            length: length_of(definition, count)?,
            ceiling: window.ceiling()?,
            rate: demand.rates.average(),
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
            self.tell_ahead(window.number, cap, turn);
            return;
        }
        let count = granted(definition, &demand, left, 1);
        let Ok(extension) = self.extension(&window, &demand, count) else {
            return;
        };
        self.store.tasks().spawn(async move {
            let database = Arc::clone(&extension.store.database);
            let until = Instant::now() + database.settings.deadline;
            // If this fails, the next step near the ceiling tries again. A caller that meets the
            // ceiling is given the cause.
            let (counter, window, ceiling) = (
                Arc::clone(&extension.counter),
                extension.window,
                extension.ceiling,
            );
            match extension.run(until).await {
                Ok(Extended::Raised) | Err(_) => {}
                Ok(Extended::Conflict) => counter.note_conflict(window, ceiling),
                // If Redis is away, it learns of the ceiling later. If the window is lost, the replica
                // that opens the next one counts the numbers.
                Ok(Extended::Away | Extended::Lost) => {}
            }
            drop(turn);
        });
    }
}

impl StrictReservation<'_> {
    /// Raises the ceiling in Redis to what the row already has. It may be repeated at any time.
    pub(crate) async fn tell(&self, window: i64, cap: u64) {
        tell(&self.server, &self.counter, &self.redis_key, (window, cap)).await;
    }

    fn tell_ahead(&self, window: i64, cap: u64, turn: TaskPermit) {
        let (server, counter) = (Arc::clone(&self.server), Arc::clone(&self.counter));
        let key = self.redis_key.clone();
        self.store.tasks().spawn(async move {
            tell(&server, &counter, &key, (window, cap)).await;
            drop(turn);
        });
    }
}

async fn tell(
    server: &Arc<RedisServer>,
    counter: &WindowEntry,
    key: &str,
    (window, cap): (i64, u64),
) {
    let mut raise = scripts::RAISE.key(key);
    raise.arg(window).arg(cap).arg(scripts::KEY_TTL_MS);
    match server
        .run::<(i64, u64, u64)>(&raise)
        .await
        .map(ScriptAnswer::of)
    {
        Ok(Some(ScriptAnswer::Done { used, cap })) => counter.note(window, used, cap),
        // The next step gets the same answer, and handles it.
        Ok(_) => counter.owe(window, 0),
        Err(_) => {}
    }
}

impl Extension {
    /// Raises the ceiling in the row, and then in Redis.
    ///
    /// # Errors
    /// How the statement on the row failed.
    pub(crate) async fn run(self, until: Instant) -> Result<Extended, StatementFailure> {
        if self.cap.saturating_add(self.count) >= scripts::MAX {
            // Redis counts no further in one window.
            return Ok(Extended::Conflict);
        }
        let database = &self.store.database;
        let (window, ceiling) = (self.window, self.ceiling);
        let (length, rate, row) = (self.length, self.rate, self.row.clone());
        let raising = database.connection.run(until, |connection| {
            row.raise(connection, window, ceiling, length, rate)
        });
        if !raising.await? {
            database.metrics.conflict.increment(1);
            return Ok(Extended::Conflict);
        }
        database.metrics.reserved.increment(1);
        let cap = match self.cap_by_row(until).await {
            Some(cap) => cap,
            None => self.cap.saturating_add(self.count),
        };
        self.counter.owe(window, cap);
        let mut raise = scripts::RAISE.key(&self.redis_key);
        raise.arg(window).arg(cap).arg(scripts::KEY_TTL_MS);
        Ok(match self.server.run::<(i64, u64, u64)>(&raise).await {
            Ok(raw) => match ScriptAnswer::of(raw) {
                Some(ScriptAnswer::Done { used, cap } | ScriptAnswer::Full { used, cap }) => {
                    self.counter.note(window, used, cap);
                    Extended::Raised
                }
                Some(ScriptAnswer::Gone | ScriptAnswer::Foreign | ScriptAnswer::Other) | None => {
                    Extended::Lost
                }
            },
            Err(_) => Extended::Away,
        })
    }

    /// Reads the window's end from the row, under a fault that trusts the row for it.
    async fn cap_by_row(&self, until: Instant) -> Option<u64> {
        if !faults::is(Fault::CeilingFromRow) {
            return None;
        }
        let key: CounterKey = self.row.key.clone();
        let database = &self.store.database;
        let reading = database
            .connection
            .run(until, |connection| row::next_value(connection, key));
        let length = reading.await.ok()?.checked_sub(self.base)?;
        u64::try_from(length.checked_div(self.step)?).ok()
    }
}
