//! Lets reservations into one database, and counts those that are under way.

use std::sync::atomic::Ordering;

use tokio::sync::SemaphorePermit;

use super::request::ReserveRequest;
use crate::database::Database;

impl Database {
    /// Waits for a permit if no caller waits for the numbers yet. Returns without a permit as soon
    /// as a caller waits.
    pub(crate) async fn permit_for_prefetch(
        &self,
        request: &ReserveRequest,
    ) -> Option<SemaphorePermit<'_>> {
        if !request.want.is_ahead() {
            return None;
        }
        let turn = tokio::select! {
            turn = self.ahead.acquire() => turn.ok(),
            () = request.urgency.notified() => None,
        };
        request.progress.turn();
        turn
    }
}

/// Counts one reservation as under way until it is dropped.
pub(crate) struct ReservationGauge<'a> {
    database: &'a Database,
}

impl<'a> ReservationGauge<'a> {
    pub(crate) fn enter(database: &'a Database) -> Self {
        let n_now = database.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        database.peak_in_flight.fetch_max(n_now, Ordering::Relaxed);
        database.metrics.reservations_in_flight.increment(1.0);
        Self { database }
    }
}

impl Drop for ReservationGauge<'_> {
    fn drop(&mut self) {
        self.database.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.database.metrics.reservations_in_flight.decrement(1.0);
    }
}
