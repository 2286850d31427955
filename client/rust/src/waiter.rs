//! Callers who found nothing: threads that wait, and tasks of any runtime.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

use odometer_core::block::Block;

use crate::{buffer::Item, error::Error};

/// How a wait ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The caller got a number.
    Number(Item),
    /// The caller got an unbroken range.
    Range(Block),
    /// What the caller waited for is there, or there is no buffer to wait for.
    Ready,
    /// No number will come.
    Failed(Error),
}

/// A caller who waits. It is settled once.
#[derive(Default)]
pub(crate) struct Waiter {
    state: Mutex<WaiterState>,
    settled: Condvar,
}

#[derive(Default)]
struct WaiterState {
    is_settled: bool,
    /// How the wait ended, until the caller has taken it.
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Waiter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Ends the wait. The caller sleeps until [`wake`](Self::wake).
    ///
    /// A later call changes nothing.
    pub(crate) fn settle(&self, outcome: Outcome) {
        let mut state = self.lock();
        if !state.is_settled {
            state.is_settled = true;
            state.outcome = Some(outcome);
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    /// Wakes the caller, who then looks at the outcome and at the time.
    ///
    /// It runs code of the program, so no lock may be held.
    pub(crate) fn wake(&self) {
        let waker = self.lock().waker.take();
        self.settled.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns how the wait ended, once.
    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        self.lock().outcome.take()
    }

    /// Lets the thread wait until it is settled, or until this time.
    pub(crate) fn wait_until(&self, until: Instant) {
        let mut state = self.lock();
        while !state.is_settled {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.settled.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether it is settled. If not, the task is woken when it is, or by its deadline.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_settled {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
