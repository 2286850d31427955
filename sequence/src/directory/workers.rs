//! Leases worker ids to other programs, which have a snowflake library of their own.
//!
//! These worker ids live in the default store, in pools of their own. No sequence uses their ids.

use std::{sync::Arc, time::Duration};

use odometer_core::{definition::DEFAULT_STORE, name::SequenceName};
use thiserror::Error;
use tracing::Instrument as _;

use crate::directory::calls::Directory;
use crate::lifecycle::audit::{self, Author};

pub use odometer_store::{
    LONGEST_TTL, LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_BITS, MAX_LISTED,
    WorkerChoice, WorkerPool,
};

/// Why a call about a worker id failed. The message is public.
#[derive(Clone, Debug, Error)]
pub enum WorkerError {
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error("This replica is shutting down; ask another one.")]
    Draining,
}

impl Directory {
    /// Leases a worker id to another program. If the call is cancelled, a worker id that comes
    /// later is given back.
    ///
    /// # Errors
    /// No worker id was given. With `MayHaveHappened` one may have been leased, and is taken back
    /// soon.
    pub async fn lease_worker(&self, wanted: LeaseWanted) -> Result<LeaseGrant, WorkerError> {
        self.serves_workers()?;
        Ok(self.shared.store.lease(DEFAULT_STORE, wanted).await?)
    }

    /// Returns the lease of a program that shows its token. Whether the lease is the program's is
    /// checked when it is renewed or given back.
    ///
    /// # Errors
    /// `Draining`, or `Lost` if the text cannot be a token.
    pub fn shown_lease(
        &self,
        pool: SequenceName,
        worker: u32,
        token: &str,
    ) -> Result<LeaseKey, WorkerError> {
        self.serves_workers()?;
        let (store, pool) = (&self.shared.store, WorkerPool::Named(pool));
        Ok(store.lease_by_token(DEFAULT_STORE, pool, worker, token)?)
    }

    /// Renews a lease. Without `ttl`, the lease lasts as long as before.
    ///
    /// # Errors
    /// The lease is unchanged. With `MayHaveHappened` it may have been renewed.
    pub async fn renew_worker(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
    ) -> Result<LeaseGrant, WorkerError> {
        Ok(self.shared.store.renew_lease(key, ttl).await?)
    }

    /// Takes back a worker id. Its holder has issued no id with the time `unused_from_ms` or later.
    ///
    /// # Errors
    /// The lease is unchanged. With `MayHaveHappened` it may have ended.
    pub async fn give_back_worker(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> Result<(), WorkerError> {
        let store = &self.shared.store;
        Ok(store.give_back_lease(key, unused_from_ms).await?)
    }

    /// Voids the tokens of all leases of a pool, or that of one id, for an operator. The ids stay
    /// with their holders until the leases expire. The release is completed even if its caller
    /// stops waiting.
    ///
    /// # Errors
    /// Some leases may go on.
    pub async fn release_workers(
        &self,
        pool: SequenceName,
        worker: Option<u32>,
        author: Author,
    ) -> Result<(), WorkerError> {
        self.serves_workers()?;
        let shared = Arc::clone(&self.shared);
        let work = async move {
            let named = WorkerPool::Named(pool.clone());
            let releasing = shared.store.release_workers(DEFAULT_STORE, &named, worker);
            let released = releasing.await;
            audit::note_release(&author, &pool, worker, &released);
            released.outcome
        };
        let done = self.shared.store.finish(work.in_current_span()).await;
        // Only the end of the store can stop the task, and the store ends with the program.
        Ok(done.unwrap_or(Err(LeaseError::MayHaveHappened))?)
    }

    /// Returns the worker ids of a pool that were ever leased and are above `after`, at most
    /// `limit`.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn workers(
        &self,
        pool: &SequenceName,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, WorkerError> {
        let store = &self.shared.store;
        let pool = WorkerPool::Named(pool.clone());
        Ok(store
            .leases_after(DEFAULT_STORE, &pool, after, limit)
            .await?)
    }

    fn serves_workers(&self) -> Result<(), WorkerError> {
        if self.shared.is_drained() {
            return Err(WorkerError::Draining);
        }
        Ok(())
    }
}
