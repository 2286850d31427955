//! The statements that give, renew and end a lease: each does all of it or nothing.
//!
//! Whatever a statement says, it says it of the row as it was seen: it names the row's version, so
//! one that arrives late, behind another writer, does nothing.

use entity::{meta, worker_lease};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter,
    sea_query::{Expr, ExprTrait, LockType, Query},
};

use super::{MOST_AHEAD_MS, look};
use crate::sabotage::{self, Fault};
use crate::store::{
    change::beat::Witness, connection::session::DatabaseConnection, database_clock,
};

/// A lease as it is written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) pool: String,
    pub(super) worker: u32,
    pub(super) bits: u32,
    pub(super) holder: String,
    pub(super) token_hash: String,
    pub(super) from_ms: i64,
    pub(super) until_ms: i64,
    pub(super) expires_ms: i64,
    pub(super) ttl_ms: i64,
    /// What the row's was, or what that of a new row lies above.
    pub(super) version: i64,
    /// Our clock, which may not be too far ahead.
    pub(super) ours_ms: i64,
    pub(super) witness: Witness,
}

impl Written {
    /// The version of the row once it is written.
    pub(super) fn version_after(&self) -> i64 {
        self.version.saturating_add(1)
    }

    fn id(&self) -> i32 {
        id(self.worker)
    }

    fn bits(&self) -> i32 {
        i32::try_from(self.bits).unwrap_or(i32::MAX)
    }
}

fn id(worker: u32) -> i32 {
    i32::try_from(worker).unwrap_or(i32::MAX)
}

/// That our clock is not too far ahead of the database's.
fn keeps_time(backend: DbBackend, ours_ms: i64) -> Expr {
    Expr::val(ours_ms.saturating_sub(MOST_AHEAD_MS)).lte(database_clock::now(backend))
}

/// Takes an id that nobody holds; false where somebody was faster.
pub(super) async fn take(database: DatabaseConnection, lease: Written) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let mut is_as_seen = Condition::all();
    if !sabotage::is(Fault::NoLeaseConditions) {
        is_as_seen = is_as_seen
            .add(Column::Version.eq(lease.version))
            .add(look::free(backend));
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
        .filter(keeps_time(backend, lease.ours_ms))
        .filter(lease.witness.holds())
        .exec(&database)
        .await?;
    Ok(taken.rows_affected == 1)
}

/// Makes the row of an id that was never used. Two that do so at once meet at the primary key.
///
/// `meta`'s row is held meanwhile, so that no recovery passes between what was read and the row.
pub(super) async fn bear(database: DatabaseConnection, lease: Written) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let leases_from = || Expr::col(meta::Column::LeasesFrom);
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
        .and_where(meta::Column::Id.eq(1))
        .and_where(leases_from().is_null().or(leases_from().lte(lease.from_ms)))
        .and_where(keeps_time(backend, lease.ours_ms))
        .and_where(lease.witness.holds());
    // SQLite has one writer and no row locks.
    if backend != DbBackend::Sqlite {
        row.lock(LockType::Share);
    }
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

/// Raises what is reserved, for whoever has the token; false where the row is not as it was seen.
pub(super) async fn renew(database: DatabaseConnection, lease: Written) -> Result<bool, DbErr> {
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
        .filter(keeps_time(backend, lease.ours_ms))
        .filter(lease.witness.holds())
        .exec(&database)
        .await?;
    Ok(renewed.rows_affected == 1)
}

/// An end as it is written.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) pool: String,
    pub(super) worker: u32,
    pub(super) token_hash: String,
    pub(super) until_ms: i64,
    pub(super) expires_ms: i64,
    pub(super) version: i64,
    pub(super) witness: Witness,
}

/// Ends a lease; false where the row is not as it was seen: a renewal came in between, say, after
/// which what is called unused may be used.
pub(super) async fn end(database: DatabaseConnection, end: End) -> Result<bool, DbErr> {
    use worker_lease::Column;
    let ended = worker_lease::Entity::update_many()
        .col_expr(Column::Ended, Expr::val(true))
        .col_expr(Column::ExpiresAt, Expr::val(end.expires_ms))
        .col_expr(Column::ReservedUntil, Expr::val(end.until_ms))
        .col_expr(Column::Version, Expr::val(end.version.saturating_add(1)))
        .filter(Column::Pool.eq(end.pool.as_str()))
        .filter(Column::Worker.eq(id(end.worker)))
        .filter(Column::Version.eq(end.version))
        .filter(Column::TokenHash.eq(end.token_hash.as_str()))
        .filter(end.witness.holds())
        .exec(&database)
        .await?;
    Ok(ended.rows_affected == 1)
}
