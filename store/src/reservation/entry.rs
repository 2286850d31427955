//! Starts reservations, and counts those that are under way in each database.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tokio::sync::{SemaphorePermit, oneshot};
use tracing::Instrument as _;

use super::{
    attempts::Reservation,
    request::{ReserveRequest, Reserved, Unpublished},
};
use crate::{database::Database, error::StoreError, store::Store};

impl Store {
    /// Reserves a block in a task that nobody cancels.
    ///
    /// If the receiver is gone when the block arrives, the block counts as abandoned.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        let store = Arc::clone(self);
        let call = request.progress.call();
        let reserving = async move {
            let started = Instant::now();
            let outcome = store.refill(request).await.and_then(|reserved| {
                let member = store.member(usize::from(reserved.source.database))?;
                let (heartbeat, metrics) = (&member.database.heartbeat, &store.metrics);
                let block = Unpublished::new(reserved, Arc::clone(heartbeat), Arc::clone(metrics));
                Ok(block)
            });
            let seconds = started.elapsed().as_secs_f64();
            store.metrics.reservation_duration.record(seconds);
            // An outcome that is dropped with a block in it counts the block as abandoned.
            let _gone = answer.send(outcome);
        };
        self.tasks().spawn(reserving.instrument(call));
        receiver
    }

    async fn refill(&self, request: ReserveRequest) -> Result<Reserved, StoreError> {
        let Some(only) = self.only() else {
            return Box::pin(self.refill_of_members(&request)).await;
        };
        let _turn = only.permit_for_prefetch(&request).await;
        let _gauge = ReservationGauge::enter(only);
        match &self.redis {
            Some(redis) => Box::pin(redis.reserve(request)).await,
            // Only this needs much memory, and a prefetch may wait long for its permit.
            None => Box::pin(Reservation::new(only, request).run()).await,
        }
    }
}

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
