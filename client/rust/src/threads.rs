//! The threads of a client: they make its calls, and end if there is nothing to do.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::error::Error;

/// Bounds the threads that take jobs in turn. Jobs beyond it wait until a thread is free.
pub(crate) const MAX_THREADS: usize = 256;
/// How long a thread waits for its next job.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// What a thread does. If it is dropped without being called, no thread could be had for it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// How a thread is had from the system. Tests give their own.
pub(crate) type Spawn = fn(Job) -> io::Result<()>;

/// The threads of one client in one process.
pub(crate) struct Threads {
    spawn: Spawn,
    state: Mutex<ThreadState>,
    changed: Condvar,
}

#[derive(Default)]
struct ThreadState {
    jobs: VecDeque<Job>,
    n_threads: usize,
    /// How many of the threads wait for a job.
    n_idle: usize,
}

/// Counts a thread until it ends, however it ends.
struct CountedThread<'a>(&'a Threads);

/// Runs a job in a new thread.
///
/// # Errors
/// The system gives no thread. The job was dropped.
pub(crate) fn spawn(job: Job) -> io::Result<()> {
    let builder = thread::Builder::new().name("odometer-client".to_owned());
    builder.spawn(job).map(drop)
}

impl Threads {
    pub(crate) fn new(spawn: Spawn) -> Self {
        Self {
            spawn,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Runs a job in an idle thread, or in a new one.
    ///
    /// # Errors
    /// The system gives no thread. The job was dropped.
    pub(crate) fn run(self: &Arc<Self>, job: Job) -> Result<(), Error> {
        let mut state = self.lock();
        if state.n_idle > state.jobs.len() || state.n_threads >= MAX_THREADS {
            state.jobs.push_back(job);
            self.changed.notify_one();
            return Ok(());
        }
        state.n_threads += 1;
        drop(state);
        let threads = Arc::clone(self);
        let started = self.start(Box::new(move || threads.work(job)));
        if started.is_err() {
            self.lock().n_threads -= 1;
        }
        started
    }

    /// Runs a job that may last as long as the client, in a thread of its own.
    ///
    /// # Errors
    /// The system gives no thread. The job was dropped.
    pub(crate) fn start(&self, job: Job) -> Result<(), Error> {
        (self.spawn)(job).map_err(|error| Error::no_thread(&error))
    }

    /// Does jobs until there is none for some time.
    fn work(&self, first: Job) {
        let _counted = CountedThread(self);
        first();
        while let Some(job) = self.next_job() {
            job();
        }
    }

    fn next_job(&self) -> Option<Job> {
        let until = Instant::now() + MAX_IDLE;
        let mut state = self.lock();
        state.n_idle += 1;
        loop {
            let job = state.jobs.pop_front();
            let left = until.saturating_duration_since(Instant::now());
            if job.is_some() || left.is_zero() {
                state.n_idle -= 1;
                return job;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedThread<'_> {
    fn drop(&mut self) {
        self.0.lock().n_threads -= 1;
    }
}
