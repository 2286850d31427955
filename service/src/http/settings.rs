//! Holds the settings of the HTTP layer.

use std::time::Duration;

use crate::config::Secret;

/// The settings of the HTTP layer.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// The time from the first byte of a request to the first byte of its reply.
    pub request_timeout: Duration,
    /// How long a reply may stand still.
    pub write_timeout: Duration,
    /// Connections that may be open at once.
    pub connections: usize,
    /// The most bytes of a body that are read.
    pub body_limit: usize,
    /// The most calls being answered at once off the warm path. Further calls get 503 `overloaded`.
    pub in_flight: usize,
    /// Threads that answer. `None` means one thread for each core.
    pub workers: Option<usize>,
    /// How long accepted requests may take after the server was asked to stop.
    pub shutdown_timeout: Duration,
    /// Whether the listener can be reached from this machine only.
    pub loopback: bool,
    /// Further names by which a listener on loopback may be called.
    pub hosts: Vec<String>,
    /// The token that an administrator has to show. Without one, a loopback listener asks for
    /// nothing, and another listener refuses every change.
    pub admin_token: Option<Secret>,
    /// The time after which a change holds at every replica that reaches the database.
    pub definition_refresh: Duration,
}
