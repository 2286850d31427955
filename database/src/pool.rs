//! Opens pools of connections. Each pool has a runtime of its own, and ends with this runtime.

use std::{
    future::{Future, poll_fn},
    num::NonZero,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use sea_orm::{ConnectionTrait, DbBackend, DbErr};
use tokio::{
    runtime::{Handle, Runtime},
    sync::Semaphore,
    task::spawn_blocking,
    time::timeout,
};

use crate::{route::RouteOptions, session::DatabaseConnection};

/// Bounds how many threads a pool's connections, or a store's tasks, run on.
const MAX_THREADS: usize = 2;
/// Bounds how long the connections of a new pool may be on their way, even if `pool.acquire` is
/// longer.
const LONGEST_CONNECTING: Duration = Duration::from_secs(10);
/// Names the threads of a pool.
const THREAD_NAME: &str = "odometer-pool";
/// Bounds the time for closing a connection that was used once.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct ConnectionPool {
    pub generation: u64,
    /// Whether the pool was opened for the way through a pooler.
    pub is_pooled: bool,
    pub database: DatabaseConnection,
    /// One permit for each connection, handed out in the order of asking. So the wait for a permit
    /// is never taken for a database that is away.
    pub permits: Arc<Semaphore>,
    pub runtime: Arc<OwnRuntime>,
    /// Until this time, a statement may be silent because its connection is being made.
    pub connects_until: Instant,
}

/// A runtime of one pool, or of one database. It also ends when it is dropped, and then is not
/// waited for.
///
/// All that belongs to a pool runs in the pool's runtime, even what the driver does on its own when
/// it takes a connection back. When the runtime ends, every connection ends, also a silent one.
pub struct OwnRuntime {
    handle: Handle,
    /// `None` once this value is being dropped.
    runtime: Option<Runtime>,
}

/// Returns how many threads do the work of a pool or of a store. More threads than cores would only
/// hand the work to each other.
fn n_threads() -> usize {
    let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
    n_cores.min(MAX_THREADS)
}

impl OwnRuntime {
    /// Starts a runtime whose threads have this name.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub(crate) fn start(thread_name: &str) -> Result<Self, DbErr> {
        let started = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(n_threads())
            .thread_name(thread_name)
            .enable_all()
            .build();
        let runtime = started.map_err(|error| DbErr::Custom(error.to_string()))?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the runtime, and waits at most `time_limit` until no task of it is left.
    pub(crate) async fn end(mut self, time_limit: Duration) {
        if let Some(runtime) = self.runtime.take() {
            let ending = spawn_blocking(move || runtime.shutdown_timeout(time_limit));
            // The wait fails only if the caller's own runtime ends.
            let _ended = ending.await;
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ConnectionPool {
    /// Opens a pool that connects when it is first used.
    ///
    /// # Errors
    /// The driver cannot read the options, or a SQLite file cannot be opened.
    pub async fn open(doors: &RouteOptions, generation: u64) -> Result<Self, DbErr> {
        let (options, is_pooled) = doors.current();
        let runtime = OwnRuntime::start(THREAD_NAME)?;
        let longest = Some(doors.longest);
        let opening = DatabaseConnection::open(options.clone(), is_pooled, longest);
        let mut opening = Box::pin(opening);
        // The driver starts its own tasks in the runtime that it is called in.
        let opened = poll_fn(|context| {
            let _inside = runtime.handle().enter();
            opening.as_mut().poll(context)
        });
        let database = opened.await?;
        let n_connections = options.get_max_connections().unwrap_or(1);
        let n_permits = usize::try_from(n_connections).unwrap_or(usize::MAX >> 4);
        let connecting = options.get_acquire_timeout().unwrap_or_default();
        let connecting = connecting.min(LONGEST_CONNECTING);
        Ok(Self {
            generation,
            is_pooled,
            database,
            permits: Arc::new(Semaphore::new(n_permits)),
            runtime: Arc::new(runtime),
            connects_until: Instant::now() + connecting,
        })
    }

    /// Opens a pool like [`ConnectionPool::open`], but only for a server, and without waiting for
    /// anything.
    pub fn open_at_once(doors: &RouteOptions, generation: u64) -> Result<Self, DbErr> {
        let opened = Self::open(doors, generation).now_or_never();
        opened.unwrap_or_else(|| Err(DbErr::Custom("the driver waits".to_owned())))
    }

    /// Returns whether the connections lead to a server. Such connections can be dead without a
    /// sign.
    pub fn is_of_a_server(&self) -> bool {
        self.database.get_database_backend() != DbBackend::Sqlite
    }

    /// Returns how many tasks are alive in the pool's runtime.
    pub fn n_tasks(&self) -> usize {
        self.runtime.handle().metrics().num_alive_tasks()
    }
}

/// Runs one operation on a connection of its own, for at most `time_limit`. Returns `None` if the
/// operation took longer. Nothing of the operation is left afterwards.
///
/// # Errors
/// The failure of the operation.
pub async fn once<T, F, Fut>(
    doors: &RouteOptions,
    time_limit: Duration,
    operation: F,
) -> Result<Option<T>, DbErr>
where
    T: Send + 'static,
    F: FnOnce(DatabaseConnection) -> Fut,
    Fut: Future<Output = Result<T, DbErr>> + Send + 'static,
{
    let pool = ConnectionPool::open(doors, 0).await?;
    let task = pool
        .runtime
        .handle()
        .spawn(operation(pool.database.clone()));
    match timeout(time_limit, task).await {
        Ok(Ok(outcome)) => {
            // Closed, so that the server need not find out by itself.
            let _in_time = timeout(CLOSE_TIMEOUT, pool.database.clone().close()).await;
            outcome.map(Some)
        }
        Ok(Err(stopped)) => Err(DbErr::Custom(stopped.to_string())),
        Err(_) => Ok(None),
    }
}
