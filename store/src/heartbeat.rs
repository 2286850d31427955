//! This replica's beat: a row of its own in the database, by which it knows a store that went back.
//!
//! Each poll raises the row. Whatever is reserved, adopted or born on the strength of the store
//! asks, in the same statement, that the row is there and not below what this process knows to be
//! committed. Where it is not, the database has forgotten commits, and with them numbers that were
//! issued: nothing is reserved for any name until `odometer recover` has run.

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
use parking_lot::{Mutex, MutexGuard};
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait, OnConflict, Query},
};

use crate::error::StoreError;

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::change::beat";

/// Rows of processes that ended are kept for so long before they are [set aside](clear_old): far
/// longer than a replica that is cut off from its database serves on.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// And for so long afterwards, before they are deleted.
const KEPT_ASIDE: Duration = Duration::from_secs(365 * 86_400);
/// Old rows set aside, or deleted, in one step.
const CLEARED_AT_ONCE: u64 = 1000;
/// The row that belongs to no process: the latest recovery that a process has seen which refuses
/// now, as the [beat of a row set aside](aside).
const LAST_RECOVERY_SEEN: &str = "last recovery seen";
/// Names that are complained of once each; from then on no more are.
const COMPLAINTS: usize = 1000;

/// This replica's row, and what is known of it.
pub(crate) struct Heartbeat {
    holder: Arc<str>,
    /// 1 while the store is known to have gone back.
    went_back: Gauge,
    /// What the store is called.
    store: Arc<str>,
    state: Mutex<HeartbeatState>,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    /// The beat that is in the database for certain; `None` before the first contact.
    confirmed: Option<i64>,
    /// The highest that was ever sent there.
    sent: i64,
    went_back: bool,
    /// How many recoveries this process has seen.
    era: u64,
    /// `meta.recovered_at` as this process goes by it: the last recovery that it has seen.
    recovered_at: Option<i64>,
    /// Names that were found to have gone back by themselves, in this era.
    complained_of: HashSet<SequenceName>,
}

/// What a statement is sent on the strength of.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatGuard {
    holder: Arc<str>,
    least: i64,
    era: u64,
    recovered_at: Option<i64>,
}

impl HeartbeatGuard {
    /// That this replica's row is there and has not gone back, as a condition of any statement.
    pub(crate) fn holds(&self) -> Expr {
        if faults::is(Fault::NoWentBackChecks) {
            return Expr::val(1).eq(1);
        }
        Expr::exists(
            Query::select()
                .expr(Expr::val(1))
                .from(replica::Entity)
                .and_where(replica::Column::Holder.eq(&*self.holder))
                .and_where(
                    replica::Column::Beat
                        .gte(self.least)
                        .or(is_aside_from(self.least)),
                )
                .to_owned(),
        )
    }

    /// Whether a beat that was read bears it out.
    pub(crate) fn is_satisfied_by(&self, read: Option<i64>) -> bool {
        read.is_some_and(|heartbeat| heartbeat >= self.least || aside(heartbeat) >= self.least)
            || faults::is(Fault::NoWentBackChecks)
    }

    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// How many recoveries this process had seen.
    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// The last recovery that this process had seen. What a statement reserves belongs to it or to
    /// a later one, never to an earlier one.
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
            state: Mutex::default(),
        }
    }

    /// This process, as its row says.
    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// To be had before the statement is sent that is to bear it out.
    ///
    /// # Errors
    /// `WentBack`, or `Unavailable` before the first contact.
    pub(crate) fn guard(&self) -> Result<HeartbeatGuard, StoreError> {
        let state = self.state.lock();
        if state.went_back {
            return Err(StoreError::WentBack);
        }
        Ok(HeartbeatGuard {
            holder: Arc::clone(&self.holder),
            least: state.confirmed.ok_or(StoreError::Unavailable)?,
            era: state.era,
            recovered_at: state.recovered_at,
        })
    }

    /// The last beat that was sent, whatever became of it.
    pub(crate) fn last_sent(&self) -> i64 {
        self.state.lock().sent
    }

    /// The last beat that is in the database for certain.
    pub(crate) fn last_confirmed(&self) -> Option<i64> {
        self.state.lock().confirmed
    }

    pub(crate) fn has_gone_back(&self) -> bool {
        self.state.lock().went_back
    }

    /// How many recoveries this process has seen.
    pub(crate) fn era(&self) -> u64 {
        self.state.lock().era
    }

    /// The last recovery that this process has seen.
    pub(crate) fn recovered_at(&self) -> Option<i64> {
        self.state.lock().recovered_at
    }

    /// Whether a recovery was seen since the start: what is gone may then be born again.
    pub(crate) fn has_recovered(&self) -> bool {
        self.state.lock().era > 0
    }

    /// The store contradicts a witness: from now on nothing is reserved for any name.
    pub(crate) fn contradicted(&self, guard: &HeartbeatGuard) {
        self.note_went_back_in(
            guard.era,
            "this replica's own row is gone or older than it was",
        );
    }

    /// Something was found to be gone by a look that began in an era: before a recovery, it says
    /// nothing of the time after it.
    pub(crate) fn note_went_back_in(&self, era: u64, how: &str) {
        let state = self.state.lock();
        if state.era == era {
            self.mark_gone_back(state, how);
        }
    }

    pub(crate) fn note_went_back(&self, how: &str) {
        self.mark_gone_back(self.state.lock(), how);
    }

    fn mark_gone_back(&self, mut state: MutexGuard<'_, HeartbeatState>, how: &str) {
        if faults::is(Fault::NoWentBackChecks) {
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

    /// One counter is gone or below what this replica has seen, although its beat is not.
    pub(crate) fn note_name_went_back(&self, name: &SequenceName) {
        self.went_back.set(1.0);
        let mut state = self.state.lock();
        if state.complained_of.len() >= COMPLAINTS || !state.complained_of.insert(name.clone()) {
            return;
        }
        let advice = if state.era > 0 {
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
    }

    /// Writes the row anew, above all that was ever sent: at the first contact, after a recovery.
    ///
    /// # Errors
    /// It may be written or not; to be called again.
    pub(crate) async fn establish(
        &self,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let (holder, next) = (Arc::clone(&self.holder), self.next());
        let write = |database| insert_or_raise(database, holder, next);
        connection.run(Instant::now() + time_limit, write).await?;
        let mut state = self.state.lock();
        state.confirmed = Some(next);
        Ok(())
    }

    /// Raises the row by one, which only works on a store that has not gone back.
    ///
    /// # Errors
    /// Whether it was raised is not known; the next time is above it in any case.
    pub(crate) async fn raise(
        &self,
        connection: &Arc<Connection>,
        time_limit: Duration,
    ) -> Result<(), StatementFailure> {
        let Ok(guard) = self.guard() else {
            return Ok(());
        };
        let next = self.next();
        let (holder, least) = (Arc::clone(&self.holder), guard.least);
        let write = |database| raise(database, holder, least, next);
        if connection.run(Instant::now() + time_limit, write).await? {
            let mut state = self.state.lock();
            state.confirmed = Some(next);
        } else {
            self.contradicted(&guard);
        }
        Ok(())
    }

    /// While this process refuses, tells the database which recovery it has seen last. The state
    /// that the database went back to may not know of that recovery, and the next one has to be
    /// [later](last_recovery_seen), also by a slower clock: this process trusts no earlier one.
    ///
    /// # Errors
    /// Whether it was written is not known; to be called again.
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

    /// The first contact: the last recovery that there was before it.
    pub(crate) fn met(&self, recovered_at: Option<i64>) {
        self.state.lock().recovered_at = recovered_at;
    }

    /// A recovery was seen, and the row is there again.
    pub(crate) fn recovered(&self, recovered_at: Option<i64>) {
        let mut state = self.state.lock();
        state.went_back = false;
        state.era = state.era.saturating_add(1);
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

/// A statement of an earlier attempt that arrives late neither lowers the row nor makes another.
async fn insert_or_raise(
    database: DatabaseConnection,
    holder: Arc<str>,
    next: i64,
) -> Result<(), DbErr> {
    let row = replica::ActiveModel {
        holder: Set((*holder).to_owned()),
        beat: Set(next),
        beat_at: Set(now_ms()),
    };
    replica::Entity::insert(row)
        .on_conflict(
            OnConflict::column(replica::Column::Holder)
                .do_nothing_on([replica::Column::Holder])
                .to_owned(),
        )
        .exec_without_returning(&database)
        .await?;
    if raise(database, holder, 0, next).await? {
        Ok(())
    } else {
        Err(DbErr::RecordNotFound("replica".to_owned()))
    }
}

async fn note_last_recovery(database: DatabaseConnection, seen: i64) -> Result<(), DbErr> {
    let row = replica::ActiveModel {
        holder: Set(LAST_RECOVERY_SEEN.to_owned()),
        beat: Set(aside(seen)),
        beat_at: Set(aside(now_ms())),
    };
    replica::Entity::insert(row)
        .on_conflict(
            OnConflict::column(replica::Column::Holder)
                .do_nothing_on([replica::Column::Holder])
                .to_owned(),
        )
        .exec_without_returning(&database)
        .await?;
    replica::Entity::update_many()
        .col_expr(replica::Column::Beat, Expr::val(aside(seen)))
        .filter(replica::Column::Holder.eq(LAST_RECOVERY_SEEN))
        .filter(replica::Column::Beat.gt(aside(seen)))
        .exec(&database)
        .await?;
    Ok(())
}

/// The latest recovery that a process has seen which refuses.
pub(crate) async fn last_recovery_seen(
    database: &impl ConnectionTrait,
) -> Result<Option<i64>, DbErr> {
    let row = replica::Entity::find_by_id(LAST_RECOVERY_SEEN)
        .one(database)
        .await?;
    Ok(row.map(|row| aside(row.beat)))
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
                .or(replica::Column::Beat.between(aside(next), aside(least))),
        )
        .exec(&database)
        .await?;
    Ok(raised.rows_affected == 1)
}

/// The beat of a row once it is set aside, below zero; of such a beat, what it was before.
const fn aside(heartbeat: i64) -> i64 {
    !heartbeat
}

/// That a row was set aside at such a beat or a higher one.
fn is_aside_from(least: i64) -> Expr {
    replica::Column::Beat.lte(aside(least))
}

/// Sets rows aside of processes that seem to have ended long ago, and deletes those that were set
/// aside long ago; a bounded number of each.
///
/// The process may be stopped, or the database's clock may have been set ahead. A row that is gone
/// would tell a living replica that the store went back. One that was set aside tells it as much as
/// before, up to which beat the store has kept what was committed, and the next beat takes it back.
/// When it was set aside stands below zero, too: whoever looks for living processes passes it over.
pub(crate) async fn clear_old(database: DatabaseConnection) -> Result<(), DbErr> {
    let now = || database_clock::now(database.get_database_backend());
    let ms = |kept: Duration| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let is_old = replica::Column::Beat
        .gte(0)
        .and(Expr::col(replica::Column::BeatAt).lt(now().sub(ms(KEPT))));
    let old = some_of(&database, &is_old).await?;
    if !old.is_empty() {
        let heartbeat = Expr::val(aside(0)).sub(Expr::col(replica::Column::Beat));
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
        .and(set_aside_at.lt(now().sub(ms(KEPT_ASIDE))));
    let over = some_of(&database, &is_over).await?;
    if !over.is_empty() {
        replica::Entity::delete_many()
            .filter(replica::Column::Holder.is_in(over))
            .filter(is_over)
            .exec(&database)
            .await?;
    }
    Ok(())
}

async fn some_of(database: &DatabaseConnection, those: &Expr) -> Result<Vec<String>, DbErr> {
    replica::Entity::find()
        .select_only()
        .column(replica::Column::Holder)
        .filter(those.clone())
        .limit(CLEARED_AT_ONCE)
        .into_tuple()
        .all(database)
        .await
}
