//! Holds what the routes of all workers share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_web::HttpRequest;
use actix_web::web::{Bytes, Data, Payload};
use odometer_process::metrics::Metrics;
use odometer_sequence::Directory;

use super::body;
use super::hosts::Hosts;
use super::large_replies::LargeReplies;
use super::listener_role::ListenerRole;
use crate::access::credentials::Credentials;
use crate::calls::access::Access;
use crate::calls::call_limit::CallLimit;
use crate::calls::repeated_lines::RepeatedLines;
use crate::calls::state::Calls;
use crate::config::{self, Config};
use crate::edge::WorkerTicks;

/// What a route gets of a call that has a body: the request, the body, and what the routes share.
pub(crate) type Call = (HttpRequest, Payload, Data<Http>);

/// What the routes of all workers of a listener share.
pub(crate) struct Http {
    pub(crate) calls: Arc<Calls>,
    pub(crate) role: ListenerRole,
    pub(crate) worker_ticks: Arc<WorkerTicks>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) body: body::BodyLimits,
    pub(crate) hosts: Hosts,
    pub(crate) definition_refresh: Duration,
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
        let calls = Calls {
            directory,
            access,
            in_flight: Arc::new(in_flight),
            repeated_lines: RepeatedLines::of("HTTP"),
        };
        Self {
            calls: Arc::new(calls),
            role,
            worker_ticks,
            metrics,
            body: body::BodyLimits {
                limit: config.limits.body,
                timeout: config.http.body,
            },
            hosts: Hosts::new(is_loopback, &config.http.hosts),
            definition_refresh: config.definition_refresh,
            large_replies,
            openapi,
            started: SystemTime::now(),
        }
    }
}

impl Deref for Http {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.calls
    }
}
