//! Lets a thread wait for a task.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

/// After this time a thread looks at its task again. Nothing wakes it at its deadline in a forked
/// child that can start no thread.
const MAX_PARK: Duration = Duration::from_millis(100);

/// Wakes a thread that is parked.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a task in this thread, which sleeps while the task waits.
pub(crate) fn block_on<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    // Most callers find a number at once, and need no waker.
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(output) = task.as_mut().poll(&mut context) {
        return output;
    }
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = task.as_mut().poll(&mut context) {
            return output;
        }
        thread::park_timeout(MAX_PARK);
    }
}
