//! The pool of connections, its bounds, its health, and the runtime it lives on.
//!
//! Statements run as tasks of a runtime that outlives the HTTP workers, and
//! nobody cancels them: a dropped one could leave a transaction open in the
//! pool. A caller stops waiting after `store.timeout`; the task is left to
//! itself and the pool is replaced.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbErr};
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Notify, Semaphore, watch},
    time::timeout,
};

use super::error::{Cause, Failure};

/// What is known of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It has not answered since the start.
    NoContact,
    /// It answers, with a schema that this binary cannot work with.
    WrongSchema,
    Up,
    Down,
}

pub(super) struct Connection {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    options: ConnectOptions,
    pool: Mutex<Pool>,
    health: watch::Sender<Health>,
    /// Becomes true when the first look at the database has ended, whatever it found.
    pub(super) has_looked: watch::Sender<bool>,
    /// Rung when the database was seen to be away.
    pub(super) went_down: Notify,
    timeout: Duration,
}

#[derive(Clone)]
struct Pool {
    generation: u64,
    database: DatabaseConnection,
    /// As many as connections, handed out in the order of asking, so that
    /// waiting for a turn is never taken for a database that is away.
    permits: Arc<Semaphore>,
}

impl Pool {
    async fn open(options: &ConnectOptions, generation: u64) -> Result<Self, DbErr> {
        let n_connections = options.get_max_connections().unwrap_or(1);
        Ok(Self {
            generation,
            database: Box::pin(Database::connect(options.clone())).await?,
            permits: Arc::new(Semaphore::new(
                usize::try_from(n_connections).unwrap_or(usize::MAX >> 4),
            )),
        })
    }
}

impl Connection {
    /// Makes the runtime and a pool that connects when first used.
    ///
    /// # Errors
    /// Options that the driver cannot read.
    pub(super) async fn new(
        runtime: Runtime,
        options: ConnectOptions,
        statement_timeout: Duration,
    ) -> Result<Self, DbErr> {
        let handle = runtime.handle().clone();
        let lazily = options.clone();
        let pool = handle
            .spawn(async move { Pool::open(&lazily, 0).await })
            .await
            .map_err(|error| DbErr::Custom(error.to_string()))??;
        Ok(Self {
            runtime: Mutex::new(Some(runtime)),
            handle,
            options,
            pool: Mutex::new(pool),
            health: watch::Sender::new(Health::NoContact),
            has_looked: watch::Sender::new(false),
            went_down: Notify::new(),
            timeout: statement_timeout,
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn health(&self) -> Health {
        *self.health.borrow()
    }

    pub(super) fn set_health(&self, health: Health) {
        self.health.send_if_modified(|known| {
            let changed = *known != health;
            *known = health;
            changed
        });
    }

    /// Runs one statement, or one transaction, and waits for its end until `until`.
    ///
    /// # Errors
    /// How it failed. Cancelling the returned future does not cancel the statement.
    pub(super) async fn run<T, F, Fut>(&self, until: Instant, operation: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, DbErr>> + Send + 'static,
    {
        let pool = self.pool.lock().clone();
        let turn = timeout(
            until.saturating_duration_since(Instant::now()),
            Arc::clone(&pool.permits).acquire_owned(),
        );
        let Ok(Ok(permit)) = turn.await else {
            return Err(Failure::NotCommitted(Cause::Busy));
        };
        let operation = operation(pool.database);
        let task = self.handle.spawn(async move {
            let outcome = operation.await;
            drop(permit);
            outcome
        });
        let patience = until
            .saturating_duration_since(Instant::now())
            .min(self.timeout);
        let failure = match timeout(patience, task).await {
            Ok(Ok(Ok(value))) => return Ok(value),
            Ok(Ok(Err(error))) => Failure::from(error),
            Ok(Err(stopped)) => Failure::MayHaveCommitted(Cause::Broken(stopped.to_string())),
            Err(_) if patience < self.timeout => Failure::MayHaveCommitted(Cause::Busy),
            Err(_) => Failure::MayHaveCommitted(Cause::Broken(format!(
                "no reply within {} ms",
                patience.as_millis()
            ))),
        };
        self.learn_from(&failure, pool.generation);
        Err(failure)
    }

    fn learn_from(&self, failure: &Failure, generation: u64) {
        if failure.is_away() {
            if self.health() == Health::Up {
                tracing::error!(
                    error = failure.cause().text(),
                    "the database cannot be reached; numbers in memory are still issued"
                );
                self.set_health(Health::Down);
            }
            self.went_down.notify_one();
        } else if matches!(failure.cause(), Cause::Broken(_)) {
            self.replace_pool(generation, failure.cause().text());
        }
    }

    /// Whatever broke one connection broke its siblings: all are replaced at once.
    fn replace_pool(&self, generation: u64, cause: &str) {
        let mut pool = self.pool.lock();
        if pool.generation != generation {
            return;
        }
        tracing::warn!(error = cause, "connections to the database are replaced");
        // The pool connects lazily, so opening one does not wait for anything.
        let _inside = self.handle.enter();
        let Some(Ok(fresh)) = futures_util::FutureExt::now_or_never(Pool::open(
            &self.options,
            generation.wrapping_add(1),
        )) else {
            return;
        };
        let old = std::mem::replace(&mut *pool, fresh);
        // Closing waits for the connections that are in use, for many minutes if need be.
        self.handle.spawn(async move { old.database.close().await });
    }

    /// Closes the pool, waiting at most `patience` for statements in flight, and ends the runtime.
    pub(super) async fn close(&self, patience: Duration) {
        let database = self.pool.lock().database.clone();
        let closing = self.handle.spawn(async move { database.close().await });
        if timeout(patience, closing).await.is_err() {
            tracing::warn!("statements were still in flight when the pool was closed");
        }
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}
