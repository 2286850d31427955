//! Keeps what the hooks report.

use std::{
    mem, process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use odometer_client::{DropCause, Hooks, RefillReport};
use serde_json::{Value, json};

/// The reports since the last step `hooks`.
#[derive(Clone)]
pub(crate) struct Recorder {
    reports: Arc<Mutex<Reports>>,
    /// A forked child reports nothing: a thread of the parent may have held the lock.
    process: u32,
}

#[derive(Default)]
struct Reports {
    refills: Vec<Value>,
    waited: Vec<f64>,
    dropped: Vec<Value>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            reports: Arc::default(),
            process: process::id(),
        }
    }
}

impl Recorder {
    pub(crate) fn report(&self) -> String {
        let Reports {
            refills,
            waited,
            dropped,
        } = mem::take(&mut *self.lock());
        json!({"refills": refills, "waited": waited, "dropped": dropped}).to_string()
    }

    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks for Recorder {
    fn refill(&self, report: &RefillReport<'_>) {
        if self.is_here() {
            self.lock().refills.push(json!({
                "endpoint": report.endpoint,
                "outcome": report.outcome,
                "seconds": report.duration.as_secs_f64(),
                "count": report.count,
            }));
        }
    }

    fn waited(&self, _sequence: &str, waited: Duration) {
        if self.is_here() {
            self.lock().waited.push(waited.as_secs_f64());
        }
    }

    fn dropped(&self, _sequence: &str, count: u64, cause: DropCause) {
        if self.is_here() {
            let report = json!({"count": count, "cause": cause.as_str()});
            self.lock().dropped.push(report);
        }
    }
}
