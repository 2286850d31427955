//! Reads what is needed before a worker id is leased, renewed or given back.

use std::ops::RangeInclusive;

use entity::{meta, worker_lease};
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, FromQueryResult,
    Iterable, JoinType, Order, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Alias, Expr, ExprTrait, Query, SelectStatement},
};

use super::{
    baseline::LeaseRecoveryMark,
    lease::{signed, unsigned},
};
use crate::{
    guard::{GuardRead, HeartbeatGuard},
    meta_row,
    rows::creation_baseline::version_at,
};

/// A pool that was not used for this long, in milliseconds, does not count.
const OF_LATE_MS: i64 = 86_400_000;

/// What each look reads of the database as a whole.
#[derive(Clone, Copy, Debug, FromQueryResult)]
pub(crate) struct LeaseRead {
    /// The database's clock (Unix ms).
    pub(crate) now_ms: i64,
    #[sea_orm(nested)]
    pub(crate) guard: GuardRead,
    #[sea_orm(nested)]
    pub(crate) recovery_mark: LeaseRecoveryMark,
}

/// What is read of a pool, in one statement.
#[derive(Clone, Debug, FromQueryResult)]
pub(crate) struct PoolSummary {
    #[sea_orm(nested)]
    pub(crate) read: LeaseRead,
    /// The width of the pool's ids, in bits. `None` if the pool has no id yet.
    pub(crate) bits: Option<i32>,
    pub(crate) lowest: Option<i32>,
    pub(crate) highest: Option<i32>,
    /// A free id that this holder had.
    pub(crate) former: Option<i32>,
}

impl PoolSummary {
    /// Returns the version that the versions of new rows lie above.
    pub(crate) fn version_of_new(&self) -> i64 {
        self.read.recovery_mark.recovered_at.map_or(0, version_at)
    }
}

pub(crate) async fn read_pool(
    database: &DatabaseConnection,
    guard: &HeartbeatGuard,
    pool: &str,
    holder: &str,
) -> Result<PoolSummary, DbErr> {
    let backend = database.get_database_backend();
    let lowest = of_the_pool(pool)
        .column(worker_lease::Column::Bits)
        .order_by(worker_lease::Column::Worker, Order::Asc)
        .limit(1)
        .to_owned();
    let worker = || Expr::col(worker_lease::Column::Worker);
    let of_all = |worker: Expr| scalar(of_the_pool(pool).expr(worker).to_owned());
    let query = of_the_database(backend, guard)
        .expr_as(scalar(lowest), "bits")
        .expr_as(of_all(worker().min()), "lowest")
        .expr_as(of_all(worker().max()), "highest")
        .expr_as(scalar(former(backend, pool, holder)), "former")
        .to_owned();
    PoolSummary::from_query_result(&meta_row::query(database, &query).await?, "")
}

/// Reads the row of an id, for a holder that has the id.
pub(crate) async fn read_lease(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    pool: String,
    worker: u32,
) -> Result<(LeaseRead, Option<worker_lease::Model>), DbErr> {
    use worker_lease::{Column, Entity, Model};
    let column = |column| Expr::col((Entity, column));
    let is_its = column(Column::Pool)
        .eq(pool)
        .and(column(Column::Worker).eq(signed(worker)));
    let query = of_the_database(database.get_database_backend(), &guard)
        .columns(Column::iter().map(|column| (Entity, column)))
        .join(JoinType::LeftJoin, Entity, is_its)
        .to_owned();
    let row = meta_row::query(&database, &query).await?;
    let lease = Option::<Model>::from_query_result(&row, "")?;
    Ok((LeaseRead::from_query_result(&row, "")?, lease))
}

/// Reads whether any lease of these ids has a token.
pub(crate) async fn has_token(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    pool: String,
    ids: RangeInclusive<u32>,
) -> Result<(LeaseRead, bool), DbErr> {
    let leased = Query::select()
        .from(worker_lease::Entity)
        .expr(Expr::col(worker_lease::Column::Worker).min())
        .cond_where(with_token(pool, &ids))
        .to_owned();
    let query = of_the_database(database.get_database_backend(), &guard)
        .expr_as(scalar(leased), "lowest")
        .to_owned();
    let row = meta_row::query(&database, &query).await?;
    let lowest: Option<i32> = row.try_get("", "lowest")?;
    Ok((LeaseRead::from_query_result(&row, "")?, lowest.is_some()))
}

/// Builds the condition that a row is one of these ids and has a token.
pub(crate) fn with_token(pool: String, ids: &RangeInclusive<u32>) -> Condition {
    Condition::all()
        .add(worker_lease::Column::Pool.eq(pool))
        .add(worker_lease::Column::Worker.between(signed(*ids.start()), signed(*ids.end())))
        .add(worker_lease::Column::TokenHash.ne(""))
}

/// Reads the highest id of a pool that has a row, or 0.
pub(crate) async fn last_worker(database: DatabaseConnection, pool: String) -> Result<u32, DbErr> {
    let highest: Option<Option<i32>> = worker_lease::Entity::find()
        .select_only()
        .column_as(worker_lease::Column::Worker.max(), "highest")
        .filter(worker_lease::Column::Pool.eq(pool))
        .into_tuple()
        .one(&database)
        .await?;
    Ok(highest.flatten().map_or(0, unsigned))
}

/// Selects what each look reads of the database.
fn of_the_database(backend: DbBackend, guard: &HeartbeatGuard) -> SelectStatement {
    let mut query = Query::select()
        .expr_as(database_clock::now(backend), "now_ms")
        .column((meta::Entity, meta::Column::LeasesFrom))
        .column((meta::Entity, meta::Column::NamedLeasesFrom))
        .column((meta::Entity, meta::Column::ArmedAt))
        .expr_as(
            Expr::col((meta::Entity, meta::Column::RecoveredAt)),
            "recovered_at",
        )
        .from(meta::Entity)
        .and_where(Expr::col((meta::Entity, meta::Column::Id)).eq(1))
        .to_owned();
    guard.read_in(&mut query);
    query
}

/// Says whether a holder had an id that is free.
pub(crate) async fn has_former(
    database: DatabaseConnection,
    pool: String,
    holder: String,
) -> Result<bool, DbErr> {
    let backend = database.get_database_backend();
    let query = former(backend, &pool, &holder);
    Ok(database.query_one(&query).await?.is_some())
}

/// Selects the free id of a holder whose unused time begins first.
fn former(backend: DbBackend, pool: &str, holder: &str) -> SelectStatement {
    of_the_pool(pool)
        .column(worker_lease::Column::Worker)
        .and_where(worker_lease::Column::Holder.eq(holder))
        .cond_where(free(backend))
        .order_by(worker_lease::Column::ReservedUntil, Order::Asc)
        .limit(1)
        .to_owned()
}

fn of_the_pool(pool: &str) -> SelectStatement {
    Query::select()
        .from(worker_lease::Entity)
        .and_where(worker_lease::Column::Pool.eq(pool))
        .to_owned()
}

fn scalar(query: SelectStatement) -> Expr {
    Expr::SubQuery(None, Box::new(query.into()))
}

/// Builds the condition that nobody holds the id, by the database's clock.
pub(crate) fn free(backend: DbBackend) -> Condition {
    if faults::is(Fault::NoLeaseConditions) {
        return Condition::all();
    }
    Condition::any()
        .add(worker_lease::Column::Ended.eq(true))
        .add(Expr::col(worker_lease::Column::ExpiresAt).lte(database_clock::now(backend)))
}

pub(crate) async fn read_row(
    database: &impl ConnectionTrait,
    pool: &str,
    worker: i32,
) -> Result<Option<worker_lease::Model>, DbErr> {
    worker_lease::Entity::find_by_id((pool.to_owned(), worker))
        .one(database)
        .await
}

/// Reads free ids below `end`, at most `most`. Ids whose unused time begins first come first.
pub(crate) async fn free_rows(
    database: &DatabaseConnection,
    pool: &str,
    end: u32,
    most: u32,
) -> Result<Vec<worker_lease::Model>, DbErr> {
    worker_lease::Entity::find()
        .filter(worker_lease::Column::Pool.eq(pool))
        .filter(worker_lease::Column::Worker.lt(signed(end)))
        .filter(free(database.get_database_backend()))
        .order_by_asc(worker_lease::Column::ReservedUntil)
        .limit(u64::from(most))
        .all(database)
        .await
}

/// Finds the lowest id below `end` that has no row and follows an id with a row. Two ids of a
/// database lie `step` apart.
pub(crate) async fn find_gap(
    database: &DatabaseConnection,
    pool: &str,
    step: u32,
    end: u32,
) -> Result<Option<u32>, DbErr> {
    let (low, high) = (Alias::new("low"), Alias::new("high"));
    let (step, end) = (signed(step), signed(end));
    let column = |of: &Alias, column| Expr::col((of.clone(), column));
    let next = || column(&low, worker_lease::Column::Worker).add(step);
    let is_next = column(&high, worker_lease::Column::Pool)
        .eq(pool)
        .and(column(&high, worker_lease::Column::Worker).eq(next()));
    let query = Query::select()
        .expr_as(next(), "gap")
        .from_as(worker_lease::Entity, low.clone())
        .join_as(
            JoinType::LeftJoin,
            worker_lease::Entity,
            high.clone(),
            is_next,
        )
        .and_where(column(&low, worker_lease::Column::Pool).eq(pool))
        .and_where(column(&low, worker_lease::Column::Worker).lt(end.saturating_sub(step)))
        .and_where(column(&high, worker_lease::Column::Worker).is_null())
        .order_by((low.clone(), worker_lease::Column::Worker), Order::Asc)
        .limit(1)
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Ok(None);
    };
    let gap: i64 = match database.get_database_backend() {
        // Only these databases return the sum of two integers as a wider type.
        DbBackend::MySql | DbBackend::Sqlite => row.try_get("", "gap")?,
        DbBackend::Postgres | _ => i64::from(row.try_get::<i32>("", "gap")?),
    };
    Ok(u32::try_from(gap).ok())
}

/// Counts the pools of other programs that have a lease with a token, and were in use in the last
/// day. Pools of sequences sort before them.
pub(crate) async fn count_pools(database: &DatabaseConnection) -> Result<u64, DbErr> {
    let pool = Expr::col(worker_lease::Column::Pool);
    let since = || database_clock::now(database.get_database_backend()).sub(OF_LATE_MS);
    let is_of_late = Expr::col(worker_lease::Column::ReservedUntil)
        .gt(since())
        .or(Expr::col(worker_lease::Column::ExpiresAt).gt(since()));
    let query = Query::select()
        .expr_as(pool.clone().count_distinct(), "n")
        .from(worker_lease::Entity)
        .and_where(pool.gte("0"))
        .and_where(worker_lease::Column::TokenHash.ne(""))
        .and_where(is_of_late)
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Ok(0);
    };
    let n: i64 = row.try_get("", "n")?;
    Ok(u64::try_from(n).unwrap_or(0))
}
