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

/// Found out once and then known to everybody who connects.
///
/// It goes one way: where a pooler was met once, statements are never prepared again, because a
/// prepared statement can meet another one of its name there and run that instead.
#[derive(Clone, Debug)]
pub(super) struct Route(Arc<AtomicBool>);

impl Route {
    pub(super) fn straight() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub(super) fn is_pooled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// As the URL says.
    pub(super) fn set_pooled(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// As was just found out; said once.
    pub(super) fn meet_pooler(&self) {
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::info!(
                "A pooler is between this program and the database: statements are sent unprepared"
            );
        }
    }
}

/// How a pool is opened on either way.
#[derive(Clone)]
pub(super) struct Doors {
    straight: ConnectOptions,
    pooled: ConnectOptions,
    route: Route,
    /// How long a statement is waited for.
    pub(super) longest: Duration,
}

impl Doors {
    pub(super) fn new(
        straight: ConnectOptions,
        pooled: ConnectOptions,
        route: Route,
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
    pub(super) fn current(&self) -> (&ConnectOptions, bool) {
        if self.route.is_pooled() {
            (&self.pooled, true)
        } else {
            (&self.straight, false)
        }
    }
}
