//! Writes log lines that would otherwise come thousands of times a second.
//!
//! The lines are about calls that were refused for a while, and about connections whose input is no
//! request of their protocol, or whose TLS handshake failed. Each sequence, code or kind gets a line
//! now and then. Each line stands for one case, and says how many more there were since the line
//! before.

use std::net::SocketAddr;
use std::time::Instant;

use odometer_core::name::SequenceName;
use odometer_process::log_throttle::{Line, LogThrottle};

/// The times at which lines were written, by what they were about.
pub(crate) struct RepeatedLines {
    /// What connections should speak, as a line calls it.
    protocol: &'static str,
    refused: LogThrottle<Refused>,
    /// There is only one kind, so the key is empty.
    malformed: LogThrottle<()>,
    handshakes: LogThrottle<()>,
}

/// Refusals that share a line. A sequence may have the same name as a code, so each has a variant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Refused {
    Sequence(SequenceName),
    Code(&'static str),
}

impl RepeatedLines {
    /// Begins without lines, for a listener on which connections should speak `protocol`.
    pub(crate) fn of(protocol: &'static str) -> Self {
        Self {
            protocol,
            refused: LogThrottle::default(),
            malformed: LogThrottle::default(),
            handshakes: LogThrottle::default(),
        }
    }

    /// Notes a call that was refused, with its sequence if it named one.
    pub(crate) fn note_refused(&self, sequence: Option<SequenceName>, code: &'static str) {
        let key = sequence.map_or(Refused::Code(code), Refused::Sequence);
        let line = self.refused.line(key, code, Instant::now());
        line.iter().for_each(write_refused);
    }

    /// Notes a connection that was closed because its input is not what it should speak.
    pub(crate) fn note_malformed(&self, error: String) {
        let line = self.malformed.line((), error, Instant::now());
        line.iter().for_each(|line| self.write_malformed(line));
    }

    /// Notes a connection that was closed because its TLS handshake failed, with its other end.
    pub(crate) fn note_handshake(&self, peer: Option<SocketAddr>, error: String) {
        let error = match peer {
            Some(peer) => format!("from {peer}: {error}"),
            None => error,
        };
        let line = self.handshakes.line((), error, Instant::now());
        line.iter().for_each(write_handshake);
    }

    /// Writes a line for everything that had none for long enough at the time `now`.
    pub(crate) fn tell(&self, now: Instant) {
        self.refused.rest(now).iter().for_each(write_refused);
        let malformed = self.malformed.rest(now);
        malformed.iter().for_each(|line| self.write_malformed(line));
        self.handshakes.rest(now).iter().for_each(write_handshake);
    }

    fn write_malformed(&self, line: &Line<()>) {
        let (error, n_untold) = (&*line.what, line.n_untold);
        tracing::warn!(
            error,
            n_untold,
            "a connection was closed: what came is not {}",
            self.protocol
        );
    }
}

fn write_refused(line: &Line<Refused>) {
    let sequence = match &line.key {
        Some(Refused::Sequence(name)) => Some(name.as_str()),
        Some(Refused::Code(_)) | None => None,
    };
    let (error, n_untold) = (&*line.what, line.n_untold);
    tracing::warn!(sequence, error, n_untold, "a call was refused");
}

fn write_handshake(line: &Line<()>) {
    let (error, n_untold) = (&*line.what, line.n_untold);
    tracing::warn!(
        error,
        n_untold,
        "a connection was closed: its TLS handshake failed"
    );
}

#[cfg(test)]
mod tests {
    use odometer_process::log_throttle::PAUSE;

    use super::*;

    #[test]
    fn a_sequence_that_is_called_as_a_code_or_kind_keeps_nothing_else_quiet() {
        let lines = RepeatedLines::of("HTTP");
        for name in ["malformed", "overloaded"] {
            lines.note_refused(SequenceName::parse(name).ok(), "store_unavailable");
        }
        let now = Instant::now();
        assert!(lines.malformed.line((), "", now).is_some());
        let code = Refused::Code("overloaded");
        assert!(lines.refused.line(code, "", now).is_some());
        lines.note_refused(SequenceName::parse("malformed").ok(), "draining");
        let rest = lines.refused.rest(Instant::now() + PAUSE);
        let last: Vec<&str> = rest.iter().map(|line| &*line.what).collect();
        assert_eq!(last, ["draining"]);
    }
}
