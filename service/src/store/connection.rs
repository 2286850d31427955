//! The pool of connections, its bounds, its health, and the runtime it lives on.
//!
//! Statements run as tasks of a runtime that outlives the HTTP workers, and
//! nobody cancels them: a dropped one could leave a transaction open in the
//! pool. A caller stops waiting after `store.timeout`; the task is left to
//! itself and the pool is replaced.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sea_orm::DbErr;
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    error::{Cause, Failure},
    route::Doors,
    session::DatabaseConnection,
};

/// Between two lines of the log about a disk that is full.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

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
    options: Doors,
    pool: Mutex<Pool>,
    health: watch::Sender<Health>,
    /// Becomes true when the first look at the database has ended, whatever it found.
    pub(super) has_looked: watch::Sender<bool>,
    /// Rung when the database was seen to be away.
    pub(super) went_down: Notify,
    /// Rung when what is known of the store is to be read anew at once.
    pub(super) refresh: Notify,
    timeout: Duration,
    is_closed: AtomicBool,
    /// When it was last said that the disk is full.
    complained: Mutex<Option<Instant>>,
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
    async fn open(doors: &Doors, generation: u64) -> Result<Self, DbErr> {
        let (options, is_pooled) = doors.current();
        let n_connections = options.get_max_connections().unwrap_or(1);
        Ok(Self {
            generation,
            database: DatabaseConnection::open(options.clone(), is_pooled, Some(doors.longest))
                .await?,
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
        options: Doors,
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
            refresh: Notify::new(),
            timeout: statement_timeout,
            is_closed: AtomicBool::new(false),
            complained: Mutex::new(None),
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn health(&self) -> Health {
        *self.health.borrow()
    }

    pub(super) fn health_changes(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
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
    pub(super) async fn run<T, F, Fut>(
        self: &Arc<Self>,
        until: Instant,
        operation: F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, DbErr>> + Send + 'static,
    {
        let (pool, permit) = self.turn(until).await?;
        let operation = operation(pool.database);
        let mut task = self.handle.spawn(async move {
            let outcome = operation.await;
            drop(permit);
            outcome
        });
        let patience = until
            .saturating_duration_since(Instant::now())
            .min(self.timeout);
        let failure = match timeout(patience, &mut task).await {
            Ok(Ok(Ok(value))) => return Ok(value),
            Ok(Ok(Err(error))) => Failure::from(error),
            Ok(Err(_stopped)) => {
                Failure::MayHaveCommitted(Cause::Broken("its task was stopped".to_owned()))
            }
            Err(_) => {
                self.watch_silent(task, self.timeout.saturating_sub(patience), pool.generation);
                Failure::MayHaveCommitted(Cause::Silent)
            }
        };
        self.learn_from(&failure, pool.generation);
        Err(failure)
    }

    /// Waits for a turn on the pool, and on its successor where it is replaced meanwhile.
    async fn turn(&self, until: Instant) -> Result<(Pool, OwnedSemaphorePermit), Failure> {
        loop {
            let pool = self.pool.lock().clone();
            let turn = timeout(
                until.saturating_duration_since(Instant::now()),
                Arc::clone(&pool.permits).acquire_owned(),
            );
            match turn.await {
                Ok(Ok(permit)) => return Ok((pool, permit)),
                Ok(Err(_replaced)) if !self.is_closed.load(Ordering::Acquire) => {}
                Ok(Err(_)) | Err(_) => return Err(Failure::NotCommitted(Cause::Busy)),
            }
        }
    }

    /// A statement that nobody waits for any more: after `store.timeout` in all its pool is replaced.
    fn watch_silent<T: Send + 'static>(
        self: &Arc<Self>,
        task: JoinHandle<T>,
        left: Duration,
        generation: u64,
    ) {
        let connection = Arc::clone(self);
        self.handle.spawn(async move {
            if timeout(left, task).await.is_err() {
                connection.replace_pool(generation, "a statement got no reply");
            }
        });
    }

    /// Replaces the pool that is in use now.
    pub(super) fn renew(&self) {
        let generation = self.pool.lock().generation;
        self.replace_pool(generation, "the database does not answer as it should");
    }

    fn learn_from(&self, failure: &Failure, generation: u64) {
        if generation != self.pool.lock().generation {
            return;
        }
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
        } else if matches!(failure.cause(), Cause::DiskFull) {
            self.complain();
        }
    }

    fn complain(&self) {
        let mut complained = self.complained.lock();
        if complained.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            *complained = Some(Instant::now());
            tracing::error!(
                "the database's disk is full: nothing can be reserved until there is room; \
                 numbers in memory are still issued"
            );
        }
    }

    /// Whatever broke one connection broke its siblings: all are replaced at once.
    fn replace_pool(&self, generation: u64, cause: &str) {
        let mut pool = self.pool.lock();
        if pool.generation != generation || self.is_closed.load(Ordering::Acquire) {
            return;
        }
        tracing::debug!(error = cause, "connections to the database are replaced");
        // The pool connects lazily, so opening one does not wait for anything.
        let _inside = self.handle.enter();
        let Some(Ok(fresh)) = futures_util::FutureExt::now_or_never(Pool::open(
            &self.options,
            generation.wrapping_add(1),
        )) else {
            return;
        };
        let old = std::mem::replace(&mut *pool, fresh);
        // Whoever waits for a turn on it waits on the new one.
        old.permits.close();
        // Closing waits for the connections that are in use, for many minutes if need be.
        self.handle.spawn(async move { old.database.close().await });
    }

    /// Closes the pool, waiting at most `patience` for statements in flight, and ends the runtime.
    pub(super) async fn close(&self, patience: Duration) {
        self.is_closed.store(true, Ordering::Release);
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
