//! Bounds what a connection may cost.

use std::time::Duration;

/// How long an idle connection is kept.
///
/// Common clients and proxies keep their connections for a shorter time. So the client closes, and
/// no call meets a closing connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How many times longer a whole reply may take than a reply may stand still.
///
/// This holds for replies that their caller does not take at once.
pub(crate) const WHOLE_REPLY: u32 = 6;

/// How long a reply may stand still while the service stops.
pub(crate) const DRAINING_REPLY: Duration = Duration::from_secs(1);

/// The most bytes of a head. Above this size, actix doubles its buffer.
pub(crate) const MAX_UNREAD: usize = 31 * 1024;

/// What a connection may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionBounds {
    /// The time from the first byte of a request to the end of its head, and from the start of a
    /// connection to its first byte.
    pub head: Duration,
    /// The time from the first byte of a request to the first byte of its reply.
    pub request: Duration,
    /// How long a reply may stand still.
    pub reply: Duration,
    /// The most bytes of a body that are read.
    pub body: usize,
    /// The most connections of one worker.
    pub connections: usize,
}

impl ConnectionBounds {
    /// Returns the most bytes of a head, or of a chunked body with all that is around its chunks.
    pub(crate) fn unread(&self) -> usize {
        // This is more than is read for a chunked body. So such a body is too large before it
        // reaches this bound.
        MAX_UNREAD.max(self.body.saturating_add(self.body / 4))
    }
}
