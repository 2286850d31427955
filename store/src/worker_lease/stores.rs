//! Offers the leases of all stores.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use odometer_core::name::SequenceName;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{
    lease::{LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_LISTED, WorkerPool},
    token::Token,
};
use crate::{database::Database, store::Store, stores::Stores};

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
        &'a self,
        store: &'a str,
        wanted: LeaseWanted,
    ) -> BoxFuture<'a, Result<LeaseGrant, LeaseError>> {
        Box::pin(async move {
            let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
            let store = Arc::clone(self.at(index));
            let (until, tasks) = (store.deadline(), store.tasks().clone());
            let (answer, receiver) = oneshot::channel();
            let leasing = async move {
                let leased = store.lease(wanted, until).await;
                store.count_refusal(&leased);
                if let Err(Ok(lease)) = answer.send(leased) {
                    store.take_back(lease);
                }
            };
            tasks.spawn(leasing.in_current_span());
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
        &'a self,
        key: &'a LeaseKey,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<LeaseGrant, LeaseError>> {
        Box::pin(self.to_its_end(key, async move |database, key, until| {
            database.renew_lease(&key, ttl, until).await
        }))
    }

    /// Gives a lease back. The caller says that no id was issued with a time at or after
    /// `unused_from_ms`. Without this time, the id rests until all of its time has passed.
    ///
    /// # Errors
    /// The lease may be held until it expires. You can ask again.
    pub fn give_back_lease<'a>(
        &'a self,
        key: &'a LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> BoxFuture<'a, Result<(), LeaseError>> {
        Box::pin(self.to_its_end(key, async move |database, key, until| {
            database.give_back_lease(&key, unused_from_ms, until).await
        }))
    }

    /// Runs a call about a lease to its end, even if its caller hangs up. Only the end of this
    /// process stops it.
    async fn to_its_end<T, Fut>(
        &self,
        key: &LeaseKey,
        call: impl FnOnce(Arc<Database>, LeaseKey, Instant) -> Fut,
    ) -> Result<T, LeaseError>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, LeaseError>> + Send + 'static,
    {
        let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
        let (until, tasks) = (database.deadline(), database.tasks().clone());
        let call = call(database, key.clone(), until);
        let ended = tasks.spawn(call.in_current_span()).await;
        ended.unwrap_or(Err(LeaseError::MayHaveHappened))
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

    /// Returns how many ids are held in pools of other programs whose names begin with `prefix`. A
    /// pool may come several times, once for each database that has ids of it.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub fn held_ids<'a>(
        &'a self,
        store: &'a str,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<(SequenceName, u64)>, LeaseError>> {
        Box::pin(async move {
            let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
            self.at(index).held_ids(prefix).await
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
}

impl Store {
    /// Counts a call that got no id because others have them.
    fn count_refusal(&self, leased: &Result<LeaseGrant, LeaseError>) {
        use LeaseError::{Held, NoneFree, NoneUsable};
        if let Err(NoneFree { .. } | NoneUsable { .. } | Held { .. }) = leased {
            self.metrics.worker_leases_refused.increment(1);
        }
    }

    /// Takes back a lease that nobody waits for any more.
    fn take_back(&self, lease: LeaseGrant) {
        tracing::debug!(target: TARGET, "a lease that nobody waits for any more is given back");
        if let Ok(database) = self.database_of(lease.key.worker) {
            database.take_back(lease.key, lease.from_ms, lease.ttl);
        }
    }
}
