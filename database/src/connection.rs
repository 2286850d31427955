//! Holds the connections to one database: the pool, its bounds, the contact to it, and its runtime.
//!
//! Statements run as tasks of the pool's own runtime. No statement is cancelled
//! while its pool is in use, because a cancelled statement could leave a transaction open in the
//! pool. A caller stops waiting after `store.timeout`. Then the pool is replaced, and the old pool
//! is closed. A statement that is still silent after that ends with its connection, which no other
//! statement can meet any more.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use odometer_process::{
    faults::{self, Fault},
    metrics::{PoolMetrics, Present},
};
use parking_lot::Mutex;
use sea_orm::DbErr;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, watch},
    task::{JoinError, JoinHandle},
    time::{sleep, timeout, timeout_at},
};
use tracing::Instrument as _;

use crate::{
    complaint::Complaint,
    failure::{Cause, StatementFailure},
    label::DatabaseLabel,
    pool::{ConnectionPool, OwnRuntime},
    route::RouteOptions,
    session::DatabaseConnection,
    tasks::Tasks,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::connection";

/// Sets the part of `store.timeout`, one of so many, after which a silent statement calls for a
/// look at the database.
const SUSPICIOUS_PART: u32 = 5;
/// Bounds how long statements from before an outage may still take. A server that was only stopped
/// answers them now. A server whose connections are dead never will.
const LAST_TIMEOUT: Duration = Duration::from_millis(500);

/// What is known of the database. A greater value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contact {
    /// The database has not answered since the start.
    None,
    /// The database answers, with a schema that this program cannot work with.
    WrongSchema,
    /// The database answered once and does not answer now.
    Lost,
    Up,
}

/// The right to one connection of the pool, until the permit is dropped.
struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    _counted: Present,
}

/// A statement, or a transaction, that keeps its result.
type Statement = BoxFuture<'static, Result<(), DbErr>>;
type StatementTask = JoinHandle<Result<(), DbErr>>;

pub struct Connection {
    runtime: Mutex<Option<OwnRuntime>>,
    tasks: Tasks,
    options: RouteOptions,
    pool: Mutex<ConnectionPool>,
    /// Statements of pools below this generation are waited for no longer.
    given_up: watch::Sender<u64>,
    contact: watch::Sender<Contact>,
    /// Becomes true when the first look at the database has ended, with success or without.
    pub has_looked: watch::Sender<bool>,
    /// Rung when there is reason to believe that the database is away.
    pub went_down: Notify,
    /// Rung when the knowledge of the store must be read again at once.
    pub refresh: Notify,
    timeout: Duration,
    counted: PoolMetrics,
    is_closed: AtomicBool,
    /// Limits the complaints about a full disk.
    complained: Mutex<Complaint>,
    last_failure: Mutex<Option<String>>,
    label: DatabaseLabel,
}

impl Connection {
    /// Makes a runtime, which outlives the threads that serve connections, and a pool that connects
    /// when it is first used.
    ///
    /// # Errors
    /// The driver cannot read the options, or the runtime cannot be started.
    pub async fn new(
        options: RouteOptions,
        statement_timeout: Duration,
        counted: PoolMetrics,
        label: DatabaseLabel,
    ) -> Result<Self, DbErr> {
        let runtime = OwnRuntime::start("odometer-store")?;
        let tasks = Tasks::new(runtime.handle().clone());
        let pool = ConnectionPool::open(&options, 0).await?;
        counted.set_max(pool.permits.available_permits());
        Ok(Self {
            runtime: Mutex::new(Some(runtime)),
            tasks,
            options,
            pool: Mutex::new(pool),
            given_up: watch::Sender::new(0),
            contact: watch::Sender::new(Contact::None),
            has_looked: watch::Sender::new(false),
            went_down: Notify::new(),
            refresh: Notify::new(),
            timeout: statement_timeout,
            counted,
            is_closed: AtomicBool::new(false),
            complained: Mutex::default(),
            last_failure: Mutex::default(),
            label,
        })
    }

    /// Returns what starts tasks that belong to the database, and not to a caller.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub fn label(&self) -> &DatabaseLabel {
        &self.label
    }

    /// Returns how many tasks are alive in the store's runtime and in the runtime of the pool in
    /// use. The closing of an earlier pool is a task of the store's runtime, for as long as it
    /// lasts.
    pub fn n_tasks(&self) -> usize {
        self.tasks.n_alive() + self.pool.lock().n_tasks()
    }

    pub fn contact(&self) -> Contact {
        *self.contact.borrow()
    }

    pub fn contact_changes(&self) -> watch::Receiver<Contact> {
        self.contact.subscribe()
    }

    pub fn set_contact(&self, contact: Contact) {
        self.contact.send_if_modified(|known| {
            let changed = *known != contact;
            *known = contact;
            changed
        });
    }

    /// Returns the cause of the last statement that failed, in a sentence, and forgets it. `None` if
    /// none failed since the last call.
    pub fn take_last_failure(&self) -> Option<String> {
        self.last_failure.lock().take()
    }

    /// Runs one statement, or one transaction, and waits for its end until `until`.
    ///
    /// # Errors
    /// How the statement failed. Cancelling the returned future does not cancel the statement.
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
        let result = Arc::new(Mutex::new(None));
        let (slot, operation) = (Arc::clone(&result), operation(pool.database.clone()));
        let statement = Box::pin(async move {
            *slot.lock() = Some(operation.await?);
            Ok(())
        });
        self.run_with_permit(until, pool, permit, statement).await?;
        let value = result.lock().take();
        value.ok_or_else(|| {
            StatementFailure::MayHaveCommitted(Cause::Broken("its task was stopped".to_owned()))
        })
    }

    /// Does what [`Self::run`] does, with a permit. It is boxed, so that it is compiled once, and
    /// not once for each statement.
    fn run_with_permit<'a>(
        self: &'a Arc<Self>,
        until: Instant,
        pool: ConnectionPool,
        permit: ConnectionPermit,
        statement: Statement,
    ) -> BoxFuture<'a, Result<(), StatementFailure>> {
        Box::pin(async move {
            let generation = pool.generation;
            let statement = async move {
                let outcome = statement.await;
                drop(permit);
                outcome
            };
            let mut task = pool.runtime.handle().spawn(statement.in_current_span());
            drop((pool.runtime, pool.database));
            let sent = Instant::now();
            let timeout_left = until.saturating_duration_since(sent).min(self.timeout);
            let failure = match self.outcome(&mut task, timeout_left, generation).await {
                Some(Ok(Ok(()))) => return Ok(()),
                Some(Ok(Err(error))) => StatementFailure::from(error),
                Some(Err(_stopped)) => StatementFailure::MayHaveCommitted(Cause::Broken(
                    "its task was stopped".to_owned(),
                )),
                None => {
                    let silent_at = (sent + self.timeout).max(pool.connects_until);
                    self.watch_silent(task, silent_at, generation);
                    StatementFailure::MayHaveCommitted(Cause::Silent)
                }
            };
            self.learn_from(&failure, generation);
            Err(failure)
        })
    }

    /// Waits for a statement's end. Returns `None` if the statement is not waited for any longer.
    async fn outcome(
        &self,
        task: &mut StatementTask,
        timeout_left: Duration,
        generation: u64,
    ) -> Option<Result<Result<(), DbErr>, JoinError>> {
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

    /// Waits for a permit of the pool. If the pool is replaced meanwhile, waits on its successor.
    /// It is boxed, so that it is compiled once.
    fn permit(
        &self,
        until: Instant,
    ) -> BoxFuture<'_, Result<(ConnectionPool, ConnectionPermit), StatementFailure>> {
        Box::pin(async move {
            let pending = Present::of(&self.counted.pending);
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
                            _counted: Present::of(&self.counted.active),
                        };
                        return Ok((pool, permit));
                    }
                    Ok(Err(_replaced)) if !self.is_closed.load(Ordering::Acquire) => {}
                    Ok(Err(_)) | Err(_) => return Err(StatementFailure::NotCommitted(Cause::Busy)),
                }
            }
        })
    }

    /// Watches a statement that no caller waits for any more. If the statement is silent at
    /// `silent_at`, its pool is replaced. That is after `store.timeout` in all, and after the time
    /// for making its connection. A new pool would only make the connection once more.
    fn watch_silent(self: &Arc<Self>, task: StatementTask, silent_at: Instant, generation: u64) {
        let connection = Arc::clone(self);
        self.tasks.spawn(async move {
            if timeout_at(silent_at.into(), task).await.is_err() {
                connection.replace_pool(generation, "a statement got no reply");
            }
        });
    }

    /// Replaces the pool that is in use now, and returns the pool's generation.
    pub fn renew(&self) -> u64 {
        let generation = self.pool.lock().generation;
        self.replace_pool(generation, "the database does not answer as it should");
        generation
    }

    /// Replaces the pool after an outage. Statements on the old pool are waited for only
    /// `LAST_TIMEOUT` longer, so that no caller stays behind a connection that will never answer.
    pub fn renew_after_outage(self: &Arc<Self>) {
        let generation = self.renew();
        if self.pool.lock().generation == generation {
            // No pool took its place.
            return;
        }
        let connection = Arc::clone(self);
        self.tasks.spawn(async move {
            sleep(LAST_TIMEOUT).await;
            connection
                .given_up
                .send_modify(|below| *below = generation.saturating_add(1).max(*below));
        });
    }

    fn learn_from(&self, failure: &StatementFailure, generation: u64) {
        *self.last_failure.lock() = Some(failure.cause().text().to_owned());
        if generation != self.pool.lock().generation {
            return;
        }
        if failure.is_away() {
            if self.contact() == Contact::Up {
                tracing::error!(
                    target: TARGET,
                    error = failure.cause().text(),
                    "{}: the database is away; numbers in memory are still issued",
                    self.label
                );
                self.set_contact(Contact::Lost);
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

    /// Replaces the pool. What broke one connection broke the others too, so all are replaced at
    /// once.
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
        // A caller that waits for a permit of the old pool waits on the new one.
        old.permits.close();
        let timeout_left = self.timeout + LAST_TIMEOUT;
        self.tasks.spawn(async move {
            // Statements under way may end. After this time all callers have given up a statement
            // that is still silent. It ends with its runtime.
            let _ended = timeout(timeout_left, old.database.clone().close()).await;
            drop(old);
        });
    }

    /// Ends the runtime, and waits for nothing.
    pub fn abandon(&self) {
        self.is_closed.store(true, Ordering::Release);
        drop(self.runtime.lock().take());
    }

    /// Closes the pool and ends the runtime. Waits at most `timeout_left` for statements in flight,
    /// and for the tasks of the runtime, but then not longer than `LAST_TIMEOUT`. Such a task may keep
    /// what others wait for, such as the lock of a file.
    pub async fn close(&self, timeout_left: Duration) {
        let until = Instant::now() + timeout_left;
        self.is_closed.store(true, Ordering::Release);
        let database = self.pool.lock().database.clone();
        let closing = self.tasks.spawn(async move { database.close().await });
        if timeout(timeout_left, closing).await.is_err() {
            tracing::warn!(target: TARGET, "statements were still in flight when the pool was closed");
        }
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            let left = until.saturating_duration_since(Instant::now());
            runtime.end(left.min(LAST_TIMEOUT)).await;
        }
    }
}
