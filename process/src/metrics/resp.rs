//! Declares the metrics of the listener for clients of Redis.

use ::metrics::{Counter, Gauge};

use super::{declare::declare, listener::ListenerMetrics};

declare! {
    /// The metrics of the listener for clients of Redis.
    pub struct RespMetrics {
        /// Connections of clients of Redis that are open.
        open: Gauge = "odometer_resp_connections",
        /// Connections of clients of Redis that may be open. 0 without this listener.
        max: Gauge = "odometer_resp_connections_max",
        /// Connections of clients of Redis closed by the service, by cause.
        ///
        /// A command did not end in time or could not be answered.
        cut_request: Counter = "odometer_resp_connections_cut_total" [cause = "request"],
        /// Connections closed because nobody took a reply.
        cut_reply: Counter = "odometer_resp_connections_cut_total" [cause = "reply"],
        /// Idle connections closed because others needed their slot.
        cut_crowded: Counter = "odometer_resp_connections_cut_total" [cause = "crowded"],
        /// Connections closed because what came was no command of Redis.
        malformed: Counter = "odometer_resp_malformed_total",
        /// Commands of clients of Redis, by outcome.
        ///
        /// Commands that got another reply than an error.
        answered: Counter = "odometer_resp_commands_total" [outcome = "answered"],
        /// Commands that got an error.
        refused: Counter = "odometer_resp_commands_total" [outcome = "refused"],
        /// Commands being answered that had to wait.
        in_flight: Gauge = "odometer_resp_in_flight_commands",
        /// Commands refused because too many were being answered.
        ///
        /// `limits.in_flight` were being answered.
        overloaded: Counter = "odometer_resp_overloaded_total",
    }
}

impl RespMetrics {
    /// Returns the metrics of the connections. Failed handshakes count with those of `beside`.
    pub(crate) fn listener(&self, beside: &ListenerMetrics) -> ListenerMetrics {
        ListenerMetrics {
            open: self.open.clone(),
            max: self.max.clone(),
            cut_request: self.cut_request.clone(),
            cut_reply: self.cut_reply.clone(),
            cut_crowded: self.cut_crowded.clone(),
            malformed: self.malformed.clone(),
            handshakes_failed: beside.handshakes_failed.clone(),
        }
    }
}
