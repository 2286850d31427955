//! Wakes the tasks that wait for a number at their deadlines.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{error::Error, threads::Threads, waiter::Waiter};

/// How long the thread waits for another deadline. While a thread starts or ends, a fork may harm
/// the child.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// A deadline that was set. The second part tells two of one time apart.
pub(crate) type TimerKey = (Instant, u64);

/// The deadlines of one client in one process. A thread watches them while there are any.
#[derive(Default)]
pub(crate) struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimerState {
    deadlines: BTreeMap<TimerKey, Arc<Waiter>>,
    n_set: u64,
    is_watched: bool,
}

impl Timer {
    /// Wakes the task of a waiter at this time, unless it is [cancelled](Self::cancel).
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn wake_at(
        self: &Arc<Self>,
        at: Instant,
        waiter: &Arc<Waiter>,
        threads: &Threads,
    ) -> Result<TimerKey, Error> {
        let mut state = self.lock();
        if !state.is_watched {
            let timer = Arc::clone(self);
            threads.start(Box::new(move || timer.watch()))?;
            state.is_watched = true;
        }
        state.n_set += 1;
        let key = (at, state.n_set);
        state.deadlines.insert(key, Arc::clone(waiter));
        self.changed.notify_one();
        Ok(key)
    }

    /// Takes a deadline out.
    pub(crate) fn cancel(&self, key: TimerKey) {
        self.lock().deadlines.remove(&key);
    }

    #[cfg(test)]
    pub(crate) fn n_deadlines(&self) -> usize {
        self.lock().deadlines.len()
    }

    /// Wakes waiters until there was none for some time.
    fn watch(&self) {
        let mut state = self.lock();
        let mut idle_until = None;
        loop {
            let now = Instant::now();
            let due = state.take_due(now);
            if !due.is_empty() {
                // A waker is code of the program, which may call again.
                drop(state);
                for waiter in due {
                    waiter.wake();
                }
                state = self.lock();
                continue;
            }
            let next = state.deadlines.keys().next().map(|(at, _)| *at);
            if next.is_some() {
                idle_until = None;
            }
            let until = next.unwrap_or_else(|| *idle_until.get_or_insert(now + MAX_IDLE));
            if now >= until {
                state.is_watched = false;
                return;
            }
            let left = until.saturating_duration_since(now);
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimerState {
    /// Takes out the waiters whose deadline has come.
    fn take_due(&mut self, now: Instant) -> Vec<Arc<Waiter>> {
        let later = self.deadlines.split_off(&(now, u64::MAX));
        let due = mem::replace(&mut self.deadlines, later);
        due.into_values().collect()
    }
}
