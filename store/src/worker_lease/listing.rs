//! Lists the rows of a pool, and counts the ids that are held in pools.

use entity::worker_lease;
use odometer_core::name::SequenceName;
use odometer_database::{database_clock, failure::StatementFailure, session::DatabaseConnection};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
    sea_query::{Expr, ExprTrait},
};

use super::{
    lease::{LeaseError, LeaseRow, WorkerPool, signed, unsigned},
    look,
};
use crate::{database::Database, repeat::Repeat};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::worker_lease::listing";

impl Database {
    /// Returns the ids above `after` that were ever leased. The lowest ids come first.
    pub(crate) async fn lease_rows(
        &self,
        pool: &WorkerPool,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        if !self.is_up() {
            return Err(LeaseError::Unavailable);
        }
        let reading = self.attempts(Repeat::Any, |database| {
            rows(database, pool.key(), after.map_or(-1, signed), limit)
        });
        reading.await.map_err(|failure| unread(&failure))
    }

    /// Returns how many ids are held, or rest until their time has passed, in each pool of other
    /// programs whose name begins with `prefix`. Pools without such an id are left out.
    pub(crate) async fn held_ids(
        &self,
        prefix: &str,
    ) -> Result<Vec<(SequenceName, u64)>, LeaseError> {
        if !self.is_up() {
            return Err(LeaseError::Unavailable);
        }
        let counting = self.attempts(Repeat::Any, |database| held(database, prefix.to_owned()));
        let rows = counting.await.map_err(|failure| unread(&failure))?;
        let counts = rows.into_iter().filter_map(|(pool, n)| {
            let pool = SequenceName::parse(&pool).ok()?;
            Some((pool, u64::try_from(n).unwrap_or(0)))
        });
        Ok(counts.collect())
    }
}

fn unread(failure: &StatementFailure) -> LeaseError {
    tracing::warn!(
        target: TARGET,
        error = failure.cause().text(),
        "worker ids could not be read"
    );
    LeaseError::Unavailable
}

/// Counts the ids of each pool that nobody else can lease now. Pools of sequences sort before those
/// of other programs, whose names begin with a letter or a digit. The database's clock decides.
async fn held(database: DatabaseConnection, prefix: String) -> Result<Vec<(String, i64)>, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let rests = Expr::col(Column::ReservedUntil).gt(database_clock::now(backend));
    let is_taken = Condition::any().add(look::free(backend).not()).add(rests);
    worker_lease::Entity::find()
        .select_only()
        .column(Column::Pool)
        .column_as(Column::Worker.count(), "n_held")
        .filter(Column::Pool.gte("0"))
        .filter(Column::Pool.gte(prefix.clone()))
        .filter(Column::Pool.lt(format!("{prefix}~")))
        .filter(is_taken)
        .group_by(Column::Pool)
        .into_tuple()
        .all(&database)
        .await
}

/// Reads rows without their secret. The database's clock decides whether an id is held.
async fn rows(
    database: DatabaseConnection,
    pool: String,
    after: i32,
    limit: u64,
) -> Result<Vec<LeaseRow>, DbErr> {
    use worker_lease::Column;
    let is_free = Expr::case(look::free(database.get_database_backend()), 1).finally(0);
    let rows: Vec<(i32, i32, String, i64, i64, i64, i32)> = worker_lease::Entity::find()
        .select_only()
        .columns([
            Column::Worker,
            Column::Bits,
            Column::Holder,
            Column::ReservedFrom,
            Column::ReservedUntil,
            Column::ExpiresAt,
        ])
        .expr_as(is_free, "is_free")
        .filter(Column::Pool.eq(pool))
        .filter(Column::Worker.gt(after))
        .order_by_asc(Column::Worker)
        .limit(limit)
        .into_tuple()
        .all(&database)
        .await?;
    let read = |(worker, bits, holder, from_ms, until_ms, expires_ms, is_free)| LeaseRow {
        worker: unsigned(worker),
        bits: unsigned(bits),
        holder,
        from_ms,
        until_ms,
        expires_ms,
        is_held: is_free == 0,
    };
    Ok(rows.into_iter().map(read).collect())
}
