//! What the HTTP layer is run by.

use std::time::Duration;

use crate::config::Secret;

/// What the HTTP layer is run by.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// From the first byte of a request to the first byte of its reply.
    pub request_timeout: Duration,
    /// How long a reply may stand still.
    pub write_timeout: Duration,
    /// Connections that may be open at once.
    pub connections: usize,
    /// Bytes of a body that are read.
    pub body_limit: usize,
    /// Calls being answered at once off the warm path; more get 503 `overloaded`.
    pub in_flight: usize,
    /// Threads that answer; `None` for one for each core.
    pub workers: Option<usize>,
    /// How long accepted requests may take once the server is told to stop.
    pub shutdown_timeout: Duration,
    /// Whether the listener can be reached from this machine only.
    pub loopback: bool,
    /// Further names by which a listener on loopback may be called.
    pub hosts: Vec<String>,
    /// What an administrator has to show; without one, nothing on loopback.
    pub admin_token: Option<Secret>,
    /// After how long a change holds at every replica that reaches the database.
    pub definition_refresh: Duration,
}
