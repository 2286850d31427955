//! Counts the calls that roles do not allow, and those by certificates that are no caller's. Writes
//! lines about them to the log now and then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use odometer_process::log::AUDIT;
use odometer_process::log_throttle::{Line, LogThrottle};
use odometer_process::metrics::Metrics;

use crate::access::quotas::Quota;
use crate::access::right::Right;

/// The most characters of a certificate's names that are logged.
const MAX_NAMES: usize = 256;

/// The calls that were refused because a role lacks a right, or has used up a quota, or because a
/// certificate is no caller's.
pub(crate) struct Denials {
    metrics: Arc<Metrics>,
    lines: LogThrottle<Denied>,
    /// By the names of a certificate. The text is where the call came from.
    certificates: LogThrottle<String>,
}

/// Refusals that share a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Denied {
    role: Arc<str>,
    who: Arc<str>,
    /// By what the caller is known.
    how: &'static str,
    /// The right or the quota.
    what: &'static str,
}

impl Denials {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            lines: LogThrottle::default(),
            certificates: LogThrottle::default(),
        }
    }

    /// Notes a call of `who`, whose role lacks a right. `how` says by what the caller is known.
    pub(crate) fn note_right(
        &self,
        role: &Arc<str>,
        right: Right,
        (who, how): (&Arc<str>, &'static str),
    ) {
        let what = right.word();
        self.metrics.access_refused(role, what).increment(1);
        self.note(role, what, (who, how));
    }

    /// Notes a call of `who`, whose role has used up a quota. `how` says by what the caller is known.
    pub(crate) fn note_quota(
        &self,
        role: &Arc<str>,
        quota: Quota,
        (who, how): (&Arc<str>, &'static str),
    ) {
        let what = quota.word();
        self.metrics.quota_refused(role, what).increment(1);
        self.note(role, what, (who, how));
    }

    /// Notes a call from `peer`, on a connection whose certificate has these names and is no
    /// caller's.
    pub(crate) fn note_certificate(&self, names: &[String], peer: Option<SocketAddr>) {
        self.metrics.tokens_refused.increment(1);
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        let line = self
            .certificates
            .line(printable(names), peer, Instant::now());
        line.iter().for_each(write_certificate);
    }

    fn note(&self, role: &Arc<str>, what: &'static str, (who, how): (&Arc<str>, &'static str)) {
        let denied = Denied {
            role: Arc::clone(role),
            who: Arc::clone(who),
            how,
            what,
        };
        let line = self.lines.line(denied, what, Instant::now());
        line.iter().for_each(write);
    }

    /// Writes a line for everything that had none for long enough at the time `now`.
    pub(crate) fn tell(&self, now: Instant) {
        self.lines.rest(now).iter().for_each(write);
        let certificates = self.certificates.rest(now);
        certificates.iter().for_each(write_certificate);
    }
}

/// Returns what the log shows of the names of a certificate.
fn printable(names: &[String]) -> String {
    let names = names.join(" ");
    let shown = names
        .chars()
        .filter(|found| found.is_ascii_graphic() || *found == ' ');
    shown.take(MAX_NAMES).collect()
}

fn write(line: &Line<Denied>) {
    let denied = line.key.as_ref();
    tracing::warn!(
        target: AUDIT,
        who = denied.map(|denied| &*denied.who),
        how = denied.map(|denied| denied.how),
        role = denied.map(|denied| &*denied.role),
        what = &*line.what,
        n_untold = line.n_untold,
        "a call was refused: its role has no such right, or has used up this quota"
    );
}

fn write_certificate(line: &Line<String>) {
    tracing::warn!(
        target: AUDIT,
        names = line.key.as_deref(),
        peer = &*line.what,
        n_untold = line.n_untold,
        "a call was refused: its certificate is no caller's"
    );
}
