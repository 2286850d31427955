//! Bounds what a connection may cost.

use std::time::Duration;

use crate::config::Config;

/// How many times longer a whole reply may take than a reply may stand still.
///
/// This holds for replies that their caller does not take at once.
pub(crate) const WHOLE_REPLY: u32 = 6;

/// How long a reply may stand still while the service stops.
pub(crate) const DRAINING_REPLY: Duration = Duration::from_secs(1);

/// How long an idle connection is kept, if it is not kept for as long as it likes.
///
/// Common clients and proxies keep their connections for a shorter time. So the client closes, and
/// no call meets a closing connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// For how long a connection may be idle.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum IdleLimit {
    /// For the time of a head: nothing was read yet, or the caller has to log in.
    #[default]
    Short,
    /// For [`KEEP_ALIVE`].
    Usual,
    /// For as long as it likes.
    Unlimited,
}

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
    /// The most bytes that are read of a request before it is answered.
    pub unread: usize,
    /// The most connections of one worker.
    pub connections: usize,
}

impl ConnectionBounds {
    /// Returns the bounds for each of a worker's `connections`. Up to `unread` bytes of a request are
    /// read before it is answered.
    pub(crate) fn new(config: &Config, unread: usize, connections: usize) -> Self {
        Self {
            head: config.http.head,
            request: config.http.head
                + config.http.body
                + config.refill.deadline
                + config.store.timeout,
            reply: config.http.write,
            unread,
            connections,
        }
    }
}
