//! Gives, renews and ends leases: each statement does all of it or nothing.
//!
//! Each statement names the version of the row as it was seen. So a statement that arrives late,
//! after another writer, does nothing.

use std::ops::RangeInclusive;

use entity::{meta, worker_lease};
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, Iterable, ModelTrait,
    QueryFilter, UpdateMany,
    sea_query::{Expr, ExprTrait, Query},
};

use super::{baseline::LeaseBaseline, lease::MAX_AHEAD_MS, look};
use crate::{guard::HeartbeatGuard, meta_row, rows::conditional_insert::insert_if};

impl LeaseBaseline {
    /// Builds the condition that `meta`'s row is as it was seen, and lets leases begin at
    /// `from_ms`. It is for a statement on `meta`.
    fn is_its(&self, from_ms: i64) -> Condition {
        let leases_from = || Expr::col((meta::Entity, meta::Column::LeasesFrom));
        let recovered_at = Expr::col((meta::Entity, meta::Column::RecoveredAt));
        Condition::all()
            .add(meta::Column::Id.eq(1))
            .add(meta::Column::StripeK.eq(i32::from(self.stripe.k())))
            .add(meta::Column::StripeN.eq(i32::from(self.stripe.n())))
            .add(match self.recovery_mark.recovered_at {
                Some(at) => recovered_at.eq(at),
                None => recovered_at.is_null(),
            })
            .add(leases_from().is_null().or(leases_from().lte(from_ms)))
    }

    /// Builds the same condition for any statement.
    fn holds(&self, from_ms: i64) -> Expr {
        let row = Query::select()
            .expr(Expr::val(1))
            .from(meta::Entity)
            .cond_where(self.is_its(from_ms))
            .to_owned();
        Expr::exists(row)
    }

    /// Builds the condition that our clock is not too far ahead of the database's clock, and that
    /// the heartbeat has not fallen. If the database's clock was estimated, it must also be within
    /// the estimate.
    fn keeps_time(&self, backend: DbBackend) -> Condition {
        let least_ms = match faults::is(Fault::AnyClock) {
            true => 0,
            false => self.sent.ours_ms.saturating_sub(MAX_AHEAD_MS),
        };
        let now = database_clock::now(backend);
        let is_in_time = if self.clock.is_estimate {
            let earliest_ms = Ord::max(least_ms, self.clock.earliest_ms);
            now.between(earliest_ms, self.clock.latest_ms)
        } else {
            now.gte(least_ms)
        };
        Condition::all().add(is_in_time).add(self.guard.holds())
    }
}

/// Returns the version of a row before it is written as `written`.
fn version_before(written: &worker_lease::Model) -> i64 {
    written.version.saturating_sub(1)
}

/// Begins an update of the row of `written` that sets these columns.
fn update_to(
    written: &worker_lease::Model,
    columns: impl IntoIterator<Item = worker_lease::Column>,
) -> UpdateMany<worker_lease::Entity> {
    let update = worker_lease::Entity::update_many()
        .filter(worker_lease::Column::Pool.eq(&*written.pool))
        .filter(worker_lease::Column::Worker.eq(written.worker));
    columns.into_iter().fold(update, |update, column| {
        update.col_expr(column, Expr::val(written.get(column)))
    })
}

/// Takes an id that nobody holds. Returns false if another writer came first.
pub(crate) async fn take(
    database: DatabaseConnection,
    written: worker_lease::Model,
    baseline: LeaseBaseline,
) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let mut is_as_seen = Condition::all();
    if !faults::is(Fault::NoLeaseConditions) {
        is_as_seen = is_as_seen
            .add(Column::Version.eq(version_before(&written)))
            .add(look::free(backend));
    }
    if !faults::is(Fault::NoReservedUntil) && !faults::is(Fault::NoLeaseConditions) {
        is_as_seen = is_as_seen.add(Column::ReservedUntil.lte(written.reserved_from));
    }
    let all_but_the_key = Column::iter().filter(|it| !matches!(it, Column::Pool | Column::Worker));
    let taken = update_to(&written, all_but_the_key)
        .filter(is_as_seen)
        .filter(baseline.holds(written.reserved_from))
        .filter(baseline.keeps_time(backend))
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
    written: worker_lease::Model,
    baseline: LeaseBaseline,
) -> Result<bool, DbErr> {
    let backend = database.get_database_backend();
    let mut is_as_seen = Query::select();
    is_as_seen
        .from(meta::Entity)
        .cond_where(baseline.is_its(written.reserved_from))
        .cond_where(baseline.keeps_time(backend));
    meta_row::lock_for_creation(&mut is_as_seen, backend);
    let insert = insert_if(&written, is_as_seen)?;
    Ok(database.execute(&insert).await?.rows_affected() == 1)
}

/// Reserves more time for the holder of the token. Returns false if the row is not as it was seen.
pub(crate) async fn renew(
    database: DatabaseConnection,
    written: worker_lease::Model,
    baseline: LeaseBaseline,
) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let columns = [
        Column::ExpiresAt,
        Column::ReservedUntil,
        Column::TtlMs,
        Column::Version,
    ];
    let renewed = update_to(&written, columns)
        .filter(Column::Version.eq(version_before(&written)))
        .filter(Column::TokenHash.eq(written.token_hash))
        .filter(Column::Ended.eq(false))
        .filter(Column::ReservedUntil.lte(written.reserved_until))
        .filter(baseline.keeps_time(database.get_database_backend()))
        .exec(&database)
        .await?;
    Ok(renewed.rows_affected == 1)
}

/// Voids the tokens of the leases of these ids. Returns how many leases had a token. A lease keeps
/// its end and its time: until then nobody else gets its id.
pub(crate) async fn release(
    database: DatabaseConnection,
    pool: String,
    ids: RangeInclusive<u32>,
    guard: HeartbeatGuard,
) -> Result<u64, DbErr> {
    use worker_lease::Column;
    let mut release = worker_lease::Entity::update_many()
        .col_expr(Column::TokenHash, Expr::val(""))
        .col_expr(Column::Version, Expr::col(Column::Version).add(1));
    if faults::is(Fault::ReleaseFreesTime) {
        let now = || database_clock::now(database.get_database_backend());
        release = release
            .col_expr(Column::Ended, Expr::val(true))
            .col_expr(Column::ReservedUntil, now());
    }
    let released = release
        .filter(look::with_token(pool, &ids))
        .filter(guard.holds());
    Ok(released.exec(&database).await?.rows_affected)
}

/// Ends the lease of a row that had reserved time until `until_ms`. No id was issued with a time at
/// or after the time that is `written`. Returns false if the row is not as it was seen. For
/// example, a renewal may have come first, and then the time that is called unused may be used.
pub(crate) async fn end(
    database: DatabaseConnection,
    written: worker_lease::Model,
    until_ms: i64,
    guard: HeartbeatGuard,
) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let expires_at = Expr::col(Column::ExpiresAt);
    let now = database_clock::now(database.get_database_backend());
    let ended_at = Expr::case(expires_at.clone().lte(now.clone()), expires_at).finally(now);
    let columns = [Column::Ended, Column::ReservedUntil, Column::Version];
    let ended = update_to(&written, columns)
        .col_expr(Column::ExpiresAt, ended_at.into())
        .filter(Column::Version.eq(version_before(&written)))
        .filter(Column::TokenHash.eq(written.token_hash))
        .filter(Column::ReservedUntil.eq(until_ms))
        .filter(guard.holds())
        .exec(&database)
        .await?;
    Ok(ended.rows_affected == 1)
}
