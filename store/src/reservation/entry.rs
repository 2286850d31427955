//! Starts reservations in one database, and counts those that are under way.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tokio::sync::{SemaphorePermit, oneshot};
use tracing::Instrument as _;

use super::{
    attempts::Reservation,
    request::{ReserveRequest, Reserved, Unpublished},
    stripe_constraints::StripeConstraints,
};
use crate::{database::Database, error::StoreError};

impl Database {
    /// Reserves in a task that is never cancelled.
    ///
    /// If the receiver is gone when the block arrives, the block counts as abandoned.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        let database = Arc::clone(self);
        self.reserve_by(request, move |request| async move {
            Reservation::new(&database, request).run().await
        })
    }

    /// Reserves like [`Database::reserve`], but lets `work` make the reservation.
    pub(crate) fn reserve_by<F, Fut>(
        self: &Arc<Self>,
        request: ReserveRequest,
        work: F,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>>
    where
        F: FnOnce(ReserveRequest) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Reserved, StoreError>> + Send,
    {
        let (answer, receiver) = oneshot::channel();
        let database = Arc::clone(self);
        let call = request.progress.call();
        let reserving = async move {
            let started = Instant::now();
            let turn = database.permit_for_prefetch(&request).await;
            let strict = ReservationGauge::enter(&database);
            // Only the work needs much memory, and a prefetch may wait long before it.
            let outcome = Box::pin(work(request)).await;
            drop((strict, turn));
            database
                .metrics
                .reservation_duration
                .record(started.elapsed().as_secs_f64());
            let (heartbeat, metrics) = (
                Arc::clone(&database.heartbeat),
                Arc::clone(&database.metrics),
            );
            let outcome = outcome.map(|reserved| Unpublished::new(reserved, heartbeat, metrics));
            // If the receiver is gone, the outcome is dropped. A block in it then counts as
            // abandoned.
            let _gone = answer.send(outcome);
        };
        self.connection.tasks().spawn(reserving.instrument(call));
        receiver
    }

    /// Makes one reservation under the constraints of a store of several databases.
    ///
    /// The future must run to its end. If it is dropped, it forgets what it may have reserved.
    pub(crate) async fn reserve_in_member(
        &self,
        request: ReserveRequest,
        constraints: StripeConstraints,
    ) -> Result<Reserved, StoreError> {
        let _flight = ReservationGauge::enter(self);
        Reservation::new(self, request)
            .constrained_by(constraints)
            .run()
            .await
    }

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
    pub(crate) database: &'a Database,
}

impl<'a> ReservationGauge<'a> {
    fn enter(database: &'a Database) -> Self {
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
