//! Leases of all stores.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, task::JoinError};
use tracing::Instrument as _;

use crate::Stores;
use crate::kind::Store;
use crate::worker_lease::{
    lease::{LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_LISTED, WorkerPool},
    optimistic::First,
    token::Token,
    uncertainty::UncertainCall,
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::worker_lease";

impl Stores {
    /// Leases a worker id. One that comes when nobody waits for it any more is given back with all of
    /// its time.
    ///
    /// # Errors
    /// Nobody got one by this call.
    pub async fn lease(
        self: &Arc<Self>,
        store: &str,
        wanted: LeaseWanted,
    ) -> Result<LeaseGrant, LeaseError> {
        let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
        let mut asking = self.at(index).ask(wanted, index);
        let stores = Arc::clone(self);
        let (answer, receiver) = oneshot::channel();
        // Here first: what is done at once need not be handed to another thread.
        let leasing = async move {
            match stores.at(index).lease_first(&mut asking).await {
                Ok(None) => {
                    let handle = stores.at(index).handle().clone();
                    let going_on = async move {
                        let leased = stores.at(index).lease(asking).await;
                        stores.tell(answer, leased);
                    };
                    handle.spawn(going_on.in_current_span());
                }
                Ok(Some(lease)) => stores.tell(answer, Ok(lease)),
                Err(error) => stores.tell(answer, Err(error)),
            }
        };
        tokio::spawn(leasing.in_current_span());
        // Gone only with the store, at the end.
        receiver.await.unwrap_or(Err(LeaseError::Unavailable))
    }

    /// Renews a lease: what was reserved stays reserved, and more is. Without a `ttl` as long as it
    /// was asked for before.
    ///
    /// # Errors
    /// It stands as it stood, or as renewed with `MayHaveHappened`; asking again does no harm.
    pub async fn renew_lease(
        self: &Arc<Self>,
        key: &LeaseKey,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<LeaseGrant, LeaseError> {
        let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
        let (key, ttl) = (key.clone(), ttl.into());
        to_its_end(async move {
            let until = Instant::now() + database.settings.deadline;
            let mut doubt = UncertainCall::default();
            if let Some(lease) = database.renew_first(&key, ttl, until, &mut doubt).await? {
                return Ok(lease);
            }
            let handle = database.handle().clone();
            let renewing = async move { database.renew_lease(&key, ttl, until, doubt).await };
            ended(handle.spawn(renewing.in_current_span()).await)
        })
        .await
    }

    /// Gives a lease back. Nothing was stamped at or after `unused_from_ms`; without that the id rests
    /// until all of its time has passed.
    ///
    /// # Errors
    /// It may be held until it expires; asking again does no harm.
    pub async fn give_back_lease(
        self: &Arc<Self>,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> Result<(), LeaseError> {
        let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
        let key = key.clone();
        to_its_end(async move {
            let until = Instant::now() + database.settings.deadline;
            let mut doubt = UncertainCall::default();
            let began = Instant::now();
            let first = database.end_first(&key, unused_from_ms, until, &mut doubt);
            let met_since = match first.await? {
                First::Ended => return Ok(()),
                First::Unknown => None,
                First::Otherwise => Some(began),
            };
            let handle = database.handle().clone();
            let ending = async move {
                let ending =
                    database.give_back_lease(&key, unused_from_ms, until, doubt, met_since);
                ending.await
            };
            ended(handle.spawn(ending.in_current_span()).await)
        })
        .await
    }

    /// The lease that somebody shows a token of.
    ///
    /// # Errors
    /// `Lost` where it cannot be a token, `Unavailable` where there is no such store.
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
            era: 0,
            store: self.index_of(store).ok_or(LeaseError::Unavailable)?,
        })
    }

    /// The ids of a pool that were ever leased, the lowest first, at most [`MAX_LISTED`].
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn leases(
        &self,
        store: &str,
        pool: &WorkerPool,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        self.leases_after(store, pool, None, MAX_LISTED).await
    }

    /// As [`Stores::leases`], behind a worker id and at most so many.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn leases_after(
        &self,
        store: &str,
        pool: &WorkerPool,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        let store = self.store_of_leases(store)?;
        store
            .lease_rows(pool, after, limit.min(MAX_LISTED + 1))
            .await
    }

    /// One id of a pool; `None` where it was never leased.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn lease_row(
        &self,
        store: &str,
        pool: &WorkerPool,
        worker: u32,
    ) -> Result<Option<LeaseRow>, LeaseError> {
        self.store_of_leases(store)?.lease_row(pool, worker).await
    }

    /// Tells who asked for a lease; where nobody waits for it any more it is given back.
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

/// Runs what must not stop half-way when its caller gives up.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, LeaseError>> + Send + 'static,
) -> Result<T, LeaseError> {
    ended(tokio::spawn(work.in_current_span()).await)
}

/// What came of a task, which only the end of this process stops.
pub(crate) fn ended<T>(outcome: Result<Result<T, LeaseError>, JoinError>) -> Result<T, LeaseError> {
    outcome.unwrap_or(Err(LeaseError::MayHaveHappened))
}
