//! Tells a program about the work of its client.

use std::{sync::Arc, time::Duration};

use crate::{panics::survive, random};

const HOOK: &str = "a hook of the program";

/// What a program may want to know. [`MetricsHooks`] is the default.
///
/// The methods are called in the thread that does the work, never while a lock is held. A panic in
/// them is logged, and harms nothing. A call for numbers is reported after its callers have the
/// numbers.
///
/// Do not fork in a hook: the child would go on inside a call of its parent.
pub trait Hooks: Send + Sync + 'static {
    /// Reports one call for numbers that has ended.
    fn refill(&self, _report: &RefillReport<'_>) {}

    /// Reports that a caller found nothing in memory, and waited this long.
    fn waited(&self, _sequence: &str, _waited: Duration) {}

    /// Reports numbers that are gaps now.
    fn dropped(&self, _sequence: &str, _count: u64, _cause: DropCause) {}

    /// Returns the `traceparent` header (W3C Trace Context) of a call for numbers.
    ///
    /// It is called inside the span `odometer.refill`. By default each call has a trace of its own,
    /// which is not sampled. If your subscriber has trace ids, return those of the current span.
    fn traceparent(&self, _sequence: &str) -> String {
        random::traceparent()
    }
}

/// One call for numbers. Calls of callers without a buffer are reported as well.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct RefillReport<'a> {
    /// The name of the sequence.
    pub sequence: &'a str,
    /// The address of the replica that was called.
    pub endpoint: &'a str,
    /// `ok`, `resized` (the size was refused, and a smaller one was given), `timeout`,
    /// `connection`, or the code of the service.
    pub outcome: &'a str,
    /// How long the call took.
    pub duration: Duration,
    /// How many numbers it brought: 0 unless it succeeded.
    pub count: u64,
}

/// Why numbers are gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DropCause {
    /// They were older than `max_age`.
    MaxAge,
    /// The program called `forget`.
    Forget,
    /// Nobody waited for them any more.
    Late,
}

impl DropCause {
    /// Returns a word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxAge => "max_age",
            Self::Forget => "forget",
            Self::Late => "late",
        }
    }
}

/// Reports by the crate `metrics`. If the program has no recorder, nothing happens.
///
/// - `odometer_client_refills_total`: calls for numbers, by `sequence`, `endpoint` and `outcome`.
/// - `odometer_client_refilled_numbers_total`: numbers that they brought, by `sequence`.
/// - `odometer_client_refill_seconds`: how long they took, by `sequence`.
/// - `odometer_client_wait_seconds`: how long callers waited, by `sequence`.
/// - `odometer_client_dropped_numbers_total`: numbers that are gaps, by `sequence` and `cause`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MetricsHooks;

impl Hooks for MetricsHooks {
    fn refill(&self, report: &RefillReport<'_>) {
        let sequence = report.sequence.to_owned();
        metrics::counter!(
            "odometer_client_refills_total",
            "sequence" => sequence.clone(),
            "endpoint" => report.endpoint.to_owned(),
            "outcome" => report.outcome.to_owned(),
        )
        .increment(1);
        metrics::counter!(
            "odometer_client_refilled_numbers_total",
            "sequence" => sequence.clone(),
        )
        .increment(report.count);
        metrics::histogram!("odometer_client_refill_seconds", "sequence" => sequence)
            .record(report.duration.as_secs_f64());
    }

    fn waited(&self, sequence: &str, waited: Duration) {
        metrics::histogram!("odometer_client_wait_seconds", "sequence" => sequence.to_owned())
            .record(waited.as_secs_f64());
    }

    fn dropped(&self, sequence: &str, count: u64, cause: DropCause) {
        metrics::counter!(
            "odometer_client_dropped_numbers_total",
            "sequence" => sequence.to_owned(),
            "cause" => cause.as_str(),
        )
        .increment(count);
    }
}

/// Calls the hooks of a program, and survives their panics.
#[derive(Clone)]
pub(crate) struct SafeHooks(Arc<dyn Hooks>);

impl SafeHooks {
    pub(crate) fn new(hooks: impl Hooks) -> Self {
        Self(Arc::new(hooks))
    }

    pub(crate) fn refill(&self, report: &RefillReport<'_>) {
        survive(HOOK, || self.0.refill(report));
    }

    pub(crate) fn waited(&self, sequence: &str, waited: Duration) {
        survive(HOOK, || self.0.waited(sequence, waited));
    }

    pub(crate) fn dropped(&self, sequence: &str, count: u64, cause: DropCause) {
        if count > 0 {
            survive(HOOK, || self.0.dropped(sequence, count, cause));
        }
    }

    /// Returns a header that can be sent, even if the program's hook has none.
    pub(crate) fn traceparent(&self, sequence: &str) -> String {
        let said = survive(HOOK, || self.0.traceparent(sequence));
        let is_visible = |said: &String| said.bytes().all(|byte| byte.is_ascii_graphic());
        said.filter(is_visible).unwrap_or_else(random::traceparent)
    }
}
