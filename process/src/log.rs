//! What is logged under a name of its own: targets that are logged at any level, and the spans by
//! which the lines of one call are found.

#[cfg(feature = "otlp")]
use opentelemetry::{
    Value,
    trace::{SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
#[cfg(feature = "otlp")]
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The target of what is logged at any level.
pub const ALWAYS: &str = "odometer::always";
/// The target of one line for each change, logged at any level too.
pub const AUDIT: &str = "odometer::audit";

/// Where a span stands: in which trace, and who it is there.
#[cfg(feature = "otlp")]
pub struct InTrace {
    /// In hexadecimal, as the span.
    pub trace: String,
    pub span: String,
    pub is_sampled: bool,
}

/// The span of one call, whose names are on each line that is logged within.
///
/// It is there at any level: whatever is logged at all can be found by them.
pub fn call(request_id: &str) -> Span {
    tracing::error_span!(target: ALWAYS, "call", request_id, trace_id = tracing::field::Empty)
}

/// Notes which trace a call is part of.
pub fn note_trace(call: &Span, trace_id: &str) {
    call.record("trace_id", trace_id);
}

/// The span of a reservation for this call: the call's own where no spans are exported.
#[cfg(not(feature = "otlp"))]
pub fn reservation(call: Span, _sequence: &str, _period: Option<&str>) -> Span {
    call
}

/// The span of a reservation for this call.
#[cfg(feature = "otlp")]
pub fn reservation(call: Span, sequence: &str, period: Option<&str>) -> Span {
    let span = tracing::error_span!(target: ALWAYS, parent: &call, "reserve");
    note(&span, "odometer.sequence", sequence.to_owned());
    if let Some(period) = period {
        note(&span, "odometer.period", period.to_owned());
    }
    span
}

/// Notes how a reservation ended, after how many attempts.
#[cfg(feature = "otlp")]
pub fn note_reserved(span: &Span, outcome: &'static str, error: Option<&str>, attempts: u32) {
    note(span, "odometer.outcome", outcome);
    note(span, "odometer.attempts", i64::from(attempts));
    if let Some(error) = error {
        note_failure(span, error.to_owned());
    }
}

/// Puts a span into its caller's trace, or into a new one; `None` where nothing is exported.
///
/// The caller's ids are of the length that they have, in hexadecimal, and not zero.
#[cfg(feature = "otlp")]
pub fn place(span: &Span, caller: Option<(&str, &str, bool)>) -> Option<InTrace> {
    if let Some((trace, parent, is_sampled)) = caller {
        let flags = TraceFlags::default().with_sampled(is_sampled);
        let parent = SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(parent).ok()?,
            flags,
            true,
            TraceState::NONE,
        );
        let parent = opentelemetry::Context::new().with_remote_span_context(parent);
        span.set_parent(parent).ok()?;
    }
    let context = span.context();
    let own = context.span();
    let own = own.span_context();
    own.is_valid().then(|| InTrace {
        trace: own.trace_id().to_string(),
        span: own.span_id().to_string(),
        is_sampled: own.is_sampled(),
    })
}

/// Notes something about a span.
#[cfg(feature = "otlp")]
pub fn note(span: &Span, key: &'static str, value: impl Into<Value>) {
    span.set_attribute(key, value);
}

/// Notes that it failed.
#[cfg(feature = "otlp")]
pub fn note_failure(span: &Span, why: String) {
    span.set_status(Status::error(why));
}
