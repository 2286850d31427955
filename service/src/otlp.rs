//! Spans for a collector of OpenTelemetry, over HTTP; only in a build with the feature `otlp`.
//!
//! Whoever ends a span puts it into a queue with a bound and goes on. A thread of its own sends what
//! is there; what does not fit is dropped. So a collector that is slow or away costs spans, and no
//! call.

use std::time::Duration;

use opentelemetry::{
    KeyValue, Value,
    trace::{
        SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
        TracerProvider as _,
    },
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use crate::{host, telemetry::ALWAYS};

/// Spans that wait to be sent; more are dropped.
const QUEUE: usize = 2048;
/// Spans of one request to the collector.
const BATCH: usize = 512;
/// Between two requests, where fewer wait.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the collector may take for a request.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long what is left may take at the end.
const LAST: Duration = Duration::from_secs(2);

/// The way to a collector. Dropped, it sends what is left.
pub(crate) struct Export {
    provider: SdkTracerProvider,
}

/// Where a span stands: in which trace, and who it is there.
pub(crate) struct InTrace {
    /// In hexadecimal, as the span.
    pub(crate) trace: String,
    pub(crate) span: String,
    pub(crate) is_sampled: bool,
}

impl Export {
    /// To the collector at this URL; nothing is sent yet.
    ///
    /// # Errors
    /// A sentence for what cannot be a way to one.
    pub(crate) fn to(endpoint: &str) -> Result<Self, String> {
        let traces = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(traces)
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| format!("spans cannot be exported: {error}"))?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(PAUSE)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(config)
            .build();
        let resource = Resource::builder_empty()
            .with_service_name("odometer")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", host::process()))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_resource(resource)
            // What a caller does not keep is not kept here either.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .build();
        Ok(Self { provider })
    }

    /// What turns the spans of calls and reservations into spans of a trace.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("odometer"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(|about| {
                about.is_span() && about.target() == ALWAYS
            }))
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Where the collector is away, there is nobody to tell.
        let _lost = self.provider.shutdown_with_timeout(LAST);
    }
}

/// Puts a span into its caller's trace, or into a new one; `None` where nothing is exported.
///
/// The caller's ids are of the length that they have, in hexadecimal, and not zero.
pub(crate) fn place(span: &Span, caller: Option<(&str, &str, bool)>) -> Option<InTrace> {
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
pub(crate) fn note(span: &Span, key: &'static str, value: impl Into<Value>) {
    span.set_attribute(key, value);
}

/// Notes that it failed.
pub(crate) fn note_failure(span: &Span, why: String) {
    span.set_status(Status::error(why));
}
