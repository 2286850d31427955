//! Holds the metrics of callers' connections, below HTTP.

use ::metrics::{Counter, Gauge};

/// The metrics of connections to the listener.
#[derive(Clone)]
pub struct ConnectionsMetrics {
    /// Connections that are open now.
    pub open: Gauge,
    /// The most connections that may be open.
    pub max: Gauge,
    /// Connections closed because a request did not end in time or could not be answered:
    /// `odometer_http_connections_cut_total{cause="request"}`.
    pub cut_request: Counter,
    /// Connections closed because nobody took a reply: `cause="reply"`.
    pub cut_reply: Counter,
    /// Idle connections closed because others needed their slot: `cause="crowded"`.
    pub cut_crowded: Counter,
    /// Connections closed because what came was not HTTP.
    pub malformed: Counter,
}
