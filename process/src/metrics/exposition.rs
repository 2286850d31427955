//! Renders what a scrape reads.

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::declared::{HTTP_BUCKETS_S, RESERVATION_BUCKETS_S};

/// The Prometheus text of a `Metrics`.
#[derive(Clone, Debug)]
pub struct Exposition {
    pub(crate) handle: PrometheusHandle,
}

impl Exposition {
    /// Returns the text of a scrape, in Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Moves recorded durations into their buckets. Run this every few seconds, because each
    /// recorded duration takes memory until the next run.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

pub(crate) fn build_recorder() -> PrometheusRecorder {
    // Buckets must be named: a histogram without buckets is exported as a summary. The builder
    // refuses buckets only if there are none.
    let http = Matcher::Prefix("odometer_http_".into());
    PrometheusBuilder::new()
        .set_buckets(&RESERVATION_BUCKETS_S)
        .and_then(|builder| builder.set_buckets_for_metric(http, &HTTP_BUCKETS_S))
        .unwrap_or_default()
        .build_recorder()
}
