//! Sends spans to an OpenTelemetry collector over HTTP, only in a build with the feature `otlp`.
//!
//! A thread that ends a span puts the span into a bounded queue and goes on. A separate thread
//! sends the queued spans. If the queue is full, further spans are dropped. So a collector that is
//! slow or unreachable costs spans, but no call.

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

/// The most spans that wait to be sent. Further spans are dropped.
const QUEUE: usize = 2048;
/// The most spans in one request to the collector.
const BATCH: usize = 512;
/// The time between two requests, if less than a full batch waits.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the collector may take for a request.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long sending the remaining spans may take when the program ends.
const LAST: Duration = Duration::from_secs(2);

/// Exports spans to one collector. When it is dropped, it sends the spans that are left.
pub(crate) struct Export {
    provider: SdkTracerProvider,
}

impl Export {
    /// Prepares the export to the collector at the URL `endpoint`. Nothing is sent yet.
    ///
    /// # Errors
    /// A sentence that says why spans cannot be exported.
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
            // If a caller does not sample its trace, the trace is not sampled here either.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .build();
        Ok(Self { provider })
    }

    /// Returns the layer that turns the spans of calls and reservations into spans of a trace.
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
        // If the collector is unreachable, there is no other place to report the loss.
        let _lost = self.provider.shutdown_with_timeout(LAST);
    }
}
