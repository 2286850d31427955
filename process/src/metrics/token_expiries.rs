//! Holds for how long what callers show is good, by caller.

use std::sync::Arc;

use ::metrics::{Gauge, Label};
use metrics_exporter_prometheus::PrometheusRecorder;
use parking_lot::Mutex;

use super::OTHER;
use super::declare::make;
use super::exposition::build_recorder;

/// The most callers with a label of their own. A file of callers may have ten times as many.
pub(crate) const MAX_CALLERS: usize = 1000;

/// The gauge of the callers that have an end.
///
/// A recorder never forgets a series. So this gauge has a recorder of its own, which is replaced
/// whole. A caller that is gone has no series any more.
pub(crate) struct TokenExpiries(Mutex<PrometheusRecorder>);

impl TokenExpiries {
    /// Shows no caller.
    pub(crate) fn none() -> Self {
        Self(Mutex::new(recorder_of(Vec::new())))
    }

    /// Shows these callers in place of those before, each with its seconds.
    pub(crate) fn show(&self, seconds_left: Vec<(Arc<str>, f64)>) {
        let recorder = recorder_of(seconds_left);
        *self.0.lock() = recorder;
    }

    /// Returns this part of a scrape.
    pub(crate) fn render(&self) -> String {
        let shown = self.0.lock().handle();
        shown.render()
    }
}

/// Makes a recorder that shows the callers with the fewest seconds. `_other` shows the least of the
/// others.
fn recorder_of(mut seconds_left: Vec<(Arc<str>, f64)>) -> PrometheusRecorder {
    // Of equal ends, the name decides. So the same callers keep their labels.
    seconds_left.sort_unstable_by(|(name, left), (other, right)| {
        left.total_cmp(right).then_with(|| name.cmp(other))
    });
    let recorder = build_recorder();
    let mut callers = seconds_left.into_iter();
    for (name, left) in callers.by_ref().take(MAX_CALLERS) {
        gauge_of(&recorder, &name).set(left);
    }
    let least = callers.next().map_or(f64::INFINITY, |(_, left)| left);
    gauge_of(&recorder, OTHER).set(least);
    recorder
}

fn gauge_of(recorder: &PrometheusRecorder, caller: &str) -> Gauge {
    make(
        recorder,
        "odometer_token_expires_seconds",
        &["Seconds until what a caller shows expires, for callers that have an end."],
        &[Label::new("caller", caller.to_owned())],
    )
}
