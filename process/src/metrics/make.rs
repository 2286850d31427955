//! Registers metrics with a recorder. No other file does so.

use std::sync::OnceLock;

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    cause::AbandonedCause,
    connections::ConnectionsMetrics,
    declared::{COUNTERS, GAUGES, HISTOGRAMS},
    redis::RedisMetrics,
    route::{Route, RouteMetrics, STATUS_LABELS},
    sequence::SequenceMetrics,
};

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Registers metrics.
pub(crate) struct Make<'a>(pub(crate) &'a PrometheusRecorder);

impl Make<'_> {
    pub(crate) fn describe(&self) {
        for (name, description) in COUNTERS {
            self.0
                .describe_counter(name.into(), None, description.into());
        }
        for (name, description) in GAUGES {
            self.0.describe_gauge(name.into(), None, description.into());
        }
        for (name, description) in HISTOGRAMS {
            self.0
                .describe_histogram(name.into(), None, description.into());
        }
    }

    pub(crate) fn counter(&self, name: &'static str) -> Counter {
        self.labelled_counter(name, vec![])
    }

    pub(crate) fn labelled_counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        let key = Key::from_parts(name, labels);
        self.0.register_counter(&key, &METADATA)
    }

    pub(crate) fn gauge(&self, name: &'static str) -> Gauge {
        self.labelled_gauge(name, vec![])
    }

    /// Registers a gauge of a least value. It begins at +Inf, because the least of nothing is no
    /// alarm.
    pub(crate) fn unbounded_gauge(&self, name: &'static str) -> Gauge {
        let gauge = self.gauge(name);
        gauge.set(f64::INFINITY);
        gauge
    }

    pub(crate) fn labelled_gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        let key = Key::from_parts(name, labels);
        self.0.register_gauge(&key, &METADATA)
    }

    pub(crate) fn histogram(&self, name: &'static str) -> Histogram {
        self.labelled_histogram(name, vec![])
    }

    pub(crate) fn labelled_histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        let key = Key::from_parts(name, labels);
        self.0.register_histogram(&key, &METADATA)
    }

    pub(crate) fn build_info(&self) {
        self.labelled_gauge(
            "odometer_build_info",
            vec![Label::from_static_parts(
                "version",
                env!("CARGO_PKG_VERSION"),
            )],
        )
        .set(1.0);
    }

    pub(crate) fn reservations(&self, outcome: &'static str) -> Counter {
        self.labelled_counter(
            "odometer_reservations_total",
            vec![Label::from_static_parts("outcome", outcome)],
        )
    }

    pub(crate) fn abandoned(&self, cause: AbandonedCause) -> Counter {
        self.labelled_counter(
            "odometer_abandoned_numbers_total",
            vec![Label::from_static_parts("cause", cause.label())],
        )
    }

    pub(crate) fn connections(&self) -> ConnectionsMetrics {
        let cut = |cause| {
            let labels = vec![Label::from_static_parts("cause", cause)];
            self.labelled_counter("odometer_http_connections_cut_total", labels)
        };
        ConnectionsMetrics {
            open: self.gauge("odometer_http_connections"),
            max: self.gauge("odometer_http_connections_max"),
            cut_request: cut("request"),
            cut_reply: cut("reply"),
            cut_crowded: cut("crowded"),
            malformed: self.counter("odometer_http_malformed_total"),
        }
    }

    pub(crate) fn redis(&self) -> RedisMetrics {
        let windows = |cause| {
            let labels = vec![Label::from_static_parts("cause", cause)];
            self.labelled_counter("odometer_redis_windows_total", labels)
        };
        RedisMetrics {
            steps: self.counter("odometer_redis_steps_total"),
            step_duration: self.histogram("odometer_redis_step_duration_seconds"),
            windows_first: windows("first"),
            windows_lost: windows("lost"),
            windows_full: windows("full"),
            windows_closed: windows("closed"),
            fallbacks: self.counter("odometer_redis_fallbacks_total"),
            ceiling_seconds: self.unbounded_gauge("odometer_redis_ceiling_seconds"),
        }
    }

    pub(crate) fn issued(&self, name: &str) -> Counter {
        self.labelled_counter(
            "odometer_numbers_issued_total",
            vec![Label::new("sequence", name.to_owned())],
        )
    }

    pub(crate) fn sequence(&self, name: &str) -> SequenceMetrics {
        let gauge = |metric| {
            let labels = vec![Label::new("sequence", name.to_owned())];
            self.labelled_gauge(metric, labels)
        };
        let made = SequenceMetrics {
            issued: self.issued(name),
            block_size: gauge("odometer_block_size"),
            block_remaining: gauge("odometer_block_remaining"),
            block_utilization: gauge("odometer_block_utilization_ratio"),
            reserve_seconds: gauge("odometer_reserve_seconds"),
            runway_numbers: gauge("odometer_runway_numbers"),
            runway_seconds: gauge("odometer_runway_seconds"),
        };
        made.clear();
        made
    }

    pub(crate) fn route(&self, route: Route) -> RouteMetrics {
        let made = RouteMetrics {
            requests: [const { OnceLock::new() }; STATUS_LABELS.len()],
            duration: self.labelled_histogram(
                "odometer_http_request_duration_seconds",
                vec![Label::from_static_parts("route", route.label())],
            ),
        };
        // The commonest status is registered from the start, so that a first scrape shows each
        // route.
        let [ok, ..] = &made.requests;
        ok.get_or_init(|| self.requests(route, "200"));
        made
    }

    pub(crate) fn requests(&self, route: Route, status: &'static str) -> Counter {
        self.labelled_counter(
            "odometer_http_requests_total",
            vec![
                Label::from_static_parts("route", route.label()),
                Label::from_static_parts("status", status),
            ],
        )
    }
}
