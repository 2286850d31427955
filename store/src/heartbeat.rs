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
//! has raised every counter. The poll sees the recovery by the [branch](crate::fences) of the
//! database, and the replica writes its row again, above every value that it has sent. Blocks that were reserved before the
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
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ::metrics::Gauge;
use entity::replica;
use odometer_core::name::SequenceName;
use odometer_database::{
    connection::Connection,
    database_clock,
    failure::{Cause, StatementFailure},
    file_mark::FileMark,
    route::PoolerRoute,
    server_mark::ServerMark,
    session::DatabaseConnection,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, Iterable, QueryFilter,
    sea_query::{Expr, ExprTrait, OnConflict, Query},
};
use tokio::sync::watch;

use crate::{
    error::StoreError,
    fences::Recoveries,
    guard::HeartbeatGuard,
    lineage::StampGuard,
    set_aside::{is_kept, set_aside_value},
    trust::{Met, Trust},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::beat";

/// Says what is known of this replica's row.
pub(crate) const ROW_GONE: &str = "this replica's own row is gone or older than it was";

/// The heartbeat of this replica: its row, and what this process knows of the database.
pub(crate) struct Heartbeat {
    holder: Arc<str>,
    /// 1 while the store is known to have gone back.
    went_back: Gauge,
    /// The name of the store.
    store: Arc<str>,
    /// Whether this process has a row. A command has none: it has seen nothing of the store before,
    /// so only the stamp tells it that the store went back.
    pub(crate) has_row: bool,
    /// Says which SQLite file the database is. `None` for a server.
    pub(crate) file: Option<Arc<FileMark>>,
    backend: DbBackend,
    route: PoolerRoute,
    /// Whether the server gives marks, as far as is known.
    has_marks: AtomicBool,
    trust: watch::Sender<Trust>,
}

impl Heartbeat {
    /// Creates the heartbeat of a process that has not met its database yet.
    pub(crate) fn new(
        holder: Arc<str>,
        store: Arc<str>,
        went_back: Gauge,
        (backend, route): (DbBackend, PoolerRoute),
    ) -> Self {
        Self {
            holder,
            went_back,
            store,
            has_row: true,
            file: None,
            backend,
            route,
            has_marks: AtomicBool::new(true),
            trust: watch::Sender::new(Trust::default()),
        }
    }

    /// Creates the heartbeat of a process whose database gives no marks, for tests.
    pub(crate) fn unconnected(holder: &str) -> Self {
        let way = (DbBackend::Sqlite, PoolerRoute::straight());
        Self::new(holder.into(), "default".into(), Gauge::noop(), way)
    }

    /// Returns the name of this process in its row.
    pub(crate) fn holder(&self) -> &Arc<str> {
        &self.holder
    }

    /// Notes whether the server gives marks.
    pub(crate) fn note_marks(&self, has_marks: bool) {
        self.has_marks.store(has_marks, Ordering::Release);
    }

    /// Returns the marks of the server, for statements on the way that is known now. `None` if the
    /// server gives none. Then the stamp is not compared.
    pub(crate) fn mark(&self) -> Option<ServerMark> {
        let is_compared = self.has_marks.load(Ordering::Acquire)
            && !faults::is(Fault::NoStamp)
            && !faults::is(Fault::NoWentBackChecks);
        let mark = match &self.file {
            Some(file) => Some(ServerMark::of_file(file.id())),
            None => ServerMark::of(self.backend, self.route.is_pooled()),
        };
        mark.filter(|_| is_compared)
    }

    /// Returns the guard of the stamp on `branch`.
    fn stamp_guard(&self, branch: Option<i64>) -> Result<Option<StampGuard>, StoreError> {
        let Some(mark) = self.mark() else {
            return Ok(None);
        };
        Ok(Some(StampGuard {
            branch: branch.ok_or(StoreError::Unavailable)?,
            mark,
            backend: self.backend,
        }))
    }

    /// Returns a guard. Take it before sending the statement that it guards.
    ///
    /// # Errors
    /// `WentBack` if the store is known to have gone back. `Unavailable` before the first contact,
    /// or while it is looked why a guard did not hold.
    pub(crate) fn guard(&self) -> Result<HeartbeatGuard, StoreError> {
        let trust = self.trust.borrow();
        trust.check()?;
        let least = match self.has_row {
            true => Some(trust.confirmed().ok_or(StoreError::Unavailable)?),
            false => None,
        };
        Ok(HeartbeatGuard {
            holder: Arc::clone(&self.holder),
            least,
            stamp: self.stamp_guard(trust.branch())?,
            n_recoveries: trust.n_recoveries(),
            recovered_at: trust.recovered_at(),
            recoveries: Arc::clone(trust.recoveries()),
        })
    }

    /// Waits while the database is doubted, at most until `until`.
    pub(crate) async fn settled(&self, until: Instant) {
        if !self.is_doubted() {
            return;
        }
        let mut trust = self.trust.subscribe();
        let settled = trust.wait_for(|trust| !trust.is_doubted());
        // If it is not settled by then, the guard says so.
        let _in_time = tokio::time::timeout_at(until.into(), settled).await;
    }

    /// Resolves when the database is doubted.
    pub(crate) async fn doubted(&self) {
        let mut trust = self.trust.subscribe();
        // The sending end lives as long as the heartbeat.
        let _doubted = trust.wait_for(Trust::is_doubted).await;
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.trust.borrow().is_doubted()
    }

    pub(crate) fn has_gone_back(&self) -> bool {
        self.trust.borrow().has_gone_back()
    }

    /// Returns whether statements may be guarded now.
    pub(crate) fn is_sound(&self) -> bool {
        self.trust.borrow().check().is_ok()
    }

    /// Returns whether something is gone that this process has seen.
    pub(crate) fn is_lost(&self) -> bool {
        self.trust.borrow().is_lost()
    }

    /// Returns the last value that was sent, whether or not it arrived.
    pub(crate) fn last_sent(&self) -> i64 {
        self.trust.borrow().sent()
    }

    /// Returns the last value that is certainly in the database.
    pub(crate) fn last_confirmed(&self) -> Option<i64> {
        self.trust.borrow().confirmed()
    }

    /// Returns the branch on which this process knows the database.
    pub(crate) fn branch(&self) -> Option<i64> {
        self.trust.borrow().branch()
    }

    /// Returns how many recoveries this process has seen.
    pub(crate) fn n_recoveries(&self) -> u64 {
        self.trust.borrow().n_recoveries()
    }

    /// Returns whether this process has seen a recovery of all sequences.
    pub(crate) fn was_recovered(&self) -> bool {
        self.trust.borrow().was_recovered()
    }

    /// Returns the last recovery of this sequence that this process has seen.
    pub(crate) fn recovered_at(&self, name: &SequenceName) -> Option<i64> {
        let trust = self.trust.borrow();
        Ord::max(trust.recovered_at(), trust.recoveries().last_at_of(name))
    }

    /// Returns whether this replica's row, as it was read, is gone or older than it was.
    pub(crate) fn has_fallen(&self, beat: Option<i64>) -> bool {
        let confirmed = self.last_confirmed();
        let confirmed = confirmed.filter(|_| !faults::is(Fault::NoWentBackChecks));
        confirmed.is_some_and(|least| !is_kept(beat, least))
    }

    /// Notes that a guard did not hold. If it has a stamp, nothing is guarded until the next look
    /// tells why.
    pub(crate) fn failed(&self, guard: &HeartbeatGuard) {
        if guard.stamp.is_none() {
            return self.contradicted(guard);
        }
        self.trust
            .send_modify(|trust| trust.doubt(guard.n_recoveries));
    }

    /// Notes that the database is where this process knows it, on `branch`.
    pub(crate) fn fits(&self, branch: Option<i64>) {
        self.change(|trust| {
            trust.fits(branch);
            false
        });
    }

    /// Notes that the database is a copy, as its stamp says.
    pub(crate) fn is_a_copy(&self, how: &str) {
        if self.change(Trust::is_a_copy) {
            self.log_refusal(how);
        }
    }

    /// Notes that the store contradicts a guard. From now on nothing is reserved for any name.
    pub(crate) fn contradicted(&self, guard: &HeartbeatGuard) {
        self.note_went_back(guard.n_recoveries, ROW_GONE);
    }

    /// Notes that something is gone, found by a read that began after `n_recoveries` recoveries.
    pub(crate) fn note_went_back(&self, n_recoveries: u64, how: &str) {
        if !faults::is(Fault::NoWentBackChecks) && self.change(|trust| trust.lost(n_recoveries)) {
            self.log_refusal(how);
        }
    }

    /// Changes what is known, and shows whether the store has gone back. Returns what `change`
    /// returns.
    fn change(&self, change: impl FnOnce(&mut Trust) -> bool) -> bool {
        let mut is_news = false;
        self.trust.send_modify(|trust| {
            is_news = change(trust);
            self.went_back.set(f64::from(u8::from(trust.shows_loss())));
        });
        is_news
    }

    fn log_refusal(&self, how: &str) {
        tracing::error!(
            target: TARGET,
            store = &*self.store,
            "the store went back to an earlier state: {how}. Nothing is reserved for any \
             sequence until `odometer recover` has run; see the runbook, \"store went back\""
        );
    }

    /// Notes that one counter is gone or below what this replica has seen, although the heartbeat
    /// has not fallen. Returns the error.
    pub(crate) fn name_went_back(&self, name: &SequenceName) -> StoreError {
        if !self.change(|trust| trust.name_is_lost(name)) {
            return StoreError::WentBack;
        }
        let advice = if self.n_recoveries() > 0 {
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

    /// Notes that an operator must say what was lost of one sequence. Returns the error.
    pub(crate) fn name_waits(&self, name: &SequenceName) -> StoreError {
        if self.change(|trust| trust.name_is_lost(name)) {
            tracing::error!(
                target: TARGET,
                sequence = name.as_str(),
                store = &*self.store,
                "the database failed over, and nobody can compute what was lost of this sequence: \
                 run `odometer recover NAME`, with --skip N or --nothing-was-lost"
            );
        }
        StoreError::WentBack
    }

    /// Notes that an operator has said that no counter was lost. So a name that waited for that may
    /// give numbers now; one that still waits is noted again at its next use.
    pub(crate) fn births_have_ended(&self) {
        self.change(Trust::forget_names);
    }

    /// Writes the row above every value that was ever sent: at the first contact, and after a
    /// recovery. The stamp must name `branch`.
    ///
    /// # Errors
    /// The row may be written or not. Call this again.
    pub(crate) async fn establish(
        &self,
        branch: Option<i64>,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let (holder, next) = (Arc::clone(&self.holder), self.next());
        let stamp = self.stamp_guard(branch).unwrap_or_default();
        let write = |database| insert_or_raise(database, holder, next, stamp);
        if !connection.run(Instant::now() + time_limit, write).await? {
            // The stamp was changed since it was read.
            return Err(StatementFailure::NotCommitted(Cause::Contention));
        }
        self.confirm(next);
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
        let stamp = guard.stamp.clone();
        let write = |database| raise(database, holder, (least, next), stamp, false);
        if connection.run(Instant::now() + time_limit, write).await? {
            self.confirm(next);
        } else {
            self.failed(&guard);
        }
        Ok(())
    }

    /// Notes in the row that this process lived through the last start of the server, and finds
    /// the row as it left it.
    pub(crate) async fn vouch(
        &self,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let (holder, trust) = (Arc::clone(&self.holder), self.trust.borrow().confirmed());
        let (Some(least), Some(mark)) = (trust, self.mark()) else {
            return Ok(());
        };
        let write = |database| vouch(database, holder, least, mark);
        connection.run(Instant::now() + time_limit, write).await
    }

    /// Raises the row for the last time, and notes in it that this process has ended in order. Call
    /// this when nothing more is given, and all that was reserved is written. A row without this
    /// note says that its process may have been killed.
    pub(crate) async fn end(&self, connection: &Arc<Connection>, time_limit: Duration) {
        let Ok(guard) = self.guard() else {
            return;
        };
        let Some(least) = guard.least else {
            return;
        };
        let (holder, next) = (Arc::clone(&self.holder), self.next());
        // A heartbeat that is sent later would take the note back.
        self.trust.send_modify(Trust::end);
        let write = |database| raise(database, holder, (least, next), guard.stamp, true);
        match connection.run(Instant::now() + time_limit, write).await {
            Ok(true) => self.confirm(next),
            Ok(false) | Err(_) => {
                tracing::debug!(
                    target: TARGET,
                    store = &*self.store,
                    "the database does not know that this replica has ended in order"
                );
            }
        }
    }

    /// Notes the recoveries that the database had before the first contact.
    pub(crate) fn met(&self, met: Met) {
        self.trust
            .send_modify(|trust| trust.met(met.recovered_at, met.recoveries));
    }

    /// Returns the recoveries that the database had when this process met its branch.
    pub(crate) fn recoveries(&self) -> Arc<Recoveries> {
        Arc::clone(self.trust.borrow().recoveries())
    }

    /// Notes that the database was recovered. The row is in it again. What was lost stays lost,
    /// unless an operator `has_said` since what it is.
    pub(crate) fn recovered(&self, met: Met, has_said: bool) {
        self.change(|trust| {
            trust.recovered(met, has_said);
            false
        });
    }

    /// Notes that a value of the heartbeat is in the database.
    fn confirm(&self, beat: i64) {
        self.trust.send_modify(|trust| trust.confirm(beat));
        if let Some(file) = &self.file {
            file.note(&self.holder, beat);
        }
    }

    fn next(&self) -> i64 {
        let mut next = 0;
        self.trust.send_modify(|trust| next = trust.next());
        next
    }
}

/// Inserts a row if no row has this holder. If there is a `stamp`, only if it fits.
async fn insert(
    database: &DatabaseConnection,
    (holder, beat, beat_at): (&str, i64, Expr),
    stamp: Option<&StampGuard>,
) -> Result<(), DbErr> {
    let mut row = Query::select();
    row.exprs([
        Expr::val(holder),
        Expr::val(beat),
        beat_at,
        Expr::val(true),
        Expr::val(false),
        Expr::val(None::<String>),
        Expr::val(true),
    ]);
    if let Some(stamp) = stamp.filter(|_| !faults::is(Fault::UnguardedBeats)) {
        stamp.narrow(&mut row);
    }
    let mut unless_there = OnConflict::column(replica::Column::Holder);
    unless_there.do_nothing_on([replica::Column::Holder]);
    let insert = Query::insert()
        .into_table(replica::Entity)
        .columns(replica::Column::iter())
        .select_from(row)
        .map_err(|error| DbErr::Custom(error.to_string()))?
        .on_conflict(unless_there)
        .to_owned();
    database.execute(&insert).await?;
    Ok(())
}

/// Writes the row. A statement of an earlier attempt may arrive late. It then neither lowers the
/// row nor makes a second one. Returns false if the stamp does not fit.
async fn insert_or_raise(
    database: DatabaseConnection,
    holder: Arc<str>,
    next: i64,
    stamp: Option<StampGuard>,
) -> Result<bool, DbErr> {
    let now = database_clock::now(database.get_database_backend());
    insert(&database, (&holder, next, now), stamp.as_ref()).await?;
    raise(database, holder, (0, next), stamp, false).await
}

async fn raise(
    database: DatabaseConnection,
    holder: Arc<str>,
    (least, next): (i64, i64),
    stamp: Option<StampGuard>,
    has_ended: bool,
) -> Result<bool, DbErr> {
    let mut raising = replica::Entity::update_many();
    if let Some(stamp) = stamp.filter(|_| !faults::is(Fault::UnguardedBeats)) {
        raising = raising.filter(Expr::exists(stamp.select_branch()));
    }
    let raised = raising
        .col_expr(replica::Column::Beat, Expr::val(next))
        .col_expr(replica::Column::Ended, Expr::val(has_ended))
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

/// Writes who vouches. The marks are those of the server that runs the statement, which may be
/// another one than before: then this is no word for the server before.
async fn vouch(
    database: DatabaseConnection,
    holder: Arc<str>,
    least: i64,
    mark: ServerMark,
) -> Result<(), DbErr> {
    replica::Entity::update_many()
        .col_expr(replica::Column::Vouches, mark.started)
        .filter(replica::Column::Holder.eq(&*holder))
        .filter(replica::Column::Beat.gte(least))
        .exec(&database)
        .await?;
    Ok(())
}
