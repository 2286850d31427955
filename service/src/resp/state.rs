//! Holds what the connections of the listener share.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use odometer_process::metrics::Metrics;
use odometer_sequence::Directory;

use super::key_rules::KeyRule;
use crate::access::credentials::Credentials;
use crate::calls::access::Access;
use crate::calls::call_limit::CallLimit;
use crate::calls::repeated_lines::RepeatedLines;
use crate::calls::state::Calls;
use crate::config::{self, Config, OnExpiry};
use crate::edge::Watch;

/// What the connections of all workers share.
pub(super) struct Resp {
    pub(super) calls: Arc<Calls>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) rules: Vec<KeyRule>,
    /// Whether commands that let a key expire do nothing. Otherwise they are refused.
    pub(super) ignores_expiry: bool,
    /// The id of the newest connection.
    last_id: AtomicI64,
}

/// What the connections of one worker share.
pub(super) struct RespWorker {
    pub(super) resp: Arc<Resp>,
    pub(super) watch: Rc<Watch>,
}

impl Resp {
    /// Creates what connections share of a listener, which is `is_loopback` or not.
    pub(super) fn new(
        is_loopback: bool,
        credentials: Arc<Credentials>,
        directory: Arc<Directory>,
        metrics: Arc<Metrics>,
        config: &Config,
    ) -> Self {
        let in_flight = CallLimit::new(
            config::bound(config.limits.in_flight),
            metrics.resp.in_flight.clone(),
            metrics.resp.overloaded.clone(),
        );
        let access = Access::new(is_loopback, credentials, Arc::clone(&metrics));
        let calls = Calls {
            directory,
            access: access.with_password(config.resp.password.clone()),
            in_flight: Arc::new(in_flight),
            repeated_lines: RepeatedLines::of("the Redis protocol"),
        };
        Self {
            calls: Arc::new(calls),
            metrics,
            rules: config.resp.rules.clone(),
            ignores_expiry: config.resp.expire == OnExpiry::Ignore,
            last_id: AtomicI64::new(0),
        }
    }

    /// Returns an id that no other connection has.
    pub(super) fn next_id(&self) -> i64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}
