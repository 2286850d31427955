//! The pool of connections, its bounds, its health, and the runtime it lives on.
//!
//! Statements run as tasks of a runtime that outlives the HTTP workers, and
//! nobody cancels them while their pool is in use: a dropped one could leave a
//! transaction open in it. A caller stops waiting after `store.timeout`; then
//! the pool is replaced, the old one closed, and what is still silent after that
//! ended with its connection, which no other statement can meet any more.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_process::{
    faults::{self, Fault},
    metrics::{ConnectionMetrics, Present},
};
use parking_lot::Mutex;
use sea_orm::DbErr;
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Notify, OwnedSemaphorePermit, watch},
    task::{JoinError, JoinHandle},
    time::{sleep, timeout, timeout_at},
};

use crate::{
    complaint::Complaint,
    failure::{Cause, StatementFailure},
    label::DatabaseLabel,
    pool::ConnectionPool,
    route::Doors,
    session::DatabaseConnection,
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::connection";

/// A statement silent for this part of `store.timeout` is reason to look at the database.
const SUSPICIOUS_PART: u32 = 5;
/// How long statements that outlived an outage may still take: a server that was only stopped
/// answers them now, one whose connections are dead never will.
const LAST_TIMEOUT: Duration = Duration::from_millis(500);

/// What is known of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has not answered since the start.
    NoContact,
    /// It answers, with a schema that this binary cannot work with.
    WrongSchema,
    Up,
    Down,
}

/// The right to one connection of the pool, until it is dropped.
struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    _counted: Present,
}

pub struct Connection {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    options: Doors,
    pool: Mutex<ConnectionPool>,
    /// Statements of pools below this generation are waited for no longer.
    given_up: watch::Sender<u64>,
    health: watch::Sender<Health>,
    /// Becomes true when the first look at the database has ended, whatever it found.
    pub has_looked: watch::Sender<bool>,
    /// Rung when there is reason to believe that the database is away.
    pub went_down: Notify,
    /// Rung when what is known of the store is to be read anew at once.
    pub refresh: Notify,
    timeout: Duration,
    counted: ConnectionMetrics,
    is_closed: AtomicBool,
    /// That the disk is full.
    complained: Mutex<Complaint>,
    label: DatabaseLabel,
}

impl Connection {
    /// Makes the runtime and a pool that connects when first used.
    ///
    /// # Errors
    /// Options that the driver cannot read.
    pub async fn new(
        runtime: Runtime,
        options: Doors,
        statement_timeout: Duration,
        counted: ConnectionMetrics,
        label: DatabaseLabel,
    ) -> Result<Self, DbErr> {
        let handle = runtime.handle().clone();
        let pool = match ConnectionPool::open(&options, 0).await {
            Ok(pool) => pool,
            Err(error) => {
                // It must not be waited for here.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        counted.set_max(pool.permits.available_permits());
        Ok(Self {
            runtime: Mutex::new(Some(runtime)),
            handle,
            options,
            pool: Mutex::new(pool),
            given_up: watch::Sender::new(0),
            health: watch::Sender::new(Health::NoContact),
            has_looked: watch::Sender::new(false),
            went_down: Notify::new(),
            refresh: Notify::new(),
            timeout: statement_timeout,
            counted,
            is_closed: AtomicBool::new(false),
            complained: Mutex::default(),
            label,
        })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Tasks alive in the store's runtime and in that of the pool in use; the end of an earlier
    /// pool is a task as long as it takes.
    pub fn n_tasks(&self) -> usize {
        self.handle.metrics().num_alive_tasks() + self.pool.lock().n_tasks()
    }

    pub fn health(&self) -> Health {
        *self.health.borrow()
    }

    pub fn health_changes(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub fn set_health(&self, health: Health) {
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
    pub async fn run<T, F, Fut>(
        self: &Arc<Self>,
        until: Instant,
        operation: F,
    ) -> Result<T, StatementFailure>
    where
        T: Send + 'static,
        F: FnOnce(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, DbErr>> + Send + 'static,
    {
        let (pool, permit) = self.permit(until).await?;
        let generation = pool.generation;
        let operation = operation(pool.database);
        let statement = async move {
            let outcome = operation.await;
            drop(permit);
            outcome
        };
        let mut task = match pool.runtime.handle() {
            Ok(handle) => handle.spawn(statement),
            Err(_ended) => {
                let cause = Cause::Broken("its pool was replaced".to_owned());
                return Err(StatementFailure::NotCommitted(cause));
            }
        };
        drop(pool.runtime);
        let sent = Instant::now();
        let timeout_left = until.saturating_duration_since(sent).min(self.timeout);
        let failure = match self.outcome(&mut task, timeout_left, generation).await {
            Some(Ok(Ok(value))) => return Ok(value),
            Some(Ok(Err(error))) => StatementFailure::from(error),
            Some(Err(_stopped)) => {
                StatementFailure::MayHaveCommitted(Cause::Broken("its task was stopped".to_owned()))
            }
            None => {
                let silent_at = (sent + self.timeout).max(pool.connects_until);
                self.watch_silent(task, silent_at, generation);
                StatementFailure::MayHaveCommitted(Cause::Silent)
            }
        };
        self.learn_from(&failure, generation);
        Err(failure)
    }

    /// Waits for a statement's end; `None` when it is not waited for any longer.
    async fn outcome<T>(
        &self,
        task: &mut JoinHandle<T>,
        timeout_left: Duration,
        generation: u64,
    ) -> Option<Result<T, JoinError>> {
        let unsuspicious = timeout_left.min(self.timeout / SUSPICIOUS_PART);
        if let Ok(ended) = timeout(unsuspicious, &mut *task).await {
            return Some(ended);
        }
        self.went_down.notify_one();
        let mut given_up = self.given_up.subscribe();
        tokio::select! {
            biased;
            ended = task => Some(ended),
            () = sleep(timeout_left.saturating_sub(unsuspicious)) => None,
            _ = given_up.wait_for(|below| generation < *below) => None,
        }
    }

    /// Waits for a permit of the pool, and on its successor where it is replaced meanwhile.
    async fn permit(
        &self,
        until: Instant,
    ) -> Result<(ConnectionPool, ConnectionPermit), StatementFailure> {
        let pending = self.counted.one_is_pending();
        loop {
            let mut pool = self.pool.lock().clone();
            if pool.is_pooled != self.options.current().1 {
                self.replace_pool(pool.generation, "a pooler is in between");
                pool = self.pool.lock().clone();
            }
            let acquired = timeout(
                until.saturating_duration_since(Instant::now()),
                Arc::clone(&pool.permits).acquire_owned(),
            );
            match acquired.await {
                Ok(Ok(permit)) => {
                    drop(pending);
                    let permit = ConnectionPermit {
                        _permit: permit,
                        _counted: self.counted.one_is_active(),
                    };
                    return Ok((pool, permit));
                }
                Ok(Err(_replaced)) if !self.is_closed.load(Ordering::Acquire) => {}
                Ok(Err(_)) | Err(_) => return Err(StatementFailure::NotCommitted(Cause::Busy)),
            }
        }
    }

    /// A statement that nobody waits for any more: if it is silent at `silent_at` its pool is
    /// replaced. That is after `store.timeout` in all, and not while its connection may be on its
    /// way still: it would only be made once more.
    fn watch_silent<T: Send + 'static>(
        self: &Arc<Self>,
        task: JoinHandle<T>,
        silent_at: Instant,
        generation: u64,
    ) {
        let connection = Arc::clone(self);
        self.handle.spawn(async move {
            if timeout_at(silent_at.into(), task).await.is_err() {
                connection.replace_pool(generation, "a statement got no reply");
            }
        });
    }

    /// Replaces the pool that is in use now.
    pub fn renew(&self) -> u64 {
        let generation = self.pool.lock().generation;
        self.replace_pool(generation, "the database does not answer as it should");
        generation
    }

    /// Replaces the pool after an outage; what is still under way on it is soon waited for no
    /// longer, so that nobody stays behind a connection that will never answer.
    pub fn renew_after_outage(self: &Arc<Self>) {
        let generation = self.renew();
        if self.pool.lock().generation == generation {
            // Nothing took its place.
            return;
        }
        let connection = Arc::clone(self);
        self.handle.spawn(async move {
            sleep(LAST_TIMEOUT).await;
            connection
                .given_up
                .send_modify(|below| *below = generation.saturating_add(1).max(*below));
        });
    }

    fn learn_from(&self, failure: &StatementFailure, generation: u64) {
        if generation != self.pool.lock().generation {
            return;
        }
        if failure.is_away() {
            if self.health() == Health::Up {
                tracing::error!(
                    target: TARGET,
                    error = failure.cause().text(),
                    "{}: the database is away; numbers in memory are still issued",
                    self.label
                );
                self.set_health(Health::Down);
            }
            self.went_down.notify_one();
        } else if matches!(failure.cause(), Cause::Broken(_) | Cause::Internal(_)) {
            self.replace_pool(generation, failure.cause().text());
        } else if matches!(failure.cause(), Cause::DiskFull(_)) {
            self.complain();
        }
    }

    fn complain(&self) {
        let what = "the database's disk is full: nothing can be reserved until there is room; \
                    numbers in memory are still issued";
        if self.complained.lock().is_due(what, Instant::now()) {
            tracing::error!(target: TARGET, "{}: {what}", self.label);
        }
    }

    /// Whatever broke one connection broke its siblings: all are replaced at once.
    fn replace_pool(&self, generation: u64, cause: &str) {
        let mut pool = self.pool.lock();
        let is_replaced = pool.generation != generation || self.is_closed.load(Ordering::Acquire);
        if is_replaced || !pool.is_of_a_server() || faults::is(Fault::KeepDeadPool) {
            return;
        }
        tracing::debug!(target: TARGET, error = cause, "connections to the database are replaced");
        let Ok(fresh) = ConnectionPool::open_at_once(&self.options, generation.saturating_add(1))
        else {
            tracing::error!(target: TARGET, "connections to the database could not be replaced");
            return;
        };
        let old = std::mem::replace(&mut *pool, fresh);
        // Whoever waits for a permit of it waits on the new one.
        old.permits.close();
        let timeout_left = self.timeout + LAST_TIMEOUT;
        self.handle.spawn(async move {
            // Statements under way may end. What is silent still has been given up by all then,
            // and ends with its runtime.
            let _ended = timeout(timeout_left, old.database.clone().close()).await;
            drop(old);
        });
    }

    /// Closes the pool, waiting at most `timeout_left` for statements in flight, and ends the runtime.
    pub async fn close(&self, timeout_left: Duration) {
        self.is_closed.store(true, Ordering::Release);
        let database = self.pool.lock().database.clone();
        let closing = self.handle.spawn(async move { database.close().await });
        if timeout(timeout_left, closing).await.is_err() {
            tracing::warn!(target: TARGET, "statements were still in flight when the pool was closed");
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
