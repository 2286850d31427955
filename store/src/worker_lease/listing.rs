//! Lists the rows of a pool.

use std::time::Instant;

use entity::worker_lease;
use odometer_database::{failure::StatementFailure, session::DatabaseConnection};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder,
    QuerySelect, QueryTrait, sea_query::Expr,
};

use super::{
    lease::{LeaseError, LeaseRow, WorkerPool},
    look,
    uncertainty::LeaseAttemptError,
};
use crate::{database::Database, repeat::Repeat};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::worker_lease::listing";

/// A row without its secret. The database's clock decides whether it is free.
#[derive(Debug, FromQueryResult)]
struct ListedLease {
    worker: i32,
    bits: i32,
    holder: String,
    reserved_from: i64,
    reserved_until: i64,
    expires_at: i64,
    /// 1 if nobody holds the id.
    is_free: i32,
}

impl Database {
    /// Returns the ids above `after` that were ever leased. The lowest ids come first.
    pub(crate) async fn lease_rows(
        &self,
        pool: &WorkerPool,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        self.know_lease_rows().await?;
        let after = after.map_or(-1, |after| i32::try_from(after).unwrap_or(i32::MAX));
        let rows = self.attempts(Repeat::Any, |database| {
            let behind = worker_lease::Column::Worker.gt(after);
            rows(database, pool.key(), behind, limit)
        });
        let rows = rows.await.map_err(|failure| not_read(&failure))?;
        Ok(rows.into_iter().map(LeaseRow::from).collect())
    }

    pub(crate) async fn lease_row(
        &self,
        pool: &WorkerPool,
        worker: u32,
    ) -> Result<Option<LeaseRow>, LeaseError> {
        self.know_lease_rows().await?;
        let worker = i32::try_from(worker).unwrap_or(i32::MAX);
        let row = self.attempts(Repeat::Any, |database| {
            let is_it = worker_lease::Column::Worker.eq(worker);
            rows(database, pool.key(), is_it, 1)
        });
        let row = row.await.map_err(|failure| not_read(&failure))?;
        Ok(row.into_iter().next().map(LeaseRow::from))
    }
}

impl Database {
    /// Checks that the schema has leases.
    async fn know_lease_rows(&self) -> Result<(), LeaseError> {
        let until = Instant::now() + self.settings.deadline;
        match self.know_leases(until).await {
            Ok(()) => Ok(()),
            Err(LeaseAttemptError::Final(error)) => Err(error),
            Err(LeaseAttemptError::Conflict | LeaseAttemptError::Failed(_)) => {
                Err(LeaseError::Unavailable)
            }
        }
    }
}

async fn rows(
    database: DatabaseConnection,
    pool: String,
    which: Expr,
    limit: u64,
) -> Result<Vec<ListedLease>, DbErr> {
    use worker_lease::Column;
    let backend = database.get_database_backend();
    let is_free = Expr::case(look::free(backend), 1).finally(0);
    let mut find = worker_lease::Entity::find()
        .select_only()
        .columns([
            Column::Worker,
            Column::Bits,
            Column::Holder,
            Column::ReservedFrom,
            Column::ReservedUntil,
            Column::ExpiresAt,
        ])
        .filter(Column::Pool.eq(pool))
        .filter(which)
        .order_by_asc(Column::Worker)
        .limit(limit);
    QueryTrait::query(&mut find).expr_as(is_free, "is_free");
    find.into_model::<ListedLease>().all(&database).await
}

impl From<ListedLease> for LeaseRow {
    fn from(row: ListedLease) -> Self {
        let unsigned = |number: i32| u32::try_from(number).unwrap_or(0);
        Self {
            worker: unsigned(row.worker),
            bits: unsigned(row.bits),
            holder: row.holder,
            from_ms: row.reserved_from,
            until_ms: row.reserved_until,
            expires_ms: row.expires_at,
            is_held: row.is_free == 0,
        }
    }
}

fn not_read(failure: &StatementFailure) -> LeaseError {
    tracing::warn!(
        target: TARGET,
        error = failure.cause().text(),
        "worker ids could not be read"
    );
    LeaseError::Unavailable
}
