//! The way to a database: straight, or through a pooler that gives each transaction another
//! connection of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sea_orm::ConnectOptions;

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::connection::route";

/// Found out once and then known to everybody who connects.
///
/// It goes one way: where a pooler was met once, statements are never prepared again, because a
/// prepared statement can meet another one of its name there and run that instead.
#[derive(Clone, Debug)]
pub struct PoolerRoute(Arc<AtomicBool>);

impl PoolerRoute {
    pub fn straight() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub fn is_pooled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// As the URL says.
    pub fn set_pooled(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// As was just found out; said once.
    pub fn meet_pooler(&self) {
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::info!(
                target: TARGET,
                "A pooler is between this program and the database: statements are sent unprepared"
            );
        }
    }
}

/// How a pool is opened on either way.
#[derive(Clone)]
pub struct Doors {
    straight: ConnectOptions,
    pooled: ConnectOptions,
    route: PoolerRoute,
    /// How long a statement is waited for.
    pub longest: Duration,
}

impl Doors {
    pub fn new(
        straight: ConnectOptions,
        pooled: ConnectOptions,
        route: PoolerRoute,
        longest: Duration,
    ) -> Self {
        Self {
            straight,
            pooled,
            route,
            longest,
        }
    }

    /// The options for the way as it is known now, and whether it is a pooler's.
    pub fn current(&self) -> (&ConnectOptions, bool) {
        if self.route.is_pooled() {
            (&self.pooled, true)
        } else {
            (&self.straight, false)
        }
    }
}
