//! Offers the leases of all stores.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio::{sync::oneshot, task::JoinError};
use tracing::Instrument as _;

use crate::Stores;
use crate::store::Store;
use crate::worker_lease::{
    lease::{LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_LISTED, WorkerPool},
    optimistic::First,
    token::Token,
    uncertainty::UncertainCall,
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
            let mut asking = self.at(index).lease_call(wanted, index);
            let stores = Arc::clone(self);
            let (answer, receiver) = oneshot::channel();
            // The first attempt runs here, because work that needs no waiting need not go to another
            // thread.
            let leasing = async move {
                match stores.at(index).lease_first(&mut asking).await {
                    Ok(None) => {
                        let tasks = stores.at(index).tasks().clone();
                        let going_on = async move {
                            let leased = stores.at(index).lease(asking).await;
                            stores.tell(answer, leased);
                        };
                        tasks.spawn(going_on.in_current_span());
                    }
                    Ok(Some(lease)) => stores.tell(answer, Ok(lease)),
                    Err(error) => stores.tell(answer, Err(error)),
                }
            };
            tokio::spawn(leasing.in_current_span());
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
            let key = key.clone();
            to_its_end(async move {
                let until = Instant::now() + database.settings.deadline;
                let mut call = UncertainCall::default();
                if let Some(lease) = database.renew_first(&key, ttl, until, &mut call).await? {
                    return Ok(lease);
                }
                let tasks = database.tasks().clone();
                let renewing = async move { database.renew_lease(&key, ttl, until, call).await };
                ended(tasks.spawn(renewing.in_current_span()).await)
            })
            .await
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
            let key = key.clone();
            to_its_end(async move {
                let until = Instant::now() + database.settings.deadline;
                let mut call = UncertainCall::default();
                let began = Instant::now();
                let first = database.end_first(&key, unused_from_ms, until, &mut call);
                let met_since = match first.await? {
                    First::Ended => return Ok(()),
                    First::Unknown => None,
                    First::Otherwise => Some(began),
                };
                let tasks = database.tasks().clone();
                let ending = async move {
                    let ending =
                        database.give_back_lease(&key, unused_from_ms, until, call, met_since);
                    ending.await
                };
                ended(tasks.spawn(ending.in_current_span()).await)
            })
            .await
        })
    }

    /// Builds the lease from a token that a caller shows.
    ///
    /// # Errors
    /// `Lost` if the text cannot be a token. `Unavailable` if there is no such store.
    pub fn lease_by_token(
        &self,
        store: &str,
        pool: &WorkerPool,
        worker: u32,
        token: &str,
    ) -> Result<LeaseKey, LeaseError> {
        Ok(LeaseKey {
            pool: pool.clone(),
            worker,
            token: Token::parse(token).ok_or(LeaseError::Lost)?,
            version: 0,
            n_recoveries: 0,
            store: self.index_of(store).ok_or(LeaseError::Unavailable)?,
        })
    }

    /// Returns the ids of a pool that were ever leased, at most [`MAX_LISTED`]. The lowest ids come
    /// first.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn leases<'a>(
        &'a self,
        store: &'a str,
        pool: &'a WorkerPool,
    ) -> BoxFuture<'a, Result<Vec<LeaseRow>, LeaseError>> {
        Box::pin(async move { self.leases_after(store, pool, None, MAX_LISTED).await })
    }

    /// Returns ids as [`Stores::leases`] does, but only ids above `after`, and at most `limit` of
    /// them.
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
            let store = self.store_of_leases(store)?;
            store
                .lease_rows(pool, after, limit.min(MAX_LISTED + 1))
                .await
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
        Box::pin(async move { self.store_of_leases(store)?.lease_row(pool, worker).await })
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
            let store = self.at(lease.key.store);
            store.take_back(lease.key, lease.from_ms, lease.ttl);
        }
    }

    fn store_of_leases(&self, name: &str) -> Result<&Store, LeaseError> {
        let index = self.index_of(name).ok_or(LeaseError::Unavailable)?;
        Ok(self.at(index))
    }
}

/// Runs work to its end, even if its caller gives up.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, LeaseError>> + Send + 'static,
) -> Result<T, LeaseError> {
    ended(tokio::spawn(work.in_current_span()).await)
}

/// Returns the outcome of a task. Only the end of this process stops such a task.
pub(crate) fn ended<T>(outcome: Result<Result<T, LeaseError>, JoinError>) -> Result<T, LeaseError> {
    outcome.unwrap_or(Err(LeaseError::MayHaveHappened))
}
