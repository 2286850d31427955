//! What is counted of connections, below HTTP.

use ::metrics::{Counter, Gauge};

/// What is counted of connections to the listener.
#[derive(Clone)]
pub struct ConnectionsMetrics {
    /// Open now.
    pub open: Gauge,
    /// The most that may be open.
    pub max: Gauge,
    /// Closed because a request did not come to its reply:
    /// `odometer_http_connections_cut_total{cause="request"}`.
    pub cut_request: Counter,
    /// Because nobody took a reply: `cause="reply"`.
    pub cut_reply: Counter,
    /// Idle, and closed because others needed the place: `cause="crowded"`.
    pub cut_crowded: Counter,
    /// What came and was no HTTP.
    pub malformed: Counter,
}
