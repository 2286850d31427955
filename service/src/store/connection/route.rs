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
pub(in crate::store) struct Route(Arc<AtomicBool>);

impl Route {
    pub(in crate::store) fn straight() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub(in crate::store) fn is_pooled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// As the URL says.
    pub(in crate::store) fn set_pooled(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// As was just found out; said once.
    pub(in crate::store) fn meet_pooler(&self) {
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::info!(
                "A pooler is between this program and the database: statements are sent unprepared"
            );
        }
    }
}

/// How a pool is opened on either way.
#[derive(Clone)]
pub(in crate::store) struct Doors {
    straight: ConnectOptions,
    pooled: ConnectOptions,
    route: Route,
    /// How long a statement is waited for.
    pub(in crate::store) longest: Duration,
}

impl Doors {
    pub(in crate::store) fn new(
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
    pub(in crate::store) fn current(&self) -> (&ConnectOptions, bool) {
        if self.route.is_pooled() {
            (&self.pooled, true)
        } else {
            (&self.straight, false)
        }
    }
}
