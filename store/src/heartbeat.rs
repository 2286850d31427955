//! Notices that a database lost commits. Each replica keeps a row of its own in the database for
//! this purpose: its heartbeat.
//!
//! # The problem
//!
//! A database can lose commits that it has confirmed: it is restored from a backup, or a failover
//! promotes a standby that lags behind. Its counters then stand lower than before. The next
//! reservation gives numbers that callers already have.
//!
//! # The naive way, and why it fails
//!
//! A replica could compare each counter with the value that it last saw. That finds a loss only
//! for names that this replica used after the backup was made. It says nothing about a name that
//! only another replica used, or about a name that this replica has unloaded.
//!
//! # What Odometer does
//!
//! Each poll raises the replica's heartbeat. The process remembers the highest value that it knows
//! to be committed. Every statement that reserves, adopts, creates or leases has a guard: it takes
//! effect only if the heartbeat is there and is not below that value. The guard is part of the
//! statement, so no time passes between the check and the write, and an undisturbed refill is
//! still one round trip.
//!
//! If a guard fails, the database has lost commits, and with them numbers that were issued. From
//! then on this replica reserves nothing for any name in this database, until `odometer recover`
//! has raised every counter. The poll sees the recovery in `meta.recovered_at`, and the replica
//! writes its row again, above every value that it has sent. Blocks that were reserved before the
//! recovery are dropped, because other processes may have got the same numbers in commits that
//! were lost.
//!
//! If only commits after the last poll are lost, the heartbeat stands as before. The comparison of
//! each counter with its last seen value stays in place for that case.
//!
//! A row that no poll has raised for 30 days is set aside: its values become negative, and a year
//! later the row is deleted. Such a row still satisfies the guard, because it shows up to which
//! value the database has kept what was committed. The next poll takes it back.
//!
//! The decision is ADR 23.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use ::metrics::Gauge;
use entity::replica;
use odometer_core::name::SequenceName;
use odometer_database::{
    connection::Connection, database_clock, failure::StatementFailure, session::DatabaseConnection,
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use parking_lot::Mutex;
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait, OnConflict, Query},
};

use crate::error::StoreError;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::beat";

/// Sets how long after its last heartbeat a row is [set aside](clear_old). A replica that is cut
/// off from its database serves for a far shorter time.
const ROW_TTL: Duration = Duration::from_secs(30 * 86_400);
/// Sets how long a row stays set aside before it is deleted.
const ASIDE_TTL: Duration = Duration::from_secs(365 * 86_400);
/// Bounds how many old rows one step sets aside, and how many it deletes.
const CLEARED_AT_ONCE: u64 = 1000;
/// Names the one row that belongs to no process. Its `beat` is the latest recovery that a refusing
/// process has seen, stored like the value of a [row set aside](set_aside_value).
const LAST_RECOVERY_SEEN: &str = "last recovery seen";
/// Bounds how many names are logged as gone back. Each is logged once, and later names are not.
const MAX_NAMES_LOGGED: usize = 1000;

/// The heartbeat of this replica: its row, and what this process knows of the row.
pub(crate) struct Heartbeat {
    holder: Arc<str>,
    /// 1 while the store is known to have gone back.
    went_back: Gauge,
    /// The name of the store.
    store: Arc<str>,
    /// Whether this process has a row. A command has none, so its guards always hold. It has seen
    /// nothing of the store before, so it cannot notice that the store went back. Replicas notice
    /// it.
    pub(crate) has_row: bool,
    state: Mutex<HeartbeatState>,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    /// The last value that is certainly in the database. `None` before the first contact.
    confirmed: Option<i64>,
    /// The highest value that was ever sent to the database.
    sent: i64,
    went_back: bool,
    /// The number of recoveries that this process has seen.
    n_recoveries: u64,
    /// The last recovery that this process has seen, as `meta.recovered_at` gave it.
    recovered_at: Option<i64>,
    /// The names that were found to have gone back by themselves, since the last recovery.
    complained_of: HashSet<SequenceName>,
}

/// A condition for statements: this replica's heartbeat has not fallen.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatGuard {
    holder: Arc<str>,
    /// `None` if this process has no row. Then the guard always holds.
    least: Option<i64>,
    n_recoveries: u64,
    recovered_at: Option<i64>,
}

impl HeartbeatGuard {
    /// Returns the condition for a statement: this replica's row is there and has not gone back.
    pub(crate) fn holds(&self) -> Expr {
        let least = self.least.filter(|_| !faults::is(Fault::NoWentBackChecks));
        let Some(least) = least else {
            return Expr::val(1).eq(1);
        };
        Expr::exists(
            Query::select()
                .expr(Expr::val(1))
                .from(replica::Entity)
                .and_where(replica::Column::Holder.eq(&*self.holder))
                .and_where(replica::Column::Beat.gte(least).or(is_aside_from(least)))
                .to_owned(),
        )
    }

    /// Returns whether a heartbeat that was read satisfies the guard.
    pub(crate) fn is_satisfied_by(&self, read: Option<i64>) -> bool {
        let least = self.least.filter(|_| !faults::is(Fault::NoWentBackChecks));
        least.is_none_or(|least| read.is_some_and(|it| it >= least || set_aside_value(it) >= least))
    }

    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns how many recoveries this process had seen when the guard was made.
    pub(crate) fn n_recoveries(&self) -> u64 {
        self.n_recoveries
    }

    /// Returns the last recovery that this process had seen when the guard was made. Numbers that
    /// the guarded statement reserves belong to this recovery or to a later one, never to an
    /// earlier one.
    pub(crate) fn recovered_at(&self) -> Option<i64> {
        self.recovered_at
    }
}

impl Heartbeat {
    pub(crate) fn new(holder: Arc<str>, store: Arc<str>, went_back: Gauge) -> Self {
        Self {
            holder,
            went_back,
            store,
            has_row: true,
            state: Mutex::default(),
        }
    }

    /// Returns a guard. Take it before sending the statement that it guards.
    ///
    /// # Errors
    /// `WentBack` if the store is known to have gone back, or `Unavailable` before the first
    /// contact.
    pub(crate) fn guard(&self) -> Result<HeartbeatGuard, StoreError> {
        let state = self.state.lock();
        if state.went_back {
            return Err(StoreError::WentBack);
        }
        let least = if self.has_row {
            Some(state.confirmed.ok_or(StoreError::Unavailable)?)
        } else {
            None
        };
        Ok(HeartbeatGuard {
            holder: Arc::clone(&self.holder),
            least,
            n_recoveries: state.n_recoveries,
            recovered_at: state.recovered_at,
        })
    }

    /// Returns the last value that was sent, whether or not it arrived.
    pub(crate) fn last_sent(&self) -> i64 {
        self.state.lock().sent
    }

    /// Returns the last value that is certainly in the database.
    pub(crate) fn last_confirmed(&self) -> Option<i64> {
        self.state.lock().confirmed
    }

    pub(crate) fn has_gone_back(&self) -> bool {
        self.state.lock().went_back
    }

    /// Returns how many recoveries this process has seen.
    pub(crate) fn n_recoveries(&self) -> u64 {
        self.state.lock().n_recoveries
    }

    /// Returns the last recovery that this process has seen.
    pub(crate) fn recovered_at(&self) -> Option<i64> {
        self.state.lock().recovered_at
    }

    /// Notes that the store contradicts a guard. From now on nothing is reserved for any name.
    pub(crate) fn contradicted(&self, guard: &HeartbeatGuard) {
        self.note_went_back(
            guard.n_recoveries,
            "this replica's own row is gone or older than it was",
        );
    }

    /// Notes that something is gone, found by a read that began after `n_recoveries` recoveries. A
    /// read that began before a recovery says nothing of the time after that recovery, so it is
    /// ignored.
    pub(crate) fn note_went_back(&self, n_recoveries: u64, how: &str) {
        let mut state = self.state.lock();
        if state.n_recoveries != n_recoveries || faults::is(Fault::NoWentBackChecks) {
            return;
        }
        self.went_back.set(1.0);
        let was_known = std::mem::replace(&mut state.went_back, true);
        drop(state);
        if !was_known {
            tracing::error!(
                target: TARGET,
                store = &*self.store,
                "the store went back to an earlier state: {how}. Nothing is reserved for any \
                 sequence until `odometer recover` has run; see the runbook, \"store went back\""
            );
        }
    }

    /// Notes that one counter is gone or below what this replica has seen, although the heartbeat
    /// has not fallen. Returns the error.
    pub(crate) fn name_went_back(&self, name: &SequenceName) -> StoreError {
        self.went_back.set(1.0);
        let mut state = self.state.lock();
        if state.complained_of.len() >= MAX_NAMES_LOGGED
            || !state.complained_of.insert(name.clone())
        {
            return StoreError::WentBack;
        }
        let advice = if state.n_recoveries > 0 {
            "the last `odometer recover` skipped too little for it: run it again, with a larger \
             --skip"
        } else {
            "run `odometer recover`"
        };
        tracing::error!(
            target: TARGET,
            sequence = name.as_str(),
            store = &*self.store,
            "the store went back: this counter is gone or below what this replica has seen, and \
             nothing is reserved for it; {advice}"
        );
        StoreError::WentBack
    }

    /// Writes the row above every value that was ever sent: at the first contact, and after a
    /// recovery.
    ///
    /// # Errors
    /// The row may be written or not. Call this again.
    pub(crate) async fn establish(
        &self,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let (holder, next) = (Arc::clone(&self.holder), self.next());
        let write = |database| insert_or_raise(database, holder, next);
        connection.run(Instant::now() + time_limit, write).await?;
        self.state.lock().confirmed = Some(next);
        Ok(())
    }

    /// Raises the row by one. This works only on a store that has not gone back.
    ///
    /// # Errors
    /// It is not known whether the row was raised. The next value is above this one in any case.
    pub(crate) async fn raise(
        &self,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let Ok(guard) = self.guard() else {
            return Ok(());
        };
        let Some(least) = guard.least else {
            return Ok(());
        };
        let (holder, next) = (Arc::clone(&self.holder), self.next());
        let write = |database| raise(database, holder, least, next);
        if connection.run(Instant::now() + time_limit, write).await? {
            self.state.lock().confirmed = Some(next);
        } else {
            self.contradicted(&guard);
        }
        Ok(())
    }

    /// Tells the database which recovery this process has seen last, while this process refuses.
    ///
    /// The state that the database went back to may not know of this recovery. The next recovery
    /// must [be later](last_recovery_seen), even if a slower clock dates it: this process trusts no
    /// earlier one.
    ///
    /// # Errors
    /// It is not known whether the recovery was written. Call this again.
    pub(crate) async fn tell_last_recovery(
        &self,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let seen = {
            let state = self.state.lock();
            state.recovered_at.filter(|_| state.went_back)
        };
        let Some(seen) = seen else {
            return Ok(());
        };
        let write = move |database| note_last_recovery(database, seen);
        connection.run(Instant::now() + time_limit, write).await
    }

    /// Notes the last recovery that the database had before the first contact.
    pub(crate) fn met(&self, recovered_at: Option<i64>) {
        self.state.lock().recovered_at = recovered_at;
    }

    /// Notes a recovery. The row is in the database again.
    pub(crate) fn recovered(&self, recovered_at: Option<i64>) {
        let mut state = self.state.lock();
        state.went_back = false;
        state.n_recoveries = state.n_recoveries.saturating_add(1);
        state.recovered_at = recovered_at;
        state.complained_of.clear();
        self.went_back.set(0.0);
    }

    fn next(&self) -> i64 {
        let mut state = self.state.lock();
        state.sent = state.sent.saturating_add(1);
        state.sent
    }
}

/// Inserts a row if no row has this holder.
async fn insert(
    database: &DatabaseConnection,
    holder: &str,
    beat: i64,
    beat_at: i64,
) -> Result<(), DbErr> {
    let row = replica::ActiveModel {
        holder: Set(holder.to_owned()),
        beat: Set(beat),
        beat_at: Set(beat_at),
    };
    let mut unless_there = OnConflict::column(replica::Column::Holder);
    unless_there.do_nothing_on([replica::Column::Holder]);
    let insert = replica::Entity::insert(row).on_conflict(unless_there);
    insert.exec_without_returning(database).await?;
    Ok(())
}

/// Writes the row. A statement of an earlier attempt may arrive late. It then neither lowers the
/// row nor makes a second one.
async fn insert_or_raise(
    database: DatabaseConnection,
    holder: Arc<str>,
    next: i64,
) -> Result<(), DbErr> {
    insert(&database, &holder, next, now_ms()).await?;
    if raise(database, holder, 0, next).await? {
        Ok(())
    } else {
        Err(DbErr::RecordNotFound("replica".to_owned()))
    }
}

async fn note_last_recovery(database: DatabaseConnection, seen: i64) -> Result<(), DbErr> {
    let (beat, beat_at) = (set_aside_value(seen), set_aside_value(now_ms()));
    insert(&database, LAST_RECOVERY_SEEN, beat, beat_at).await?;
    replica::Entity::update_many()
        .col_expr(replica::Column::Beat, Expr::val(set_aside_value(seen)))
        .filter(replica::Column::Holder.eq(LAST_RECOVERY_SEEN))
        .filter(replica::Column::Beat.gt(set_aside_value(seen)))
        .exec(&database)
        .await?;
    Ok(())
}

/// Returns the latest recovery that a refusing process has seen.
pub(crate) async fn last_recovery_seen(
    database: &impl ConnectionTrait,
) -> Result<Option<i64>, DbErr> {
    let row = replica::Entity::find_by_id(LAST_RECOVERY_SEEN)
        .one(database)
        .await?;
    Ok(row.map(|row| set_aside_value(row.beat)))
}

async fn raise(
    database: DatabaseConnection,
    holder: Arc<str>,
    least: i64,
    next: i64,
) -> Result<bool, DbErr> {
    let raised = replica::Entity::update_many()
        .col_expr(replica::Column::Beat, Expr::val(next))
        .col_expr(
            replica::Column::BeatAt,
            database_clock::now(database.get_database_backend()),
        )
        .filter(replica::Column::Holder.eq(&*holder))
        .filter(
            replica::Column::Beat
                .between(least, next)
                .or(replica::Column::Beat.between(set_aside_value(next), set_aside_value(least))),
        )
        .exec(&database)
        .await?;
    Ok(raised.rows_affected == 1)
}

/// Converts the value of a row to the value that the row has when it is set aside, which is below
/// zero. Converts the second value back to the first as well.
const fn set_aside_value(heartbeat: i64) -> i64 {
    !heartbeat
}

/// Returns the condition that a row was set aside at the value `least` or at a higher one.
fn is_aside_from(least: i64) -> Expr {
    replica::Column::Beat.lte(set_aside_value(least))
}

/// Sets aside the rows of processes that seem to have ended long ago, and deletes rows that were
/// set aside long ago. Each step handles a bounded number of rows.
///
/// A row is not deleted at once, because its process may only be stopped, or the database's clock
/// may have been set ahead. A living replica would take the deleted row for a store that went back.
/// A row that is set aside still shows up to which value the store has kept what was committed. The
/// next heartbeat takes the row back. The time of setting aside is below zero too, so a search for
/// living processes passes over the row.
pub(crate) async fn clear_old(database: DatabaseConnection) -> Result<(), DbErr> {
    let now = || database_clock::now(database.get_database_backend());
    let ms = |kept: Duration| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let is_old = replica::Column::Beat
        .gte(0)
        .and(Expr::col(replica::Column::BeatAt).lt(now().sub(ms(ROW_TTL))));
    let old = holders_matching(&database, &is_old).await?;
    if !old.is_empty() {
        let heartbeat = Expr::val(set_aside_value(0)).sub(Expr::col(replica::Column::Beat));
        replica::Entity::update_many()
            .col_expr(replica::Column::Beat, heartbeat)
            .col_expr(replica::Column::BeatAt, Expr::val(0_i64).sub(now()))
            .filter(replica::Column::Holder.is_in(old))
            .filter(is_old)
            .exec(&database)
            .await?;
    }
    let set_aside_at = Expr::val(0_i64).sub(Expr::col(replica::Column::BeatAt));
    let is_over = replica::Column::Beat
        .lt(0)
        .and(set_aside_at.lt(now().sub(ms(ASIDE_TTL))));
    let over = holders_matching(&database, &is_over).await?;
    if !over.is_empty() {
        replica::Entity::delete_many()
            .filter(replica::Column::Holder.is_in(over))
            .filter(is_over)
            .exec(&database)
            .await?;
    }
    Ok(())
}

async fn holders_matching(
    database: &DatabaseConnection,
    those: &Expr,
) -> Result<Vec<String>, DbErr> {
    replica::Entity::find()
        .select_only()
        .column(replica::Column::Holder)
        .filter(those.clone())
        .limit(CLEARED_AT_ONCE)
        .into_tuple()
        .all(database)
        .await
}
