//! What is counted of one database, and of who has a connection to it.

use ::metrics::{Counter, Gauge};

/// What is counted of one database.
#[derive(Clone)]
pub struct DatabaseMetrics {
    /// 1 while it answers, 0 while it does not.
    pub up: Gauge,
    /// 1 while its settings let a crash of its server forget commits, as last looked at.
    pub durability_weak: Gauge,
    /// Writes that got numbers from it.
    pub reservations: Counter,
    /// 1 from when it was found to have gone back until a recovery is seen.
    pub went_back: Gauge,
    /// Pairs of blocks in its journal that have numbers in common.
    pub journal_overlaps: Gauge,
    /// Who has a connection to it, and who waits for one.
    pub connections: ConnectionMetrics,
    /// The greatest part of its ids that is taken in any pool which this process leased from.
    pub worker_ids_taken_ratio: Gauge,
    pub clock_skew_seconds: Gauge,
}

/// What is counted of the pool of one database.
#[derive(Clone)]
pub struct ConnectionMetrics {
    pub max: Gauge,
    pub active: Gauge,
    pub pending: Gauge,
}

impl ConnectionMetrics {
    /// The most that it may have.
    pub fn set_max(&self, n_connections: usize) {
        let n_connections = u32::try_from(n_connections);
        self.max.set(n_connections.map_or(f64::INFINITY, f64::from));
    }

    /// One is used until what this returns is dropped.
    pub fn one_is_active(&self) -> Present {
        Present::of(&self.active)
    }

    /// One is waited for until what this returns is dropped.
    pub fn one_is_pending(&self) -> Present {
        Present::of(&self.pending)
    }
}

/// Counts as one in a gauge for as long as it lives.
pub struct Present(Gauge);

impl Present {
    fn of(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl DatabaseMetrics {
    /// Its clock minus ours, in milliseconds; shown up to 24 days.
    pub fn note_skew(&self, skew_ms: i64) {
        let shown = skew_ms.clamp(i32::MIN.into(), i32::MAX.into());
        let shown = i32::try_from(shown).map_or(f64::NAN, f64::from);
        self.clock_skew_seconds.set(shown / 1000.0);
    }
}
