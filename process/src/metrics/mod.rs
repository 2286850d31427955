//! Makes every metric of the program once, and hands the metrics out as handles.
//!
//! Each metric is declared once, in the file of its group. `declare.rs` alone registers metrics.
//! Each `Metrics` has recorders of its own. So nothing is global, and a test can hold several side
//! by side. Handles are cheap to use. Looking a metric up by name is not, so code that counts often
//! keeps the handle.

mod cause;
mod database;
mod declare;
mod exposition;
mod listener;
mod process;
mod redis;
mod resp;
mod route;
mod sequence;
#[cfg(test)]
mod tests;
mod token_expiries;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use ::metrics::{Counter, Gauge, Histogram, Label};
use metrics_exporter_prometheus::PrometheusRecorder;
use parking_lot::Mutex;

use declare::make;
use exposition::build_recorder;
use process::ProcessMetrics;
use route::RouteMetrics;
use token_expiries::TokenExpiries;

pub use cause::AbandonedCause;
pub use database::{DatabaseMetrics, PoolMetrics, Present};
pub use listener::ListenerMetrics;
pub use redis::RedisMetrics;
pub use resp::RespMetrics;
pub use route::Route;
pub use sequence::SequenceMetrics;

/// Bounds how many names get a label of their own, if the configuration does not say otherwise.
pub const SEQUENCE_LABELS: usize = 1000;

/// Labels the names beyond a bound. No sequence and no caller can have this name.
const OTHER: &str = "_other";

/// The handles of everything that the program counts. Those of the whole process are its fields.
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    process: ProcessMetrics,
    abandoned: [Counter; AbandonedCause::ALL.len()],
    http: [RouteMetrics; Route::ALL.len()],
    sequences: Mutex<HashMap<Box<str>, SequenceMetrics>>,
    sequence_labels: usize,
    beyond_labels: Counter,
    token_expiries: TokenExpiries,
}

impl Deref for Metrics {
    type Target = ProcessMetrics;

    #[inline]
    fn deref(&self) -> &ProcessMetrics {
        &self.process
    }
}

impl Metrics {
    /// Returns the handles of one database. There are as many labels as the configuration has
    /// databases.
    pub fn database(&self, store: &str, database: u16) -> DatabaseMetrics {
        let labels = [
            Label::new("store", store.to_owned()),
            Label::new("database", database.to_string()),
        ];
        DatabaseMetrics::make(&*self.recorder, &labels)
    }

    /// Makes the handles, with labels for the first `SEQUENCE_LABELS` names.
    pub fn new() -> Self {
        Self::with_sequence_labels(SEQUENCE_LABELS)
    }

    /// Makes the handles, with labels for the first `sequence_labels` names that this process
    /// meets.
    pub fn with_sequence_labels(sequence_labels: usize) -> Self {
        let recorder = Arc::new(build_recorder());
        Self {
            process: ProcessMetrics::make(&*recorder, &[]).with_nothing_in_use(),
            abandoned: AbandonedCause::ALL.map(|cause| {
                make(
                    &*recorder,
                    "odometer_abandoned_numbers_total",
                    &["Numbers reserved that will neither be issued nor returned, by cause."],
                    &[Label::new("cause", cause.word())],
                )
            }),
            http: Route::ALL.map(|route| RouteMetrics::make(&*recorder, route)),
            sequences: Mutex::new(HashMap::new()),
            sequence_labels,
            beyond_labels: make(
                &*recorder,
                "odometer_numbers_issued_total",
                &["Numbers given to callers."],
                &[Label::new("sequence", OTHER)],
            ),
            token_expiries: TokenExpiries::none(),
            recorder,
        }
    }

    /// Returns the counter of numbers that were abandoned for one cause:
    /// `odometer_abandoned_numbers_total{cause}`.
    pub fn abandoned(&self, cause: AbandonedCause) -> &Counter {
        &self.abandoned[cause as usize]
    }

    /// Returns the handles of one name. Ask once, when the name is loaded, and keep them.
    pub fn sequence(&self, name: &str) -> SequenceMetrics {
        let mut sequences = self.sequences.lock();
        if let Some(known) = sequences.get(name) {
            return known.clone();
        }
        if sequences.len() >= self.sequence_labels {
            return SequenceMetrics::beyond(self.beyond_labels.clone());
        }
        let labels = [Label::new("sequence", name.to_owned())];
        let made = SequenceMetrics::make(&*self.recorder, &labels);
        made.clear();
        sequences.insert(name.into(), made.clone());
        made
    }

    /// Returns the counter of calls that were refused because a role lacks a right:
    /// `odometer_access_refused_total{role,right}`. There are as many labels as the configuration
    /// has roles, times the rights.
    pub fn access_refused(&self, role: &str, right: &'static str) -> Counter {
        let labels = [
            Label::new("role", role.to_owned()),
            Label::new("right", right),
        ];
        let help = "Calls refused because the role of their caller lacks a right.";
        make(
            &*self.recorder,
            "odometer_access_refused_total",
            &[help],
            &labels,
        )
    }

    /// Returns the counter of calls that were refused because a role had used up a quota:
    /// `odometer_quota_refused_total{role,quota}`.
    pub fn quota_refused(&self, role: &str, quota: &'static str) -> Counter {
        let labels = [
            Label::new("role", role.to_owned()),
            Label::new("quota", quota),
        ];
        let help = "Calls refused because the role of their caller had used up a quota.";
        make(
            &*self.recorder,
            "odometer_quota_refused_total",
            &[help],
            &labels,
        )
    }

    /// Shows for how many seconds what each of these callers shows is good, below 0 once it has
    /// expired: `odometer_token_expires_seconds{caller}`. All other callers are no longer shown.
    ///
    /// The 1000 callers that expire first have labels of their own. `_other` shows the first of the
    /// others. It is infinite if there are no others.
    pub fn show_token_expiries(&self, seconds_left: Vec<(Arc<str>, f64)>) {
        self.token_expiries.show(seconds_left);
    }

    /// Returns the gauge that is 1 while a Redis server takes steps:
    /// `odometer_redis_up{store,server}`.
    pub fn redis_up(&self, store: &str, server: &str) -> Gauge {
        let labels = [
            Label::new("store", store.to_owned()),
            Label::new("server", server.to_owned()),
        ];
        let help = "1 while a Redis server takes steps, 0 otherwise.";
        make(&*self.recorder, "odometer_redis_up", &[help], &labels)
    }

    /// Returns the metrics of connections to the listener for clients of Redis.
    pub fn resp_listener(&self) -> ListenerMetrics {
        self.resp.listener(&self.listener)
    }

    /// Returns the counter of requests that were answered:
    /// `odometer_http_requests_total{route,status}`.
    pub fn http(&self, route: Route, status: u16) -> &Counter {
        let of_route = self.route(route);
        of_route.requests(&*self.recorder, route, status)
    }

    /// Returns the histogram of seconds to answer: `odometer_http_request_duration_seconds{route}`.
    /// Warm calls are sampled.
    pub fn http_duration(&self, route: Route) -> &Histogram {
        &self.route(route).duration
    }

    fn route(&self, route: Route) -> &RouteMetrics {
        &self.http[route as usize]
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
