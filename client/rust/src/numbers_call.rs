//! One call for numbers, as traces and hooks see it.

use std::time::{Duration, Instant};

use tracing::{Span, field::Empty};

use crate::{
    error::Error,
    hooks::{RefillReport, SafeHooks},
    log::TARGET,
};

/// A call for numbers that is under way.
pub(crate) struct NumbersCall {
    span: Span,
    traceparent: String,
    began: Instant,
}

/// A call for numbers that has ended. The hooks are told about it after its caller has the numbers,
/// because a hook may be slow.
pub(crate) struct EndedCall {
    span: Span,
    endpoint: String,
    outcome: String,
    duration: Duration,
    count: u64,
}

impl NumbersCall {
    /// Begins a call, with a span and a `traceparent` of its own.
    pub(crate) fn begin(sequence: &str, hooks: &SafeHooks) -> Self {
        let span = tracing::info_span!(
            target: TARGET,
            "odometer.refill",
            sequence,
            traceparent = Empty,
            endpoint = Empty,
            outcome = Empty,
            count = Empty,
        );
        let traceparent = span.in_scope(|| hooks.traceparent(sequence));
        span.record("traceparent", traceparent.as_str());
        Self {
            span,
            traceparent,
            began: Instant::now(),
        }
    }

    /// Begins to read a definition. It brings no numbers, so only its failure is told.
    pub(crate) fn for_definition() -> Self {
        Self {
            span: Span::none(),
            traceparent: String::new(),
            began: Instant::now(),
        }
    }

    /// Makes the call, with its `traceparent`.
    pub(crate) fn run<T>(&self, call: impl FnOnce(&str) -> T) -> T {
        self.span.in_scope(|| call(&self.traceparent))
    }

    pub(crate) fn end(self, endpoint: &str, outcome: &str, count: u64) -> EndedCall {
        EndedCall {
            span: self.span,
            endpoint: endpoint.to_owned(),
            outcome: outcome.to_owned(),
            duration: self.began.elapsed(),
            count,
        }
    }

    /// Ends a call that failed. `None` if no replica was called.
    pub(crate) fn fail(self, error: &Error) -> Option<EndedCall> {
        let endpoint = error.endpoint()?;
        Some(self.end(endpoint, error.outcome(), 0))
    }
}

impl EndedCall {
    /// Notes in the span how the call ended, and tells the hooks.
    pub(crate) fn tell(&self, sequence: &str, hooks: &SafeHooks) {
        self.span.record("endpoint", self.endpoint.as_str());
        self.span.record("outcome", self.outcome.as_str());
        self.span.record("count", self.count);
        hooks.refill(&RefillReport {
            sequence,
            endpoint: &self.endpoint,
            outcome: &self.outcome,
            duration: self.duration,
            count: self.count,
        });
    }
}
