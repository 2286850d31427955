//! Remembers the way to a database: straight, or through a pooler. A pooler gives each transaction
//! another connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sea_orm::ConnectOptions;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::connection::route";

/// Whether the way to a database leads through a pooler. It is found out once, and all clones know
/// it.
///
/// The way changes in one direction only. After a pooler was met, statements are never prepared
/// again: behind a pooler, another statement of the same name could run instead.
#[derive(Clone, Debug)]
pub struct PoolerRoute(Arc<AtomicBool>);

impl PoolerRoute {
    pub fn straight() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub fn is_pooled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Notes that the URL names a pooler.
    pub fn set_pooled(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Notes a pooler that was just found, and logs it once.
    pub fn meet_pooler(&self) {
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::info!(
                target: TARGET,
                "A pooler is between this program and the database: statements are sent unprepared"
            );
        }
    }
}

/// The options to open a pool with, for either way.
#[derive(Clone)]
pub struct RouteOptions {
    straight: ConnectOptions,
    pooled: ConnectOptions,
    route: PoolerRoute,
    /// How long a statement is waited for.
    pub longest: Duration,
}

impl RouteOptions {
    pub fn new(
        open: impl Fn(bool) -> ConnectOptions,
        route: PoolerRoute,
        longest: Duration,
    ) -> Self {
        Self {
            straight: open(false),
            pooled: open(true),
            route,
            longest,
        }
    }

    /// Returns the options for the way that is known now, and whether this way leads through a
    /// pooler.
    pub fn current(&self) -> (&ConnectOptions, bool) {
        if self.route.is_pooled() {
            (&self.pooled, true)
        } else {
            (&self.straight, false)
        }
    }
}
