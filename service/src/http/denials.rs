//! Counts the calls that roles do not allow, and writes lines about them to the log now and then.

use std::sync::Arc;
use std::time::Instant;

use odometer_process::log::AUDIT;
use odometer_process::log_throttle::{Line, LogThrottle};
use odometer_process::metrics::Metrics;

use crate::access::quotas::Quota;
use crate::access::right::Right;

/// The calls that were refused because a role lacks a right, or has used up a quota.
pub(crate) struct Denials {
    metrics: Arc<Metrics>,
    lines: LogThrottle<Denied>,
}

/// Refusals that share a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Denied {
    role: Arc<str>,
    who: Arc<str>,
    /// The right or the quota.
    what: &'static str,
}

impl Denials {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            lines: LogThrottle::default(),
        }
    }

    /// Notes a call of `who`, whose role lacks a right.
    pub(crate) fn note_right(&self, role: &Arc<str>, right: Right, who: &Arc<str>) {
        let what = right.word();
        self.metrics.access_refused(role, what).increment(1);
        self.note(role, what, who);
    }

    /// Notes a call of `who`, whose role has used up a quota.
    pub(crate) fn note_quota(&self, role: &Arc<str>, quota: Quota, who: &Arc<str>) {
        let what = quota.word();
        self.metrics.quota_refused(role, what).increment(1);
        self.note(role, what, who);
    }

    fn note(&self, role: &Arc<str>, what: &'static str, who: &Arc<str>) {
        let denied = Denied {
            role: Arc::clone(role),
            who: Arc::clone(who),
            what,
        };
        let line = self.lines.line(denied, what, Instant::now());
        line.iter().for_each(write);
    }

    /// Writes a line for everything that had none for long enough at the time `now`.
    pub(crate) fn tell(&self, now: Instant) {
        self.lines.rest(now).iter().for_each(write);
    }
}

fn write(line: &Line<Denied>) {
    let denied = line.key.as_ref();
    tracing::warn!(
        target: AUDIT,
        who = denied.map(|denied| &*denied.who),
        role = denied.map(|denied| &*denied.role),
        what = &*line.what,
        n_untold = line.n_untold,
        "a call was refused: its role has no such right, or has used up this quota"
    );
}
