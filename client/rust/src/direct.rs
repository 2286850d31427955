//! Calls of callers without a buffer: each of them waits for a reply of its own.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use odometer_core::name::SequenceName;
use ureq::http::Method;

use crate::{
    backoff,
    definition::Paths,
    engine::{Engine, Shared},
    error::Error,
    hooks::DropCause,
    numbers_call::NumbersCall,
    reply::{one_of, range_of},
    stock::Stock,
    transport::Call,
    waiter::{Outcome, Waiter},
};

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirectRequest {
    One,
    /// An unbroken range of so many numbers.
    Range(u64),
}

/// Makes calls for one sequence in a thread of the client.
pub(crate) struct DirectCalls {
    pub(crate) name: SequenceName,
    pub(crate) paths: Paths,
    pub(crate) shared: Arc<Shared>,
    pub(crate) engine: Arc<Engine>,
    /// Remembers the last failure.
    pub(crate) stock: Arc<Stock>,
}

impl DirectCalls {
    /// Makes a call again and again, as long as that may help and somebody waits for it.
    pub(crate) fn serve(&self, request: DirectRequest, until: Instant, waiter: &Waiter) {
        let (name, hooks) = (self.name.as_str(), &self.shared.hooks);
        let mut n_failures = 0_u32;
        while !waiter.is_settled() {
            let n_forgets = self.shared.n_forgets();
            let call = NumbersCall::begin(name, hooks);
            let asked = call.run(|traceparent| self.ask(request, until, traceparent));
            self.stock.note_call(asked.as_ref().err());
            let (pause, ended) = match asked {
                Ok((endpoint, outcome)) => {
                    let ended = call.end(&endpoint, "ok", outcome.count());
                    self.give(outcome, n_forgets, waiter);
                    (Duration::ZERO, Some(ended))
                }
                Err(error) => {
                    n_failures = n_failures.saturating_add(1);
                    let ended = call.fail(&error);
                    (self.fail(error, n_failures, until, waiter), ended)
                }
            };
            if let Some(ended) = ended {
                ended.tell(name, hooks);
            }
            thread::sleep(pause);
        }
    }

    /// Gives the caller what came, unless the program was told to forget during the call: then a
    /// copy of this process may have the same reply.
    fn give(&self, outcome: Outcome, n_forgets: u64, waiter: &Waiter) {
        let count = outcome.count();
        let cause = if n_forgets != self.shared.n_forgets() {
            DropCause::Forget
        } else if waiter.settle(outcome) {
            return waiter.wake();
        } else {
            DropCause::Late
        };
        self.shared.hooks.dropped(self.name.as_str(), count, cause);
    }

    /// Returns how long to wait for the next call. If none can help, the caller is told.
    fn fail(&self, error: Error, n_failures: u32, until: Instant, waiter: &Waiter) -> Duration {
        let is_sole = self.engine.service.endpoints.is_sole();
        let retry_after = error.retry_after().filter(|_| is_sole);
        let pause = backoff::pause(n_failures, retry_after, self.shared.settings.uniform);
        let is_retryable = error.is_retryable();
        if is_retryable && pause < time_left(until) {
            return pause;
        }
        let told = if is_retryable {
            Error::DeadlinePassed {
                sequence: self.name.clone(),
                last: Some(Arc::new(error)),
            }
        } else {
            error
        };
        waiter.settle(Outcome::Failed(told));
        waiter.wake();
        Duration::ZERO
    }

    /// Makes one call. Returns who answered, and what came.
    fn ask(
        &self,
        request: DirectRequest,
        until: Instant,
        traceparent: &str,
    ) -> Result<(Arc<str>, Outcome), Error> {
        let path = match request {
            DirectRequest::One => self.paths.one(),
            DirectRequest::Range(count) => self.paths.unbroken(count),
        };
        let timeout = self.shared.settings.refill_timeout.min(time_left(until));
        let call = Call {
            traceparent: Some(traceparent),
            ..Call::new(Method::POST, &path, timeout)
        };
        self.engine.service.ask(&call, |answer| {
            let outcome = match request {
                DirectRequest::One => Outcome::Number(one_of(&answer)?),
                DirectRequest::Range(count) => Outcome::Range(range_of(&answer, count)?),
            };
            Ok((answer.endpoint, outcome))
        })
    }
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
