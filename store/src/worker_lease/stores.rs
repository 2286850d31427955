//! Offers the leases of all stores.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio::{sync::oneshot, task::JoinError};
use tracing::Instrument as _;

use crate::Stores;
use crate::worker_lease::{
    lease::{LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_LISTED, WorkerPool},
    token::Token,
};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::worker_lease";

impl Stores {
    /// Leases a worker id. If nobody waits for the lease when it comes, it is given back with all
    /// of its time.
    ///
    /// # Errors
    /// This call gives no lease. If an attempt may have leased an id, that id is taken back in the
    /// background.
    pub fn lease<'a>(
        self: &'a Arc<Self>,
        store: &'a str,
        wanted: LeaseWanted,
    ) -> BoxFuture<'a, Result<LeaseGrant, LeaseError>> {
        Box::pin(async move {
            let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
            let stores = Arc::clone(self);
            let (answer, receiver) = oneshot::channel();
            let leasing = async move {
                let leased = stores.at(index).lease(wanted, index).await;
                stores.tell(answer, leased);
            };
            self.at(index).tasks().spawn(leasing.in_current_span());
            // The sender is gone only if the store is, at the end.
            receiver.await.unwrap_or(Err(LeaseError::Unavailable))
        })
    }

    /// Renews a lease: what was reserved stays reserved, and more time is reserved. Without a
    /// `ttl`, the lease lasts as long as it was asked for before.
    ///
    /// # Errors
    /// The lease is as it was, or with `MayHaveHappened` perhaps renewed. You can ask again.
    pub fn renew_lease<'a>(
        self: &'a Arc<Self>,
        key: &'a LeaseKey,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<LeaseGrant, LeaseError>> {
        Box::pin(async move {
            let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
            let (key, tasks) = (key.clone(), database.tasks().clone());
            let renewing = async move {
                let until = Instant::now() + database.settings.deadline;
                database.renew_lease(&key, ttl, until).await
            };
            ended(tasks.spawn(renewing.in_current_span()).await)
        })
    }

    /// Gives a lease back. The caller says that no id was issued with a time at or after
    /// `unused_from_ms`. Without this time, the id rests until all of its time has passed.
    ///
    /// # Errors
    /// The lease may be held until it expires. You can ask again.
    pub fn give_back_lease<'a>(
        self: &'a Arc<Self>,
        key: &'a LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> BoxFuture<'a, Result<(), LeaseError>> {
        Box::pin(async move {
            let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
            let (key, tasks) = (key.clone(), database.tasks().clone());
            let ending = async move {
                let until = Instant::now() + database.settings.deadline;
                database.give_back_lease(&key, unused_from_ms, until).await
            };
            ended(tasks.spawn(ending.in_current_span()).await)
        })
    }

    /// Builds the lease from a token that a caller shows.
    ///
    /// # Errors
    /// `Lost` if the text cannot be a token. `Unavailable` if there is no such store.
    pub fn lease_by_token(
        &self,
        store: &str,
        pool: WorkerPool,
        worker: u32,
        token: &str,
    ) -> Result<LeaseKey, LeaseError> {
        Ok(LeaseKey {
            pool,
            worker,
            token: Token::parse(token).ok_or(LeaseError::Lost)?,
            version: 0,
            n_recoveries: 0,
            store: self.index_of(store).ok_or(LeaseError::Unavailable)?,
        })
    }

    /// Returns the ids of a pool that were ever leased and are above `after`, at most `limit` of
    /// them. The lowest ids come first.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn leases_after<'a>(
        &'a self,
        store: &'a str,
        pool: &'a WorkerPool,
        after: Option<u32>,
        limit: u64,
    ) -> BoxFuture<'a, Result<Vec<LeaseRow>, LeaseError>> {
        Box::pin(async move {
            let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
            let limit = limit.min(MAX_LISTED + 1);
            self.at(index).lease_rows(pool, after, limit).await
        })
    }

    /// Returns one id of a pool. Returns `None` if the id was never leased.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn lease_row<'a>(
        &'a self,
        store: &'a str,
        pool: &'a WorkerPool,
        worker: u32,
    ) -> BoxFuture<'a, Result<Option<LeaseRow>, LeaseError>> {
        Box::pin(async move {
            let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
            let database = self.at(index).database_of(worker)?;
            let rows = database.lease_rows(pool, worker.checked_sub(1), 1).await?;
            Ok(rows.into_iter().find(|row| row.worker == worker))
        })
    }

    /// Sends the outcome to the caller of a lease. If nobody waits for it any more, the lease is
    /// given back.
    fn tell(
        &self,
        answer: oneshot::Sender<Result<LeaseGrant, LeaseError>>,
        leased: Result<LeaseGrant, LeaseError>,
    ) {
        if let Err(Ok(lease)) = answer.send(leased) {
            tracing::debug!(target: TARGET, "a lease that nobody waits for any more is given back");
            if let Ok(database) = self.at(lease.key.store).database_of(lease.key.worker) {
                database.take_back(lease.key, lease.from_ms, lease.ttl);
            }
        }
    }
}

/// Returns the outcome of a task. Only the end of this process stops such a task.
fn ended<T>(outcome: Result<Result<T, LeaseError>, JoinError>) -> Result<T, LeaseError> {
    outcome.unwrap_or(Err(LeaseError::MayHaveHappened))
}
