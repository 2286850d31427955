//! Bounds what a connection may cost.

use std::time::Duration;

/// How many times longer a whole reply may take than a reply may stand still.
///
/// This holds for replies that their caller does not take at once.
pub(crate) const WHOLE_REPLY: u32 = 6;

/// How long a reply may stand still while the service stops.
pub(crate) const DRAINING_REPLY: Duration = Duration::from_secs(1);

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
    /// How long an idle connection is kept.
    pub idle: Duration,
    /// The most bytes that are read of a request before it is answered.
    pub unread: usize,
    /// The most connections of one worker.
    pub connections: usize,
}
