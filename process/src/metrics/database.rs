//! Declares the metrics of one database.

use ::metrics::{Counter, Gauge};

use super::declare::declare;

declare! {
    /// The metrics of one database.
    #[derive(Clone)]
    pub struct DatabaseMetrics {
        /// 1 while a database answers, 0 otherwise.
        up: Gauge = "odometer_database_up",
        /// 1 while settings of a database let a crash of its server forget what it has committed.
        ///
        /// As last looked at.
        durability_weak: Gauge = "odometer_database_durability_weak",
        /// Blocks, or numbers for callers of strict order, that a database gave.
        ///
        /// Counts the writes.
        reservations: Counter = "odometer_database_reservations_total",
        /// 1 from when a database was found in an earlier state until a recovery is seen, 0
        /// otherwise.
        went_back: Gauge = "odometer_store_went_back",
        /// Times that this replica saw all counters of a copy raised, by itself or by another
        /// replica.
        fences: Counter = "odometer_store_fences_total",
        /// Times that this replica trusted a server that was started again.
        ///
        /// Heartbeats in the database, or the ends of all replicas, showed that it lost nothing.
        vouched: Counter = "odometer_store_vouched_total",
        /// 1 while a copy of the database that lost commits would be refused, 0 otherwise.
        failover_guard: Gauge = "odometer_failover_guard",
        /// Pairs of blocks in the journal that have numbers in common.
        journal_overlaps: Gauge = "odometer_journal_overlaps",
        /// The part of the worker ids that is taken, in the fullest pool that this replica leased
        /// from.
        worker_ids_taken_ratio: Gauge = "odometer_worker_ids_taken_ratio",
        /// The clock of a database minus the clock of this machine.
        ///
        /// In seconds.
        clock_skew_seconds: Gauge = "odometer_clock_skew_seconds",
    } with {
        /// The connections to the database, in use and waited for.
        pool: PoolMetrics,
    }
}

declare! {
    /// The metrics of the pool of one database.
    #[derive(Clone)]
    pub struct PoolMetrics {
        /// Connections that the pool of a database may have.
        max: Gauge = "odometer_database_connections_max",
        /// Connections to a database that a statement or transaction holds.
        active: Gauge = "odometer_database_connections_active",
        /// Statements and transactions that wait for a connection to a database.
        pending: Gauge = "odometer_database_connections_pending",
    }
}

impl PoolMetrics {
    /// Sets the most connections that the pool may have.
    pub fn set_max(&self, n_connections: usize) {
        let n_connections = u32::try_from(n_connections);
        self.max.set(n_connections.map_or(f64::INFINITY, f64::from));
    }
}

/// Counts as one in a gauge for as long as it lives.
pub struct Present(Gauge);

impl Present {
    /// Adds one to a gauge until the returned value is dropped.
    pub fn of(gauge: &Gauge) -> Self {
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
