//! Reads what is needed before a worker id is leased, renewed or given back.

use std::time::Duration;

use entity::{meta, replica, worker_lease};
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityTrait, JoinType, Order,
    QueryFilter, QueryOrder, QueryResult, QuerySelect,
    sea_query::{Alias, Expr, ExprTrait, Query, SelectStatement},
};

use super::{
    lease::{Share, WorkerChoice},
    uncertainty::SentAt,
};
use crate::{heartbeat::HeartbeatGuard, rows::creation_baseline::version_at};

/// A pool that was not used for this long, in milliseconds, does not count.
const OF_LATE_MS: i64 = 86_400_000;

/// What one lease asks of a database.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) pool: String,
    pub(crate) holder: String,
    /// The hash of the token that is to be written.
    pub(crate) token_hash: String,
    pub(crate) share: Share,
    /// How many ids there are, in all members together.
    pub(crate) workers: u32,
    pub(crate) choice: WorkerChoice,
    pub(crate) usable_by_ms: Option<i64>,
    /// Whether the pool is for other programs, whose pools are bounded in number.
    pub(crate) is_named: bool,
    /// The ids that earlier attempts of this lease may have got.
    pub(crate) uncertain: Vec<u32>,
    /// Our clocks. Time is wanted for `ttl` ahead of the later clock.
    pub(crate) clocks: SentAt,
    pub(crate) ttl: Duration,
    /// How many conflicts there were. After conflicts, the choice spreads over more ids.
    pub(crate) n_conflicts: u32,
    pub(crate) guard: HeartbeatGuard,
}

/// What a look found: the state of the pool and the database's clock, and the best id.
#[derive(Debug)]
pub(crate) struct LeaseRead {
    pub(crate) head: PoolSummary,
    pub(crate) found: LeaseCandidate,
}

/// What is read in one statement.
#[derive(Clone, Debug)]
pub(crate) struct PoolSummary {
    pub(crate) clock: Clock,
    pub(crate) recovery_mark: LeaseRecoveryMark,
    /// The oldest program that can work with the database, by its schema.
    pub(crate) compatible_from: i32,
    /// The version that the versions of new rows lie above.
    pub(crate) version: i64,
    /// The width of the pool's ids, in bits. `None` if the pool has no id yet.
    pub(crate) bits: Option<u32>,
    pub(crate) lowest: Option<u32>,
    pub(crate) highest: Option<u32>,
    /// A free id that this holder had.
    pub(crate) former: Option<u32>,
    /// How many other pools were in use in the last day. Only read if this pool is new, and pools
    /// of its kind are bounded.
    pub(crate) n_pools: u64,
}

/// What the last recovery of a database says of all its leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeaseRecoveryMark {
    pub(crate) recovered_at: Option<i64>,
    /// No id's time begins before this, no matter what its row says. The reason is that the
    /// recovery of an older program does not raise the rows.
    pub(crate) leases_from: i64,
}

/// A database's clock, and the heartbeat that shows that the database has not gone back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The database's clock (Unix ms).
    pub(crate) now_ms: i64,
    /// This replica's heartbeat. `None` if its row is gone.
    pub(crate) heartbeat: Option<i64>,
}

/// The id that can be leased, or why there is none.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum LeaseCandidate {
    /// An earlier attempt got this row.
    Ours(worker_lease::Model),
    Free(worker_lease::Model),
    /// This id has no row yet.
    New(u32),
    /// The wanted id is taken.
    Held(u32),
    /// There are free ids, but their unused time begins too late. This is when the first one
    /// begins.
    Late(i64),
    None,
}

pub(crate) async fn read_pool(
    database: &DatabaseConnection,
    asked: &Question,
) -> Result<PoolSummary, DbErr> {
    let backend = database.get_database_backend();
    let own_row = Expr::col((replica::Entity, replica::Column::Holder)).eq(asked.guard.holder());
    let lowest = of_the_pool(&asked.pool)
        .column(worker_lease::Column::Bits)
        .order_by(worker_lease::Column::Worker, Order::Asc)
        .limit(1)
        .to_owned();
    let worker = || Expr::col(worker_lease::Column::Worker);
    let former = former(backend, &asked.pool, &asked.holder);
    let query = Query::select()
        .expr_as(database_clock::now(backend), "now_ms")
        .columns([
            (meta::Entity, meta::Column::LeasesFrom),
            (meta::Entity, meta::Column::RecoveredAt),
            (meta::Entity, meta::Column::CompatibleFrom),
        ])
        .column((replica::Entity, replica::Column::Beat))
        .expr_as(scalar(lowest), "bits")
        .expr_as(
            scalar(of_the_pool(&asked.pool).expr(worker().min()).to_owned()),
            "lowest",
        )
        .expr_as(
            scalar(of_the_pool(&asked.pool).expr(worker().max()).to_owned()),
            "highest",
        )
        .expr_as(scalar(former), "former")
        .from(meta::Entity)
        .join(JoinType::LeftJoin, replica::Entity, own_row)
        .and_where(Expr::col((meta::Entity, meta::Column::Id)).eq(1))
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Err(DbErr::RecordNotFound("meta".to_owned()));
    };
    summary_of(&row)
}

/// Reads the clock, for a holder that already has an id.
pub(crate) async fn read_clock(
    database: &DatabaseConnection,
    guard: &HeartbeatGuard,
) -> Result<Clock, DbErr> {
    let own_row = Expr::col((replica::Entity, replica::Column::Holder)).eq(guard.holder());
    let query = Query::select()
        .expr_as(
            database_clock::now(database.get_database_backend()),
            "now_ms",
        )
        .column((replica::Entity, replica::Column::Beat))
        .from(meta::Entity)
        .join(JoinType::LeftJoin, replica::Entity, own_row)
        .and_where(Expr::col((meta::Entity, meta::Column::Id)).eq(1))
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Err(DbErr::RecordNotFound("meta".to_owned()));
    };
    Ok(Clock {
        now_ms: row.try_get("", "now_ms")?,
        heartbeat: row.try_get("", "beat")?,
    })
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

fn summary_of(row: &QueryResult) -> Result<PoolSummary, DbErr> {
    let id = |column: &str| -> Result<Option<u32>, DbErr> {
        let read: Option<i32> = row.try_get("", column)?;
        Ok(read.and_then(|read| u32::try_from(read).ok()))
    };
    let leases_from: Option<i64> = row.try_get("", "leases_from")?;
    let recovered_at: Option<i64> = row.try_get("", "recovered_at")?;
    Ok(PoolSummary {
        clock: Clock {
            now_ms: row.try_get("", "now_ms")?,
            heartbeat: row.try_get("", "beat")?,
        },
        recovery_mark: LeaseRecoveryMark {
            recovered_at,
            leases_from: leases_from.unwrap_or(0),
        },
        compatible_from: row.try_get("", "compatible_from")?,
        version: recovered_at.map_or(0, version_at),
        bits: id("bits")?,
        lowest: id("lowest")?,
        highest: id("highest")?,
        former: id("former")?,
        n_pools: 0,
    })
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
    worker: u32,
) -> Result<Option<worker_lease::Model>, DbErr> {
    let Ok(worker) = i32::try_from(worker) else {
        return Ok(None);
    };
    worker_lease::Entity::find_by_id((pool.to_owned(), worker))
        .one(database)
        .await
}

/// Reads free ids. Ids whose unused time begins first come first.
pub(crate) async fn free_rows(
    database: &DatabaseConnection,
    asked: &Question,
    most: u32,
) -> Result<Vec<worker_lease::Model>, DbErr> {
    let end = i32::try_from(asked.workers).unwrap_or(i32::MAX);
    worker_lease::Entity::find()
        .filter(worker_lease::Column::Pool.eq(asked.pool.as_str()))
        .filter(worker_lease::Column::Worker.lt(end))
        .filter(free(database.get_database_backend()))
        .order_by_asc(worker_lease::Column::ReservedUntil)
        .limit(u64::from(most))
        .all(database)
        .await
}

/// Finds the lowest id without a row, in a pool that has rows.
pub(crate) async fn find_gap(
    database: &DatabaseConnection,
    asked: &Question,
    head: &PoolSummary,
) -> Result<Option<u32>, DbErr> {
    let Share { k, n } = asked.share;
    if head.lowest.is_some_and(|lowest| lowest > k) {
        return Ok(Some(k));
    }
    let (low, high) = (Alias::new("low"), Alias::new("high"));
    let step = i32::try_from(n).unwrap_or(i32::MAX);
    let end = i32::try_from(asked.workers).unwrap_or(i32::MAX);
    let column = |of: &Alias, column| Expr::col((of.clone(), column));
    let next = || column(&low, worker_lease::Column::Worker).add(step);
    let is_next = column(&high, worker_lease::Column::Pool)
        .eq(asked.pool.as_str())
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
        .and_where(column(&low, worker_lease::Column::Pool).eq(asked.pool.as_str()))
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

/// Counts the pools of other programs that were in use in the last day. Pools of sequences sort
/// before them.
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
        .and_where(is_of_late)
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Ok(0);
    };
    let n: i64 = row.try_get("", "n")?;
    Ok(u64::try_from(n).unwrap_or(0))
}
