//! The wait of a task, on any runtime.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use crate::{
    engine::Shared,
    error::Error,
    fork,
    hooks::DropCause,
    stock::Stock,
    timer::TimerKey,
    waiter::{Outcome, Waiter},
};

/// How the wait of a task ended.
pub(crate) enum WaitEnd {
    Settled(Outcome),
    /// The deadline has passed.
    GaveUp,
    /// The process was forked. What the wait brings is the parent's.
    Forked,
}

/// A task that waits until its waiter is settled, or until its deadline.
pub(crate) struct Wait<'a> {
    waiter: Arc<Waiter>,
    until: Instant,
    /// Where the waiter stands in line. `None` if a thread of the client works for it.
    stock: Option<Arc<Stock>>,
    shared: &'a Shared,
    sequence: &'a str,
    n_forks: u64,
    timed: Option<TimerKey>,
    has_ended: bool,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(
        waiter: Arc<Waiter>,
        until: Instant,
        stock: Option<Arc<Stock>>,
        shared: &'a Shared,
        sequence: &'a str,
    ) -> Self {
        Self {
            waiter,
            until,
            stock,
            shared,
            sequence,
            n_forks: fork::n_forks(),
            timed: None,
            has_ended: false,
        }
    }

    /// Gives up, and leaves the line. Returns false if the waiter is settled already.
    fn give_up(&self) -> bool {
        match &self.stock {
            Some(stock) => stock.withdraw(&self.waiter),
            None => self.waiter.give_up(),
        }
    }

    fn end(&mut self, end: WaitEnd) -> Poll<Result<WaitEnd, Error>> {
        self.has_ended = true;
        Poll::Ready(Ok(end))
    }

    /// Ends a wait whose waiter is settled.
    fn end_settled(&mut self) -> Poll<Result<WaitEnd, Error>> {
        let outcome = self.waiter.take_outcome();
        self.end(WaitEnd::Settled(outcome.unwrap_or(Outcome::Ready)))
    }

    /// Has the task woken at its deadline.
    fn set_timer(&mut self) -> Result<(), Error> {
        if self.timed.is_none() {
            let set = self.shared.engine.with(|engine| {
                let (timer, threads) = (&engine.timer, &engine.threads);
                timer.wake_at(self.until, &self.waiter, threads)
            });
            self.timed = Some(set?);
        }
        Ok(())
    }

    /// Ends a wait that was cancelled. A number that it got is a gap.
    fn cancel(&self) {
        if self.give_up() {
            return;
        }
        let outcome = self.waiter.take_outcome();
        let count = outcome.map_or(0, |outcome| outcome.count());
        let hooks = &self.shared.hooks;
        hooks.dropped(self.sequence, count, DropCause::Late);
    }
}

impl Future for Wait<'_> {
    type Output = Result<WaitEnd, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let wait = self.get_mut();
        if wait.n_forks != fork::n_forks() {
            return wait.end(WaitEnd::Forked);
        }
        if wait.waiter.poll(context).is_ready() {
            return wait.end_settled();
        }
        if Instant::now() >= wait.until {
            return if wait.give_up() {
                wait.end(WaitEnd::GaveUp)
            } else {
                wait.end_settled()
            };
        }
        match wait.set_timer() {
            Ok(()) => Poll::Pending,
            // The drop takes the waiter out of the line.
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.n_forks != fork::n_forks() {
            return;
        }
        if let Some(key) = self.timed {
            self.shared.engine.with(|engine| engine.timer.cancel(key));
        }
        if !self.has_ended {
            self.cancel();
        }
    }
}
