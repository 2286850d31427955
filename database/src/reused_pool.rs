//! Keeps connections to PostgreSQL for the next statement.
//!
//! The driver's pool asks each connection that it takes back whether the server is still there.
//! That is one more round trip after each statement, and finds out nothing that the next statement
//! would not. So a connection that served well is kept here. Only a connection that failed is given
//! back.

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use sea_orm::{
    ConnAcquireErr, DatabaseTransaction, DbErr, ExecResult, QueryResult, RuntimeErr, SqlxError,
    Statement, TransactionTrait,
    sea_query::Values,
    sqlx::{
        AssertSqlSafe, Connection, Executor, PgPool, Postgres, pool::PoolConnection,
        postgres::PgRow, query::Query, query_with,
    },
};
use sea_query_sqlx::SqlxValues;

/// A pool of SeaORM, and those of its connections that wait here. The connection that waited
/// longest is used first: the network in between may forget a connection that is never used.
#[derive(Clone)]
pub struct ReusedPool {
    made: sea_orm::DatabaseConnection,
    pool: PgPool,
    spare: Arc<SharedIdleConnections>,
}

#[derive(Default)]
struct SharedIdleConnections(Mutex<IdleConnections>);

#[derive(Default)]
struct IdleConnections {
    connections: VecDeque<PoolConnection<Postgres>>,
    /// The number of transactions that want a connection of the driver's pool. A connection that
    /// waits here is of no use to them.
    n_beginning: usize,
}

/// Marks a transaction that begins. Until it has begun, a connection that becomes free is given
/// back.
struct BeginningTransaction<'a>(&'a SharedIdleConnections);

impl Drop for BeginningTransaction<'_> {
    fn drop(&mut self) {
        self.0.0.lock().n_beginning -= 1;
    }
}

impl Drop for SharedIdleConnections {
    fn drop(&mut self) {
        for connection in self.0.get_mut().connections.drain(..) {
            // If it was given back, a runtime that may have ended would ask whether the server is
            // there.
            drop(connection.detach());
        }
    }
}

impl ReusedPool {
    pub fn of(made: sea_orm::DatabaseConnection) -> Self {
        Self {
            pool: made.get_postgres_connection_pool().clone(),
            made,
            spare: Arc::default(),
        }
    }

    pub async fn execute(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        let mut connection = self.checkout().await?;
        let done = query(&statement).execute(&mut *connection).await;
        self.keep_if(connection, done)
            .map(Into::into)
            .map_err(not_executed)
    }

    pub async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        let mut connection = self.checkout().await?;
        let done = connection.execute(AssertSqlSafe(sql.to_owned())).await;
        self.keep_if(connection, done)
            .map(Into::into)
            .map_err(not_executed)
    }

    pub async fn query_all(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let mut connection = self.checkout().await?;
        let rows = query(&statement).fetch_all(&mut *connection).await;
        let rows: Vec<PgRow> = self.keep_if(connection, rows).map_err(not_queried)?;
        Ok(rows.into_iter().map(QueryResult::from).collect())
    }

    pub async fn ping(&self) -> Result<(), DbErr> {
        let mut connection = self.checkout().await?;
        let answered = connection.ping().await;
        self.keep_if(connection, answered).map_err(not_queried)
    }

    /// Begins a transaction. It holds a connection that the driver hands out by itself.
    pub async fn begin(&self) -> Result<DatabaseTransaction, DbErr> {
        let _beginning = self.make_room();
        self.made.begin().await
    }

    /// Leaves the driver's pool a connection, and those that become free while the transaction
    /// begins.
    fn make_room(&self) -> BeginningTransaction<'_> {
        let mut waiting = self.spare.0.lock();
        waiting.n_beginning += 1;
        // The driver's count of idle connections is not exact at each moment. A count of one below
        // zero reads as more than there can be.
        let n_at_most = usize::try_from(self.pool.options().get_max_connections());
        let enough = waiting.n_beginning..=n_at_most.unwrap_or(usize::MAX);
        let given_back = if enough.contains(&self.pool.num_idle()) {
            None
        } else {
            waiting.connections.pop_front()
        };
        drop(waiting);
        drop(given_back);
        BeginningTransaction(&self.spare)
    }

    pub async fn close(self) {
        // The pool is closed from here on, though its end is not waited for yet.
        let others = self.pool.close();
        let spare = std::mem::take(&mut self.spare.0.lock().connections);
        // These connections are no part of the pool any more. They end with this future, whether or
        // not they answer.
        let spare = spare.into_iter().map(PoolConnection::detach);
        join(join_all(spare.map(Connection::close)), others).await;
    }

    async fn checkout(&self) -> Result<PoolConnection<Postgres>, DbErr> {
        match self.idle() {
            Some(connection) => Ok(connection),
            None => self.pool.acquire().await.map_err(not_acquired),
        }
    }

    /// Returns a connection that waits. A connection that a transaction gave back goes first.
    /// Otherwise it would not be used while there are no transactions.
    fn idle(&self) -> Option<PoolConnection<Postgres>> {
        let mut waiting = self.spare.0.lock();
        let left_behind = match waiting.n_beginning {
            0 => self.pool.try_acquire(),
            _ => None,
        };
        left_behind.or_else(|| waiting.connections.pop_front())
    }

    /// Keeps a connection that did what it was asked.
    fn keep_if<T>(
        &self,
        connection: PoolConnection<Postgres>,
        done: Result<T, SqlxError>,
    ) -> Result<T, SqlxError> {
        let mut waiting = self.spare.0.lock();
        // This is read under the lock under which the list of a closed pool is emptied.
        if done.is_ok() && waiting.n_beginning == 0 && !self.pool.is_closed() {
            waiting.connections.push_back(connection);
        }
        done
    }
}

fn query(statement: &Statement) -> Query<'_, Postgres, SqlxValues> {
    let values = statement.values.clone();
    let values = SqlxValues(values.unwrap_or(Values(Vec::new())));
    query_with(AssertSqlSafe(statement.sql.as_str()), values)
}

pub fn not_acquired(error: SqlxError) -> DbErr {
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

pub fn not_queried(error: SqlxError) -> DbErr {
    DbErr::Query(RuntimeErr::SqlxError(error.into()))
}
