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
use parking_lot::Mutex;
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait, OnConflict, Query},
};

use crate::clock::now_ms;
use crate::sabotage::{self, Fault};
use crate::store::{
    connection::Connection,
    connection::session::DatabaseConnection,
    database_clock,
    error::{Failure, StoreError},
};

/// Rows of processes that ended are kept for so long: far longer than a replica that is cut off
/// from its database serves on.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Old rows deleted in one step.
const DELETED_AT_ONCE: u64 = 1000;
/// Names that are complained of once each; from then on no more are.
const COMPLAINTS: usize = 1000;

/// This replica's row, and what is known of it.
pub(in crate::store) struct Beat {
    holder: Arc<str>,
    /// 1 while the store is known to have gone back.
    went_back: Gauge,
    /// What the store is called.
    store: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The beat that is in the database for certain; `None` before the first contact.
    confirmed: Option<i64>,
    /// The highest that was ever sent there.
    sent: i64,
    went_back: bool,
    /// How many recoveries this process has seen.
    era: u64,
    /// Names that were found to have gone back by themselves, in this era.
    complained_of: HashSet<SequenceName>,
}

/// What a statement is sent on the strength of.
#[derive(Clone, Debug)]
pub(in crate::store) struct Witness {
    holder: Arc<str>,
    least: i64,
    era: u64,
}

impl Witness {
    /// That this replica's row is there and has not gone back, as a condition of any statement.
    pub(in crate::store) fn holds(&self) -> Expr {
        if sabotage::is(Fault::NoWentBackChecks) {
            return Expr::val(1).eq(1);
        }
        Expr::exists(
            Query::select()
                .expr(Expr::val(1))
                .from(replica::Entity)
                .and_where(replica::Column::Holder.eq(&*self.holder))
                .and_where(replica::Column::Beat.gte(self.least))
                .to_owned(),
        )
    }

    /// Whether a beat that was read bears it out.
    pub(in crate::store) fn is_borne_out_by(&self, read: Option<i64>) -> bool {
        read.is_some_and(|beat| beat >= self.least) || sabotage::is(Fault::NoWentBackChecks)
    }

    pub(in crate::store) fn holder(&self) -> &str {
        &self.holder
    }
}

impl Beat {
    pub(in crate::store) fn new(holder: Arc<str>, store: Arc<str>, went_back: Gauge) -> Self {
        Self {
            holder,
            went_back,
            store,
            state: Mutex::default(),
        }
    }

    /// This process, as its row says.
    pub(in crate::store) fn holder(&self) -> &str {
        &self.holder
    }

    /// To be had before the statement is sent that is to bear it out.
    ///
    /// # Errors
    /// `WentBack`, or `Unavailable` before the first contact.
    pub(in crate::store) fn witness(&self) -> Result<Witness, StoreError> {
        let state = self.state.lock();
        if state.went_back {
            return Err(StoreError::WentBack);
        }
        Ok(Witness {
            holder: Arc::clone(&self.holder),
            least: state.confirmed.ok_or(StoreError::Unavailable)?,
            era: state.era,
        })
    }

    /// The last beat that was sent, whatever became of it.
    pub(in crate::store) fn last_sent(&self) -> i64 {
        self.state.lock().sent
    }

    /// The last beat that is in the database for certain.
    pub(in crate::store) fn last_confirmed(&self) -> Option<i64> {
        self.state.lock().confirmed
    }

    pub(in crate::store) fn has_gone_back(&self) -> bool {
        self.state.lock().went_back
    }

    /// How many recoveries this process has seen.
    pub(in crate::store) fn era(&self) -> u64 {
        self.state.lock().era
    }

    /// Whether a recovery was seen since the start: what is gone may then be born again.
    pub(in crate::store) fn has_recovered(&self) -> bool {
        self.state.lock().era > 0
    }

    /// The store contradicts a witness: from now on nothing is reserved for any name.
    pub(in crate::store) fn contradicted(&self, witness: &Witness) {
        let era = self.state.lock().era;
        // A look that began before a recovery says nothing of the time after it.
        if witness.era == era {
            self.note_went_back("this replica's own row is gone or older than it was");
        }
    }

    pub(in crate::store) fn note_went_back(&self, how: &str) {
        if sabotage::is(Fault::NoWentBackChecks) {
            return;
        }
        self.went_back.set(1.0);
        if !std::mem::replace(&mut self.state.lock().went_back, true) {
            tracing::error!(
                store = &*self.store,
                "the store went back to an earlier state: {how}. Nothing is reserved for any \
                 sequence until `odometer recover` has run; see the runbook, \"store went back\""
            );
        }
    }

    /// One counter is gone or below what this replica has seen, although its beat is not.
    pub(in crate::store) fn note_name_went_back(&self, name: &SequenceName) {
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
    pub(in crate::store) async fn establish(
        &self,
        connection: &Arc<Connection>,
        patience: Duration,
    ) -> Result<(), Failure> {
        let (holder, next) = (Arc::clone(&self.holder), self.next());
        let write = |database| insert_or_raise(database, holder, next);
        connection.run(Instant::now() + patience, write).await?;
        let mut state = self.state.lock();
        state.confirmed = Some(next);
        Ok(())
    }

    /// Raises the row by one, which only works on a store that has not gone back.
    ///
    /// # Errors
    /// Whether it was raised is not known; the next time is above it in any case.
    pub(in crate::store) async fn raise(
        &self,
        connection: &Arc<Connection>,
        patience: Duration,
    ) -> Result<(), Failure> {
        let Ok(witness) = self.witness() else {
            return Ok(());
        };
        let next = self.next();
        let (holder, least) = (Arc::clone(&self.holder), witness.least);
        let write = |database| raise(database, holder, least, next);
        if connection.run(Instant::now() + patience, write).await? {
            let mut state = self.state.lock();
            state.confirmed = Some(next);
        } else {
            self.contradicted(&witness);
        }
        Ok(())
    }

    /// A recovery was seen, and the row is there again.
    pub(in crate::store) fn recovered(&self) {
        let mut state = self.state.lock();
        state.went_back = false;
        state.era = state.era.saturating_add(1);
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
        .filter(replica::Column::Beat.between(least, next))
        .exec(&database)
        .await?;
    Ok(raised.rows_affected == 1)
}

/// Deletes rows of processes that ended long ago, a bounded number of them.
pub(in crate::store) async fn delete_old(database: DatabaseConnection) -> Result<u64, DbErr> {
    let kept_ms = i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX);
    let since = database_clock::now(database.get_database_backend()).sub(kept_ms);
    let is_old = Expr::col(replica::Column::BeatAt).lt(since);
    let old: Vec<String> = replica::Entity::find()
        .select_only()
        .column(replica::Column::Holder)
        .filter(is_old.clone())
        .limit(DELETED_AT_ONCE)
        .into_tuple()
        .all(&database)
        .await?;
    if old.is_empty() {
        return Ok(0);
    }
    let deleted = replica::Entity::delete_many()
        .filter(replica::Column::Holder.is_in(old))
        .filter(is_old)
        .exec(&database)
        .await?;
    Ok(deleted.rows_affected)
}
