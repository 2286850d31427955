//! Gives, renews and ends leases: each statement does all of it or nothing.
//!
//! Each statement names the version of the row as it was seen. So a statement that arrives late,
//! after another writer, does nothing.

use entity::{meta, worker_lease};
use migration::WORKER_LEASES;
use odometer_core::definition::Stripe;
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter,
    sea_query::{Expr, ExprTrait, Query},
};

use super::{lease::MAX_AHEAD_MS, look, row_cache::ClockEstimate, uncertainty::signed};
use crate::{heartbeat::HeartbeatGuard, meta_row};

/// A lease that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct LeaseWrite {
    pub(crate) pool: String,
    pub(crate) worker: u32,
    pub(crate) bits: u32,
    pub(crate) holder: String,
    pub(crate) token_hash: String,
    pub(crate) from_ms: i64,
    pub(crate) until_ms: i64,
    pub(crate) expires_ms: i64,
    pub(crate) ttl_ms: i64,
    /// The version of the row as it was seen. For a new row, the version that the new one lies
    /// above.
    pub(crate) version: i64,
    /// Our clock, which may not be too far ahead.
    pub(crate) ours_ms: i64,
    /// When the lease may be written, by the database's clock. `None` if a look has read the clock.
    pub(crate) moment: Option<ClockEstimate>,
    pub(crate) guard: HeartbeatGuard,
}

/// What `meta` says about the database, as a condition for writing a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseBaseline {
    /// The stripe of the database.
    pub(crate) stripe: Stripe,
    /// The last recovery that was seen.
    pub(crate) recovered_at: Option<i64>,
}

impl LeaseBaseline {
    /// Builds the condition that `meta`'s row says this, and lets leases begin at `from_ms`. It is
    /// for a statement on `meta`.
    fn is_its(self, from_ms: i64) -> Condition {
        let leases_from = || Expr::col((meta::Entity, meta::Column::LeasesFrom));
        let recovered_at = Expr::col((meta::Entity, meta::Column::RecoveredAt));
        Condition::all()
            .add(meta::Column::Id.eq(1))
            .add(meta::Column::StripeK.eq(i32::from(self.stripe.k())))
            .add(meta::Column::StripeN.eq(i32::from(self.stripe.n())))
            .add(match self.recovered_at {
                Some(at) => recovered_at.eq(at),
                None => recovered_at.is_null(),
            })
            .add(leases_from().is_null().or(leases_from().lte(from_ms)))
    }

    /// Builds the same condition for any statement.
    fn holds(self, from_ms: i64) -> Expr {
        let row = Query::select()
            .expr(Expr::val(1))
            .from(meta::Entity)
            .cond_where(self.is_its(from_ms))
            .to_owned();
        Expr::exists(row)
    }
}

impl LeaseWrite {
    /// Returns the version of the row after the write.
    pub(crate) fn version_after(&self) -> i64 {
        self.version.saturating_add(1)
    }

    /// Returns the row after the write.
    pub(crate) fn row(&self) -> worker_lease::Model {
        worker_lease::Model {
            pool: self.pool.clone(),
            worker: self.id(),
            bits: self.bits(),
            holder: self.holder.clone(),
            token_hash: self.token_hash.clone(),
            expires_at: self.expires_ms,
            reserved_until: self.until_ms,
            version: self.version_after(),
            reserved_from: self.from_ms,
            ttl_ms: self.ttl_ms,
            ended: false,
        }
    }

    fn id(&self) -> i32 {
        signed(self.worker)
    }

    fn bits(&self) -> i32 {
        i32::try_from(self.bits).unwrap_or(i32::MAX)
    }
}

/// Builds the condition that our clock is not too far ahead of the database's clock. If the lease
/// was made for an estimated moment, the database's clock must also be within it.
fn keeps_time(backend: DbBackend, lease: &LeaseWrite) -> Expr {
    let least_ms = match faults::is(Fault::AnyClock) {
        true => 0,
        false => lease.ours_ms.saturating_sub(MAX_AHEAD_MS),
    };
    let now = database_clock::now(backend);
    match lease.moment {
        Some(moment) => now.between(Ord::max(least_ms, moment.earliest_ms), moment.latest_ms),
        None => now.gte(least_ms),
    }
}

/// Takes an id that nobody holds. Returns false if another writer came first.
pub(crate) async fn take(
    database: DatabaseConnection,
    lease: LeaseWrite,
    baseline: LeaseBaseline,
) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let mut is_as_seen = Condition::all();
    if !faults::is(Fault::NoLeaseConditions) {
        is_as_seen = is_as_seen
            .add(Column::Version.eq(lease.version))
            .add(look::free(backend));
    }
    if !faults::is(Fault::NoReservedUntil) && !faults::is(Fault::NoLeaseConditions) {
        is_as_seen = is_as_seen.add(Column::ReservedUntil.lte(lease.from_ms));
    }
    let taken = worker_lease::Entity::update_many()
        .col_expr(Column::Bits, Expr::val(lease.bits()))
        .col_expr(Column::Holder, Expr::val(lease.holder.as_str()))
        .col_expr(Column::TokenHash, Expr::val(lease.token_hash.as_str()))
        .col_expr(Column::ExpiresAt, Expr::val(lease.expires_ms))
        .col_expr(Column::ReservedFrom, Expr::val(lease.from_ms))
        .col_expr(Column::ReservedUntil, Expr::val(lease.until_ms))
        .col_expr(Column::TtlMs, Expr::val(lease.ttl_ms))
        .col_expr(Column::Ended, Expr::val(false))
        .col_expr(Column::Version, Expr::val(lease.version_after()))
        .filter(Column::Pool.eq(lease.pool.as_str()))
        .filter(Column::Worker.eq(lease.id()))
        .filter(is_as_seen)
        .filter(baseline.holds(lease.from_ms))
        .filter(keeps_time(backend, &lease))
        .filter(lease.guard.holds())
        .exec(&database)
        .await?;
    Ok(taken.rows_affected == 1)
}

/// Creates the row of an id that was never used. If two callers do so at once, they meet at the
/// primary key.
///
/// `meta`'s row is [held](meta_row) meanwhile. So no recovery comes between what was read and the
/// row.
pub(crate) async fn create(
    database: DatabaseConnection,
    lease: LeaseWrite,
    baseline: LeaseBaseline,
) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let mut row = Query::select();
    row.expr(Expr::val(lease.pool.as_str()))
        .expr(Expr::val(lease.id()))
        .expr(Expr::val(lease.bits()))
        .expr(Expr::val(lease.holder.as_str()))
        .expr(Expr::val(lease.token_hash.as_str()))
        .expr(Expr::val(lease.expires_ms))
        .expr(Expr::val(lease.from_ms))
        .expr(Expr::val(lease.until_ms))
        .expr(Expr::val(lease.ttl_ms))
        .expr(Expr::val(false))
        .expr(Expr::val(lease.version_after()))
        .from(meta::Entity)
        .cond_where(baseline.is_its(lease.from_ms))
        .and_where(keeps_time(backend, &lease))
        .and_where(lease.guard.holds());
    meta_row::lock_for_creation(&mut row, backend);
    let mut insert = Query::insert();
    insert.into_table(worker_lease::Entity).columns([
        Column::Pool,
        Column::Worker,
        Column::Bits,
        Column::Holder,
        Column::TokenHash,
        Column::ExpiresAt,
        Column::ReservedFrom,
        Column::ReservedUntil,
        Column::TtlMs,
        Column::Ended,
        Column::Version,
    ]);
    insert
        .select_from(row)
        .map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(database.execute(&insert).await?.rows_affected() == 1)
}

/// Keeps programs out that know of no worker ids, because their recovery of a database voids no
/// leases.
pub(crate) async fn keep_older_programs_out(database: DatabaseConnection) -> Result<(), DbErr> {
    meta::Entity::update_many()
        .col_expr(meta::Column::CompatibleFrom, Expr::val(WORKER_LEASES))
        .filter(meta::Column::Id.eq(1))
        .filter(meta::Column::CompatibleFrom.lt(WORKER_LEASES))
        .exec(&database)
        .await?;
    Ok(())
}

/// Reserves more time for the holder of the token. Returns false if the row is not as it was seen.
pub(crate) async fn renew(database: DatabaseConnection, lease: LeaseWrite) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let renewed = worker_lease::Entity::update_many()
        .col_expr(Column::ExpiresAt, Expr::val(lease.expires_ms))
        .col_expr(Column::ReservedUntil, Expr::val(lease.until_ms))
        .col_expr(Column::TtlMs, Expr::val(lease.ttl_ms))
        .col_expr(Column::Version, Expr::val(lease.version_after()))
        .filter(Column::Pool.eq(lease.pool.as_str()))
        .filter(Column::Worker.eq(lease.id()))
        .filter(Column::Version.eq(lease.version))
        .filter(Column::TokenHash.eq(lease.token_hash.as_str()))
        .filter(Column::Ended.eq(false))
        .filter(Column::ReservedUntil.lte(lease.until_ms))
        .filter(keeps_time(backend, &lease))
        .filter(lease.guard.holds())
        .exec(&database)
        .await?;
    Ok(renewed.rows_affected == 1)
}

/// An end that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct LeaseEnd {
    /// The lease's row as it was seen.
    pub(crate) row: worker_lease::Model,
    /// No id was issued with a time at or after this (Unix ms).
    pub(crate) unused_from_ms: i64,
    pub(crate) guard: HeartbeatGuard,
}

/// Ends a lease. Returns false if the row is not as it was seen. For example, a renewal may have
/// come first, and then the time that is called unused may be used.
pub(crate) async fn end(database: DatabaseConnection, end: LeaseEnd) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let (row, expires_at) = (end.row, Expr::col(Column::ExpiresAt));
    let now = database_clock::now(database.get_database_backend());
    let ended_at = Expr::case(expires_at.clone().lte(now.clone()), expires_at).finally(now);
    let ended = worker_lease::Entity::update_many()
        .col_expr(Column::Ended, Expr::val(true))
        .col_expr(Column::ExpiresAt, ended_at.into())
        .col_expr(Column::ReservedUntil, Expr::val(end.unused_from_ms))
        .col_expr(Column::Version, Expr::val(row.version.saturating_add(1)))
        .filter(Column::Pool.eq(row.pool.as_str()))
        .filter(Column::Worker.eq(row.worker))
        .filter(Column::Version.eq(row.version))
        .filter(Column::TokenHash.eq(row.token_hash.as_str()))
        .filter(Column::ReservedUntil.eq(row.reserved_until))
        .filter(end.guard.holds())
        .exec(&database)
        .await?;
    Ok(ended.rows_affected == 1)
}
