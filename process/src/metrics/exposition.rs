//! What a scrape reads.

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
    /// The text of a scrape, Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Moves recorded durations into their buckets. Run every few seconds: between two runs each
    /// recorded duration takes memory.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

pub(crate) fn build_recorder() -> PrometheusRecorder {
    // Buckets have to be named: a histogram without them is exported as a summary. They are refused
    // only when there are none.
    let http = Matcher::Prefix("odometer_http_".into());
    PrometheusBuilder::new()
        .set_buckets(&RESERVATION_BUCKETS_S)
        .and_then(|builder| builder.set_buckets_for_metric(http, &HTTP_BUCKETS_S))
        .unwrap_or_default()
        .build_recorder()
}
