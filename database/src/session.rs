//! Sends statements through one of three kinds of pool: one of SeaORM, one that keeps its
//! connections between statements, or one that prepares nothing.
//!
//! A pooler gives each transaction another connection. A statement that was prepared on one
//! connection is unknown on the next, or another statement has its name there. So nothing is
//! prepared behind a pooler. Each statement is sent whole, in one message with the bounds that the
//! server keeps for it. So it is one transaction and one round trip.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DbBackend, DbErr, EntityTrait, ExecResult,
    IsolationLevel, QueryResult, QuerySelect, Select, Statement, TransactionTrait,
    sqlx::{
        AssertSqlSafe, Executor, PgPool, Postgres, SqlSafeStr, Transaction,
        pool::PoolConnection,
        postgres::{PgQueryResult, PgRow},
        raw_sql,
    },
};
use tokio::sync::Mutex;

use crate::{
    bounds,
    failure::StatementFailure,
    fitness::{DatabaseFitness, fitness_of},
    probe,
    reused_pool::{ReusedPool, not_acquired, not_queried},
    target::Target,
};

/// Names the log target of each statement that is sent.
const TARGET: &str = "odometer::database::statement";

/// Logs a statement without its values. Tests count the statements of a call by these lines.
fn trace(sql: &str) {
    tracing::trace!(target: TARGET, sql, "a statement is sent");
}

/// A connection that takes the place of SeaORM's own, and behaves in the same way.
#[derive(Clone)]
pub enum DatabaseConnection {
    Prepared(sea_orm::DatabaseConnection),
    ReusedPool(ReusedPool),
    Unprepared(Unprepared),
}

#[derive(Clone)]
pub struct Unprepared {
    /// The pool as SeaORM made it. Only its connections are used.
    made: sea_orm::DatabaseConnection,
    pool: PgPool,
    /// Statements that set bounds for the statements after them, to the end of their transaction.
    bounds: Arc<str>,
}

/// A transaction of a [`DatabaseConnection`].
pub enum DatabaseTransaction {
    Prepared(sea_orm::DatabaseTransaction),
    Unprepared(Mutex<Transaction<'static, Postgres>>),
}

impl DatabaseConnection {
    /// Opens a pool. `longest` is how long a statement is waited for.
    ///
    /// # Errors
    /// The driver cannot read the options.
    pub async fn open(
        options: ConnectOptions,
        is_pooled: bool,
        longest: Option<Duration>,
    ) -> Result<Self, DbErr> {
        let url = options.get_url().to_owned();
        let made = Box::pin(Database::connect(options)).await?;
        if made.get_database_backend() != DbBackend::Postgres {
            return Ok(Self::Prepared(made));
        }
        if !is_pooled {
            return Ok(Self::ReusedPool(ReusedPool::of(made)));
        }
        Ok(Self::Unprepared(Unprepared {
            pool: made.get_postgres_connection_pool().clone(),
            made,
            bounds: bounds::postgres_within(&url, longest).into(),
        }))
    }

    /// Finds out the way to a server, and does `work` on a connection outside the pool that serves.
    /// `acquire` is how long making a connection may take. `options` is called when the way is known.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn once<T>(
        target: &Target,
        acquire: Duration,
        longest: Option<Duration>,
        options: impl FnOnce(&Target, Duration, bool) -> ConnectOptions,
        work: impl AsyncFnOnce(&Self) -> T,
    ) -> Result<T, DatabaseFitness> {
        let verdict = |failure| fitness_of(&failure);
        // The futures that make connections are too large for the stack.
        let reaching = Box::pin(probe::reach(target, acquire));
        reaching.await.map_err(verdict)?;
        let is_pooled = target.route.is_pooled();
        let options = options(target, acquire, is_pooled);
        let opening = Box::pin(Self::open(options, is_pooled, longest));
        let opened = opening.await;
        let database = opened.map_err(|error| verdict(StatementFailure::from(error)))?;
        let outcome = work(&database).await;
        // Closing loses nothing: no work is left on the connection.
        let _closed = database.close().await;
        Ok(outcome)
    }

    /// Begins a transaction that locks only the rows that it means to lock, on MySQL too.
    pub async fn begin_read_committed(&self) -> Result<DatabaseTransaction, DbErr> {
        match self {
            Self::Prepared(made) if made.get_database_backend() != DbBackend::Sqlite => {
                trace("BEGIN");
                let level = Some(IsolationLevel::ReadCommitted);
                let begun = made.begin_with_config(level, None).await;
                begun.map(DatabaseTransaction::Prepared)
            }
            // SQLite has one writer, and the sessions of PostgreSQL have this level.
            Self::Prepared(_) | Self::ReusedPool(_) | Self::Unprepared(_) => self.begin().await,
        }
    }

    /// Begins a transaction that sees what others commit while it waits for them. Its isolation
    /// level is the one that its session was given by name, not the server's own.
    pub async fn begin(&self) -> Result<DatabaseTransaction, DbErr> {
        trace("BEGIN");
        match self {
            Self::Prepared(made) => made.begin().await.map(DatabaseTransaction::Prepared),
            Self::ReusedPool(kept) => kept.begin().await.map(DatabaseTransaction::Prepared),
            Self::Unprepared(unprepared) => {
                let statement = AssertSqlSafe(format!("BEGIN; {}", unprepared.bounds));
                let connection = unprepared.checkout().await?;
                let begun = Transaction::begin(connection, Some(statement.into_sql_str())).await;
                let begun = begun.map_err(not_queried)?;
                Ok(DatabaseTransaction::Unprepared(Mutex::new(begun)))
            }
        }
    }

    /// Checks that the server answers.
    pub async fn ping(&self) -> Result<(), DbErr> {
        match self {
            Self::Prepared(made) => Box::pin(made.ping()).await,
            Self::ReusedPool(kept) => kept.ping().await,
            Self::Unprepared(_) => self.execute_unprepared("SELECT 1").await.map(|_one| ()),
        }
    }

    async fn rows(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        match self {
            Self::Prepared(made) => made.query_all_raw(statement).await,
            Self::ReusedPool(kept) => kept.query_all(statement).await,
            Self::Unprepared(it) => query(&mut *it.checkout().await?, it.whole(&statement)).await,
        }
    }

    pub async fn close(self) -> Result<(), DbErr> {
        match self {
            Self::Prepared(made) | Self::Unprepared(Unprepared { made, .. }) => made.close().await,
            Self::ReusedPool(kept) => {
                kept.close().await;
                Ok(())
            }
        }
    }
}

#[async_trait]
impl ConnectionTrait for DatabaseConnection {
    fn get_database_backend(&self) -> DbBackend {
        match self {
            Self::Prepared(made) => made.get_database_backend(),
            Self::ReusedPool(_) | Self::Unprepared(_) => DbBackend::Postgres,
        }
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        trace(&statement.sql);
        match self {
            Self::Prepared(made) => made.execute_raw(statement).await,
            Self::ReusedPool(kept) => kept.execute(statement).await,
            Self::Unprepared(it) => execute(&mut *it.checkout().await?, it.whole(&statement)).await,
        }
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        trace(sql);
        match self {
            Self::Prepared(made) => made.execute_unprepared(sql).await,
            Self::ReusedPool(kept) => kept.execute_unprepared(sql).await,
            Self::Unprepared(it) => {
                execute(&mut *it.checkout().await?, format!("{}{sql}", it.bounds)).await
            }
        }
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        trace(&statement.sql);
        Ok(self.rows(statement).await?.into_iter().next())
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        trace(&statement.sql);
        self.rows(statement).await
    }
}

impl Unprepared {
    async fn checkout(&self) -> Result<PoolConnection<Postgres>, DbErr> {
        self.pool.acquire().await.map_err(not_acquired)
    }

    /// Returns the statement with its values in it, and with its bounds before it.
    fn whole(&self, statement: &Statement) -> String {
        format!("{}{statement}", self.bounds)
    }
}

impl DatabaseTransaction {
    /// Makes a query lock what it finds until the end of the transaction. SQLite needs no row
    /// locks, because it has one writer.
    pub fn holding<E: EntityTrait>(&self, find: Select<E>) -> Select<E> {
        if self.get_database_backend() == DbBackend::Sqlite {
            return find;
        }
        find.lock_exclusive()
    }

    async fn rows(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        match self {
            Self::Prepared(made) => made.query_all_raw(statement).await,
            Self::Unprepared(open) => query(&mut **open.lock().await, statement.to_string()).await,
        }
    }

    pub async fn commit(self) -> Result<(), DbErr> {
        trace("COMMIT");
        match self {
            Self::Prepared(made) => made.commit().await,
            Self::Unprepared(open) => open.into_inner().commit().await.map_err(not_queried),
        }
    }

    pub async fn rollback(self) -> Result<(), DbErr> {
        trace("ROLLBACK");
        match self {
            Self::Prepared(made) => made.rollback().await,
            Self::Unprepared(open) => open.into_inner().rollback().await.map_err(not_queried),
        }
    }
}

#[async_trait]
impl ConnectionTrait for DatabaseTransaction {
    fn get_database_backend(&self) -> DbBackend {
        match self {
            Self::Prepared(made) => made.get_database_backend(),
            Self::Unprepared(_) => DbBackend::Postgres,
        }
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        trace(&statement.sql);
        match self {
            Self::Prepared(made) => made.execute_raw(statement).await,
            Self::Unprepared(open) => {
                execute(&mut **open.lock().await, statement.to_string()).await
            }
        }
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        trace(sql);
        match self {
            Self::Prepared(made) => made.execute_unprepared(sql).await,
            Self::Unprepared(open) => execute(&mut **open.lock().await, sql.to_owned()).await,
        }
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        trace(&statement.sql);
        Ok(self.rows(statement).await?.into_iter().next())
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        trace(&statement.sql);
        self.rows(statement).await
    }
}

async fn execute<'c>(
    on: impl Executor<'c, Database = Postgres>,
    sql: String,
) -> Result<ExecResult, DbErr> {
    let done = raw_sql(AssertSqlSafe(sql)).execute(on).await;
    done.map(|done: PgQueryResult| done.into())
        .map_err(not_queried)
}

async fn query<'c>(
    on: impl Executor<'c, Database = Postgres>,
    sql: String,
) -> Result<Vec<QueryResult>, DbErr> {
    let rows = raw_sql(AssertSqlSafe(sql)).fetch_all(on).await;
    rows.map(|rows: Vec<PgRow>| rows.into_iter().map(QueryResult::from).collect())
        .map_err(not_queried)
}
