//! Spans for a collector of OpenTelemetry, over HTTP; only in a build with the feature `otlp`.
//!
//! Whoever ends a span puts it into a queue with a bound and goes on. A thread of its own sends what
//! is there; what does not fit is dropped. So a collector that is slow or away costs spans, and no
//! call.

use std::time::Duration;

use odometer_process::{host, log::ALWAYS};
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

/// Spans that wait to be sent; more are dropped.
const QUEUE: usize = 2048;
/// Spans of one request to the collector.
const BATCH: usize = 512;
/// Between two requests, where fewer wait.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the collector may take for a request.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long what is left may take at the end.
const LAST: Duration = Duration::from_secs(2);

/// The way to a collector. Dropped, it sends what is left.
pub(crate) struct Export {
    provider: SdkTracerProvider,
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
            .with_timeout(TIMEOUT)
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
