//! Calls of callers without a buffer: each of them waits for a reply of its own.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use odometer_core::{block::Block, name::SequenceName};
use ureq::http::Method;

use crate::{
    backoff,
    buffer::Item,
    definition::Paths,
    engine::Engine,
    error::Error,
    hooks::{self, RefillReport, SafeHooks},
    reply::{one_of, range_of},
    service::Answer,
    settings::Settings,
    transport::Call,
    waiter::Outcome,
};

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DirectRequest {
    One,
    /// An unbroken range of so many numbers.
    Range(u64),
}

/// Makes calls for one sequence in the thread of the caller.
pub(crate) struct DirectCalls {
    pub(crate) name: SequenceName,
    pub(crate) paths: Paths,
    pub(crate) hooks: SafeHooks,
    pub(crate) settings: Arc<Settings>,
    pub(crate) engine: Arc<Engine>,
}

impl DirectCalls {
    /// Gets one number, before this time.
    ///
    /// # Errors
    /// The errors of a call, and [`Error::DeadlinePassed`].
    pub(crate) fn one(&self, until: Instant) -> Result<Item, Error> {
        one_of(&self.ask(&self.paths.one(), 1, until)?)
    }

    /// Gets an unbroken range, before this time.
    ///
    /// # Errors
    /// The errors of a call, and [`Error::DeadlinePassed`].
    pub(crate) fn range(&self, count: u64, until: Instant) -> Result<Block, Error> {
        range_of(&self.ask(&self.paths.unbroken(count), count, until)?, count)
    }

    /// Gets what is asked for, as the end of a wait.
    pub(crate) fn outcome(&self, request: DirectRequest, until: Instant) -> Outcome {
        let got = match request {
            DirectRequest::One => self.one(until).map(Outcome::Number),
            DirectRequest::Range(count) => self.range(count, until).map(Outcome::Range),
        };
        got.unwrap_or_else(Outcome::Failed)
    }

    /// Makes a call again and again, as long as that may help.
    fn ask(&self, path: &str, count: u64, until: Instant) -> Result<Answer, Error> {
        let mut n_failures = 0;
        loop {
            let error = match self.ask_once(path, count, until) {
                Ok(answer) => return Ok(answer),
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => error,
            };
            n_failures += 1;
            let is_sole = self.engine.service.endpoints.is_sole();
            let retry_after = error.retry_after().filter(|_| is_sole);
            let pause = backoff::pause(n_failures, retry_after, self.settings.uniform);
            let left = time_left(until);
            thread::sleep(pause.min(left));
            if pause >= left {
                return Err(Error::DeadlinePassed {
                    sequence: self.name.clone(),
                    last: Some(Arc::new(error)),
                });
            }
        }
    }

    fn ask_once(&self, path: &str, count: u64, until: Instant) -> Result<Answer, Error> {
        let began = Instant::now();
        let name = self.name.as_str();
        let span = hooks::refill_span(name);
        let _entered = span.enter();
        let traceparent = self.hooks.traceparent(name);
        span.record("traceparent", traceparent.as_str());
        let timeout = self.settings.refill_timeout.min(time_left(until));
        let call = Call::new(Method::POST, path, timeout);
        let answer = self.engine.service.ask(&Call {
            traceparent: Some(&traceparent),
            ..call
        });
        let (endpoint, outcome, count) = match &answer {
            Ok(answer) => (&*answer.endpoint, "ok", count),
            Err(error) => match error.endpoint() {
                Some(endpoint) => (endpoint, error.outcome(), 0),
                None => return answer,
            },
        };
        let report = RefillReport {
            sequence: name,
            endpoint,
            outcome,
            duration: began.elapsed(),
            count,
        };
        hooks::note_end(&span, &report);
        self.hooks.refill(&report);
        answer
    }
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
