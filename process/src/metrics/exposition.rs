//! Renders what a scrape reads.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use super::Metrics;

/// Sets the upper bounds of a reservation's buckets, in seconds: from a local SQLite write to the
/// deadline.
const RESERVATION_BUCKETS_S: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Sets the upper bounds of a request's buckets, in seconds: a warm number takes microseconds.
const HTTP_BUCKETS_S: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.1, 0.5, 1.0, 5.0, 10.0,
];

impl Metrics {
    /// Returns the text of a scrape, in Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        self.recorder.handle().render() + &self.token_expiries.render()
    }

    /// Moves recorded durations into their buckets. Run this every few seconds, because each
    /// recorded duration takes memory until the next run.
    pub fn upkeep(&self) {
        self.recorder.handle().run_upkeep();
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
