//! Holds the metrics of one database, and of the connections to it.

use ::metrics::{Counter, Gauge};

/// The metrics of one database.
#[derive(Clone)]
pub struct DatabaseMetrics {
    /// 1 while the database answers, 0 while it does not.
    pub up: Gauge,
    /// 1 while the database's settings let a crash of its server forget commits, as last looked at.
    pub durability_weak: Gauge,
    /// Writes that got numbers from the database.
    pub reservations: Counter,
    /// 1 from when the database was found to have gone back until a recovery is seen.
    pub went_back: Gauge,
    /// Pairs of blocks in the database's journal that have numbers in common.
    pub journal_overlaps: Gauge,
    /// The connections to the database, in use and waited for.
    pub connections: ConnectionMetrics,
    /// The greatest part of its ids that is taken in any pool which this process leased from.
    pub worker_ids_taken_ratio: Gauge,
    pub clock_skew_seconds: Gauge,
}

/// The metrics of the pool of one database.
#[derive(Clone)]
pub struct ConnectionMetrics {
    pub max: Gauge,
    pub active: Gauge,
    pub pending: Gauge,
}

impl ConnectionMetrics {
    /// Sets the most connections that the pool may have.
    pub fn set_max(&self, n_connections: usize) {
        let n_connections = u32::try_from(n_connections);
        self.max.set(n_connections.map_or(f64::INFINITY, f64::from));
    }

    /// Counts one connection as in use until the returned value is dropped.
    pub fn one_is_active(&self) -> Present {
        Present::of(&self.active)
    }

    /// Counts one connection as waited for until the returned value is dropped.
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
    /// Shows the database's clock minus ours, in milliseconds. Shows at most 24 days.
    pub fn note_skew(&self, skew_ms: i64) {
        let shown = skew_ms.clamp(i32::MIN.into(), i32::MAX.into());
        let shown = i32::try_from(shown).map_or(f64::NAN, f64::from);
        self.clock_skew_seconds.set(shown / 1000.0);
    }
}
