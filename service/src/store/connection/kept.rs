//! Connections to PostgreSQL that are kept for the next statement.
//!
//! The driver's pool asks each connection that it takes back whether it is still there: one more
//! round trip after each statement, which finds out nothing that the next statement would not. So
//! what has served well is kept here, and only what failed is given back.

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use sea_orm::{
    ConnAcquireErr, DbErr, ExecResult, QueryResult, RuntimeErr, SqlxError, Statement,
    sea_query::Values,
    sqlx::{
        AssertSqlSafe, Connection, Executor, PgPool, Postgres, pool::PoolConnection,
        postgres::PgRow, query::Query, query_with,
    },
};
use sea_query_sqlx::SqlxValues;

/// A pool of SeaORM's, and those of its connections that wait here, each for its turn: one that was
/// never used would be forgotten by what lies in between.
#[derive(Clone)]
pub(in crate::store) struct Kept {
    pub(super) made: sea_orm::DatabaseConnection,
    pool: PgPool,
    spare: Arc<Spare>,
}

#[derive(Default)]
struct Spare(Mutex<VecDeque<PoolConnection<Postgres>>>);

impl Drop for Spare {
    fn drop(&mut self) {
        for connection in self.0.get_mut().drain(..) {
            // Given back it would be asked whether it is there, by a runtime that may have ended.
            drop(connection.detach());
        }
    }
}

impl Kept {
    pub(super) fn of(made: sea_orm::DatabaseConnection) -> Self {
        Self {
            pool: made.get_postgres_connection_pool().clone(),
            made,
            spare: Arc::default(),
        }
    }

    pub(super) async fn execute(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        let mut turn = self.turn().await?;
        let done = query(&statement).execute(&mut *turn).await;
        self.keep_if(turn, done)
            .map(Into::into)
            .map_err(not_executed)
    }

    pub(super) async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        let mut turn = self.turn().await?;
        let done = turn.execute(AssertSqlSafe(sql.to_owned())).await;
        self.keep_if(turn, done)
            .map(Into::into)
            .map_err(not_executed)
    }

    pub(super) async fn query_all(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let mut turn = self.turn().await?;
        let rows = query(&statement).fetch_all(&mut *turn).await;
        let rows: Vec<PgRow> = self.keep_if(turn, rows).map_err(not_queried)?;
        Ok(rows.into_iter().map(QueryResult::from).collect())
    }

    pub(super) async fn query_one(
        &self,
        statement: Statement,
    ) -> Result<Option<QueryResult>, DbErr> {
        let mut turn = self.turn().await?;
        let row = query(&statement).fetch_optional(&mut *turn).await;
        let row: Option<PgRow> = self.keep_if(turn, row).map_err(not_queried)?;
        Ok(row.map(QueryResult::from))
    }

    pub(super) async fn ping(&self) -> Result<(), DbErr> {
        let mut turn = self.turn().await?;
        let answered = turn.ping().await;
        self.keep_if(turn, answered).map_err(not_queried)
    }

    /// Leaves the driver's pool a connection for what it hands out by itself.
    pub(super) fn make_room(&self) {
        let spare = self.spare.0.lock().pop_front();
        drop(spare);
    }

    pub(super) async fn close(self) {
        // Closed from here on, though not yet waited for.
        let others = self.pool.close();
        let spare = std::mem::take(&mut *self.spare.0.lock());
        // No part of the pool any more, they end with this future, whether they answer or not.
        let spare = spare.into_iter().map(PoolConnection::detach);
        join(join_all(spare.map(Connection::close)), others).await;
    }

    async fn turn(&self) -> Result<PoolConnection<Postgres>, DbErr> {
        let spare = self.spare.0.lock().pop_front();
        match spare {
            Some(connection) => Ok(connection),
            None => self.pool.acquire().await.map_err(not_acquired),
        }
    }

    /// Keeps a connection that did what it was asked.
    fn keep_if<T>(
        &self,
        turn: PoolConnection<Postgres>,
        done: Result<T, SqlxError>,
    ) -> Result<T, SqlxError> {
        let mut spare = self.spare.0.lock();
        // Seen under the lock under which the list of a pool that was closed is emptied.
        if done.is_ok() && !self.pool.is_closed() {
            spare.push_back(turn);
        }
        done
    }
}

fn query(statement: &Statement) -> Query<'_, Postgres, SqlxValues> {
    let values = statement.values.clone();
    let values = SqlxValues(values.unwrap_or(Values(Vec::new())));
    query_with(AssertSqlSafe(statement.sql.as_str()), values)
}

pub(super) fn not_acquired(error: SqlxError) -> DbErr {
    if matches!(error, SqlxError::PoolTimedOut) {
        DbErr::ConnectionAcquire(ConnAcquireErr::Timeout)
    } else if matches!(error, SqlxError::PoolClosed) {
        DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed)
    } else {
        DbErr::Conn(RuntimeErr::SqlxError(error.into()))
    }
}

fn not_executed(error: SqlxError) -> DbErr {
    DbErr::Exec(RuntimeErr::SqlxError(error.into()))
}

fn not_queried(error: SqlxError) -> DbErr {
    DbErr::Query(RuntimeErr::SqlxError(error.into()))
}
