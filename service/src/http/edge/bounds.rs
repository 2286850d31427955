//! What a connection may cost.

use std::time::Duration;

/// How long an idle connection is kept: longer than the pools of common clients and proxies keep
/// theirs, so that it is the client who closes, and no call meets a closing connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How often as long as it may stand still a reply may take in all, if its caller does not take it
/// at once.
pub(crate) const WHOLE_REPLY: u32 = 6;

/// How long a reply may stand still while the service stops.
pub(crate) const DRAINING_REPLY: Duration = Duration::from_secs(1);

/// Bytes of a head: above this, actix doubles its buffer.
pub(crate) const MAX_UNREAD: usize = 31 * 1024;

/// What a connection may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionBounds {
    /// From the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the first byte of a request to the first byte of its reply.
    pub request: Duration,
    /// How long a reply may stand still.
    pub reply: Duration,
    /// Bytes of a body that are read.
    pub body: usize,
    /// Connections of one worker.
    pub connections: usize,
}

impl ConnectionBounds {
    /// Bytes of a head, or of a chunked body with all around it.
    pub(crate) fn unread(&self) -> usize {
        // More than a chunked body is read for, so that it is too large before this.
        MAX_UNREAD.max(self.body.saturating_add(self.body / 4))
    }
}
