//! Holds what the routes of all workers share.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use actix_web::HttpRequest;
use actix_web::web::{Bytes, Data, Payload};
use odometer_process::metrics::Metrics;
use odometer_sequence::Directory;

use super::access::Access;
use super::body;
use super::call_limit::CallLimit;
use super::hosts::Hosts;
use super::large_replies::LargeReplies;
use super::listener_role::ListenerRole;
use super::repeated_lines::RepeatedLines;
use crate::access::credentials::Credentials;
use crate::config::{self, Config};
use crate::edge::WorkerTicks;

/// No line of the log waits as long as this.
const ANY_WAIT: Duration = Duration::from_secs(3600);

/// What a route gets of a call that has a body: the request, the body, and what the routes share.
pub(crate) type Call = (HttpRequest, Payload, Data<Http>);

/// What the routes of all workers of a listener share.
pub(crate) struct Http {
    pub(crate) role: ListenerRole,
    pub(crate) worker_ticks: Arc<WorkerTicks>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) body: body::BodyLimits,
    pub(crate) access: Access,
    pub(crate) hosts: Hosts,
    pub(crate) repeated_lines: RepeatedLines,
    pub(crate) definition_refresh: Duration,
    pub(crate) in_flight: Arc<CallLimit>,
    pub(crate) large_replies: LargeReplies,
    pub(crate) openapi: Bytes,
    /// The time when the service began to listen.
    pub(crate) started: SystemTime,
}

impl Http {
    /// Creates what the routes share of a listener, which is `is_loopback` or not.
    pub(crate) fn new(
        (role, is_loopback): (ListenerRole, bool),
        (worker_ticks, credentials): (Arc<WorkerTicks>, Arc<Credentials>),
        directory: Arc<Directory>,
        metrics: Arc<Metrics>,
        openapi: Bytes,
        config: &Config,
    ) -> Self {
        let in_flight = CallLimit::new(
            config::bound(config.limits.in_flight),
            metrics.http_in_flight.clone(),
            metrics.http_refused.clone(),
        );
        let access = Access::new(is_loopback, credentials, Arc::clone(&metrics));
        let large_replies = LargeReplies::new(metrics.http_refused.clone());
        Self {
            role,
            worker_ticks,
            directory,
            metrics,
            body: body::BodyLimits {
                limit: config.limits.body,
                timeout: config.http.body,
            },
            access,
            hosts: Hosts::new(is_loopback, &config.http.hosts),
            repeated_lines: RepeatedLines::default(),
            definition_refresh: config.definition_refresh,
            in_flight: Arc::new(in_flight),
            large_replies,
            openapi,
            started: SystemTime::now(),
        }
    }

    /// Writes the lines to the log that have waited long enough at the time `now`.
    pub(crate) fn tell(&self, now: Instant) {
        self.access.tell(now);
        self.repeated_lines.tell(now);
    }
}

/// What the log has not reported yet: wrong tokens, refused calls, and input that is not HTTP.
pub struct UnreportedLines(pub(crate) Data<Http>);

impl UnreportedLines {
    /// Writes all of this to the log. Call it after the last call is answered.
    pub fn tell(&self) {
        self.0.tell(Instant::now() + ANY_WAIT);
    }
}
