//! Callers who found nothing, and wait as tasks of any runtime.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use odometer_core::block::Block;

use crate::{buffer::Item, error::Error, panics::survive};

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

/// A caller who waits. It is settled once, or gives up.
#[derive(Default)]
pub(crate) struct Waiter(Mutex<WaiterState>);

#[derive(Default)]
struct WaiterState {
    is_settled: bool,
    /// How the wait ended, until the caller has taken it.
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Outcome {
    /// Returns how many numbers the caller got.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Number(_) => 1,
            Self::Range(range) => range.count(),
            Self::Ready | Self::Failed(_) => 0,
        }
    }
}

impl Waiter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Ends the wait. The caller sleeps until [`wake`](Self::wake).
    ///
    /// Returns false if the wait has ended already. Then nothing changes.
    pub(crate) fn settle(&self, outcome: Outcome) -> bool {
        self.end(Some(outcome))
    }

    /// Ends the wait without an outcome. Returns false if it has ended already.
    pub(crate) fn give_up(&self) -> bool {
        self.end(None)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    /// Wakes the caller, who then looks at the outcome and at the time.
    ///
    /// It runs code of the program, so no lock may be held. A panic there harms nobody else.
    pub(crate) fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            survive("a waker of the program", || waker.wake());
        }
    }

    /// Returns how the wait ended, once.
    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        self.lock().outcome.take()
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

    fn end(&self, outcome: Option<Outcome>) -> bool {
        let mut state = self.lock();
        if state.is_settled {
            return false;
        }
        state.is_settled = true;
        state.outcome = outcome;
        true
    }

    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
