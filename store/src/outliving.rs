//! Runs work in its caller's task, and lets the work outlive its caller.
//!
//! A call that writes must not stop half-way if its caller hangs up. A task of the database for
//! each call would be enough for that, but two more threads would have to wake for each call. So
//! the caller's own task runs the work, and only the rest of abandoned work gets a task.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::BoxFuture;
use odometer_database::tasks::Tasks;
use tracing::Instrument as _;

/// Work that goes on as a task if it is dropped before its end.
pub(crate) struct Outliving<T, U>
where
    T: Send + 'static,
    U: FnOnce(T) + Send + Unpin + 'static,
{
    work: Option<BoxFuture<'static, T>>,
    /// Gets the outcome if nobody waits for it any more.
    unheard: Option<U>,
    tasks: Tasks,
}

impl<T, U> Outliving<T, U>
where
    T: Send + 'static,
    U: FnOnce(T) + Send + Unpin + 'static,
{
    /// Prepares work that goes on in `tasks`. If nobody waits for its outcome any more, `unheard`
    /// gets the outcome.
    pub(crate) fn new(
        tasks: Tasks,
        work: impl Future<Output = T> + Send + 'static,
        unheard: U,
    ) -> Self {
        Self {
            work: Some(Box::pin(work.in_current_span())),
            unheard: Some(unheard),
            tasks,
        }
    }
}

impl<T, U> Future for Outliving<T, U>
where
    T: Send + 'static,
    U: FnOnce(T) + Send + Unpin + 'static,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        // The timers of the work must outlive the runtime of the caller.
        let _inside = this.tasks.enter();
        let Some(work) = &mut this.work else {
            return Poll::Pending;
        };
        let outcome = ready!(work.as_mut().poll(context));
        this.work = None;
        Poll::Ready(outcome)
    }
}

impl<T, U> Drop for Outliving<T, U>
where
    T: Send + 'static,
    U: FnOnce(T) + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        if let (Some(work), Some(unheard)) = (self.work.take(), self.unheard.take()) {
            self.tasks.spawn(async move { unheard(work.await) });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::{
        runtime::{Builder, Handle, Runtime},
        sync::oneshot,
    };

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn the_caller_runs_the_work_and_gets_its_outcome() {
        let (here, there) = (runtime(), runtime());
        let tasks = Tasks::new(there.handle().clone());
        let outcome = here.block_on(async {
            let caller = std::thread::current().id();
            let work = async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                std::thread::current().id() == caller
            };
            Outliving::new(tasks, work, drop).await
        });
        assert!(outcome);
    }

    #[test]
    fn abandoned_work_ends_although_the_runtime_of_its_caller_is_gone() {
        let (here, there) = (runtime(), runtime());
        let tasks = Tasks::new(there.handle().clone());
        let (unheard, hearing) = oneshot::channel();
        here.block_on(async {
            let work = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Handle::current().id()
            };
            let mut outliving = Outliving::new(tasks, work, |it| unheard.send(it).unwrap());
            assert!((&mut outliving).now_or_never().is_none());
        });
        drop(here);
        let ran_in = there.block_on(hearing).unwrap();
        assert_eq!(ran_in, there.handle().id());
    }
}
