//! Defines what is logged under a name of its own. Some targets are logged at any level. The spans
//! are there to find all lines of one call.

#[cfg(feature = "otlp")]
use opentelemetry::{
    Value,
    trace::{SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
#[cfg(feature = "otlp")]
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Names the target of what is logged at any level.
pub const ALWAYS: &str = "odometer::always";
/// Names the target of one line for each change, logged at any level too.
pub const AUDIT: &str = "odometer::audit";

/// The place of a span in a trace.
#[cfg(feature = "otlp")]
pub struct InTrace {
    /// The id of the trace in hexadecimal. `span` is in hexadecimal, too.
    pub trace: String,
    pub span: String,
    pub is_sampled: bool,
}

/// Makes the span of one call. Its fields are on each line that is logged during the call.
///
/// The span is there at any level, so that every line that is logged can be found by these fields.
pub fn call(request_id: &str) -> Span {
    tracing::error_span!(target: ALWAYS, "call", request_id, trace_id = tracing::field::Empty)
}

/// Notes which trace a call is part of.
pub fn note_trace(call: &Span, trace_id: &str) {
    call.record("trace_id", trace_id);
}

/// Returns the span of a reservation for this call. It is the call's own span, because this build
/// exports no spans.
#[cfg(not(feature = "otlp"))]
pub fn reservation(call: Span, _sequence: &str, _period: Option<&str>) -> Span {
    call
}

/// Makes the span of a reservation for this call.
#[cfg(feature = "otlp")]
pub fn reservation(call: Span, sequence: &str, period: Option<&str>) -> Span {
    let span = tracing::error_span!(target: ALWAYS, parent: &call, "reserve");
    note(&span, "odometer.sequence", sequence.to_owned());
    if let Some(period) = period {
        note(&span, "odometer.period", period.to_owned());
    }
    span
}

/// Notes how a reservation ended, and after how many attempts.
#[cfg(feature = "otlp")]
pub fn note_reserved(span: &Span, outcome: &'static str, error: Option<&str>, attempts: u32) {
    note(span, "odometer.outcome", outcome);
    note(span, "odometer.attempts", i64::from(attempts));
    if let Some(error) = error {
        note_failure(span, error.to_owned());
    }
}

/// Puts a span into its caller's trace, or into a new trace. Returns `None` if nothing is exported.
///
/// The caller's ids have their full length, in hexadecimal, and are not zero.
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

/// Notes a value about a span.
#[cfg(feature = "otlp")]
pub fn note(span: &Span, key: &'static str, value: impl Into<Value>) {
    span.set_attribute(key, value);
}

/// Notes that a span failed, and why.
#[cfg(feature = "otlp")]
pub fn note_failure(span: &Span, why: String) {
    span.set_status(Status::error(why));
}
