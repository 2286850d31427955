//! Calls of callers without a buffer: each of them waits for a reply of its own.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    backoff,
    error::Error,
    hooks::DropCause,
    reply::{one_of, range_of},
    sequence_calls::SequenceCalls,
    waiter::{Outcome, Waiter},
};

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirectRequest {
    One,
    /// An unbroken range of so many numbers.
    Range(u64),
}

/// Calls for one caller, in a thread of the client.
pub(crate) struct DirectCalls {
    pub(crate) calls: SequenceCalls,
    pub(crate) request: DirectRequest,
    pub(crate) until: Instant,
    pub(crate) waiter: Arc<Waiter>,
}

impl DirectCalls {
    /// Makes a call again and again, as long as that may help and somebody waits for it.
    pub(crate) fn serve(&self) {
        let calls = &self.calls;
        let mut n_failures = 0_u32;
        while !self.waiter.is_settled() {
            let n_forgets = calls.shared.n_forgets();
            let call = calls.begin();
            let asked = call.run(|traceparent| self.ask(traceparent));
            calls.stock.note_call(asked.as_ref().err());
            let (pause, ended) = match asked {
                Ok((endpoint, outcome)) => {
                    let ended = call.end(&endpoint, "ok", outcome.count());
                    self.give(outcome, n_forgets);
                    (Duration::ZERO, Some(ended))
                }
                Err(error) => {
                    n_failures = n_failures.saturating_add(1);
                    let ended = call.fail(&error);
                    (self.fail(error, n_failures), ended)
                }
            };
            if let Some(ended) = ended {
                calls.report(&ended);
            }
            thread::sleep(pause);
        }
    }

    /// Makes one call. Returns who answered, and what came.
    fn ask(&self, traceparent: &str) -> Result<(Arc<str>, Outcome), Error> {
        let SequenceCalls { paths, shared, .. } = &self.calls;
        let path = match self.request {
            DirectRequest::One => paths.one(),
            DirectRequest::Range(count) => paths.unbroken(count),
        };
        let timeout = shared.settings.refill_timeout.min(self.time_left());
        self.calls.ask(&path, timeout, traceparent, |answer| {
            let outcome = match self.request {
                DirectRequest::One => Outcome::Number(one_of(&answer)?),
                DirectRequest::Range(count) => Outcome::Range(range_of(&answer, count)?),
            };
            Ok((answer.endpoint, outcome))
        })
    }

    /// Gives the caller what came, unless the program was told to forget during the call: then a
    /// copy of this process may have the same reply.
    fn give(&self, outcome: Outcome, n_forgets: u64) {
        let count = outcome.count();
        if n_forgets != self.calls.shared.n_forgets() {
            self.calls.report_dropped(count, DropCause::Forget);
        } else if self.waiter.settle(outcome) {
            self.waiter.wake();
        } else {
            self.calls.report_dropped(count, DropCause::Late);
        }
    }

    /// Returns how long to wait for the next call. If none can help, the caller is told.
    fn fail(&self, error: Error, n_failures: u32) -> Duration {
        let SequenceCalls { shared, engine, .. } = &self.calls;
        let is_sole = engine.service.endpoints.is_sole();
        let retry_after = error.retry_after().filter(|_| is_sole);
        let pause = backoff::pause(n_failures, retry_after, shared.settings.uniform);
        let is_retryable = error.is_retryable();
        if is_retryable && pause < self.time_left() {
            return pause;
        }
        let told = if is_retryable {
            Error::DeadlinePassed {
                sequence: self.calls.name.clone(),
                last: Some(Arc::new(error)),
            }
        } else {
            error
        };
        self.waiter.settle(Outcome::Failed(told));
        self.waiter.wake();
        Duration::ZERO
    }

    fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}
