//! Declares the metrics of connections to the listener.

use ::metrics::{Counter, Gauge, NoopRecorder};

use super::declare::declare;

declare! {
    /// The metrics of connections to the listener.
    #[derive(Clone)]
    pub struct ListenerMetrics {
        /// Connections that are open.
        open: Gauge = "odometer_http_connections",
        /// Connections that may be open.
        max: Gauge = "odometer_http_connections_max",
        /// Connections closed by the service, by cause.
        ///
        /// A request did not end in time or could not be answered.
        cut_request: Counter = "odometer_http_connections_cut_total" [cause = "request"],
        /// Connections closed because nobody took a reply.
        cut_reply: Counter = "odometer_http_connections_cut_total" [cause = "reply"],
        /// Idle connections closed because others needed their slot.
        cut_crowded: Counter = "odometer_http_connections_cut_total" [cause = "crowded"],
        /// Connections closed because what came was not HTTP. By TLS, that is after the handshake.
        malformed: Counter = "odometer_http_malformed_total",
        /// Connections closed because their TLS handshake failed, or was not done in time.
        handshakes_failed: Counter = "odometer_tls_handshakes_failed_total",
    }
}

impl ListenerMetrics {
    /// Returns metrics that nobody sees, for a listener whose connections are not counted.
    pub fn uncounted() -> Self {
        Self::make(&NoopRecorder, &[])
    }
}
