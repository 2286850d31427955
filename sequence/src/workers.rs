//! Leases worker ids to other programs, which have a snowflake library of their own.
//!
//! These worker ids live in the default store, in pools of their own. No sequence uses their ids.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use odometer_core::{definition::DEFAULT_STORE, name::SequenceName};
use odometer_store::{LeaseError, LeaseKey, LeaseWanted};
use odometer_store::{LeaseGrant, WorkerChoice, WorkerPool};
use thiserror::Error;

use crate::directory::Directory;

pub use odometer_store::{LONGEST_TTL, LeaseRow, MAX_BITS, MAX_LISTED};

/// What a program asks for.
#[derive(Clone, Debug)]
pub struct WorkerWanted {
    pub pool: SequenceName,
    /// Width of the worker ids in bits: 1 to [`MAX_BITS`].
    pub bits: u32,
    /// How far ahead time is reserved, and how long the lease lasts; at most [`LONGEST_TTL`].
    pub ttl: Duration,
    /// The name of the program, which is the same after a restart of the program.
    pub holder: Arc<str>,
}

/// A worker id, with the proof that the caller holds it.
#[derive(Clone, Debug)]
pub struct LeaseProof<'a> {
    pub pool: SequenceName,
    pub worker: u32,
    /// The secret that proves the lease.
    pub token: &'a str,
}

/// A worker id that a program holds.
#[derive(Clone, Debug)]
pub struct WorkerHeld {
    pub pool: SequenceName,
    pub worker: u32,
    /// The secret that proves the lease.
    pub token: String,
    /// Ids may only have times in [`from_ms`, `until_ms`), in Unix milliseconds.
    pub from_ms: i64,
    pub until_ms: i64,
    pub ttl: Duration,
}

impl WorkerHeld {
    fn of(pool: SequenceName, lease: &LeaseGrant) -> Self {
        Self {
            pool,
            worker: lease.key.worker,
            token: lease.key.token().to_owned(),
            from_ms: lease.from_ms,
            until_ms: lease.until_ms,
            ttl: lease.ttl,
        }
    }
}

/// Why a call about a worker id failed. The message is public.
#[derive(Clone, Debug, Error)]
pub enum WorkerError {
    #[error(
        "All {workers} worker ids of the pool are taken; one is free when its lease ends or it is \
         given back."
    )]
    NoneFree { workers: u32 },
    #[error("The unused time of each free worker id begins later, at {from_ms} (Unix ms) first.")]
    NoneUsable { from_ms: i64 },
    #[error(
        "The lease is lost: it is not the holder's, was given back, or ended and somebody else has \
         the id. Stamp nothing any more, and lease anew."
    )]
    Lost,
    #[error("`bits` cannot change any more: the worker ids of this pool have {bits} bits.")]
    OtherWidth { bits: u32 },
    #[error("There are {limit} pools, as many as there may be; use one that is there.")]
    TooManyPools { limit: u64 },
    #[error("`unused_from_ms` has to lie in the time of the lease, from {from_ms} to {until_ms}.")]
    NotOfTheLease { from_ms: i64, until_ms: i64 },
    #[error(
        "The clock of this replica is {seconds} s ahead of the database's, more than 5 minutes: \
         no time is reserved by it; see the runbook, \"Clocks apart\"."
    )]
    ClockAhead { seconds: i64 },
    #[error("The database's schema knows no worker ids yet: run `odometer migrate`.")]
    OldSchema,
    #[error("The database gives no worker ids now; try again.")]
    StoreUnavailable,
    #[error(
        "The database holds less than this replica has seen in it: it was restored or failed over. \
         No worker id is leased until an operator has looked; see the runbook, \"store went back\"."
    )]
    StoreWentBack,
    #[error("It could not be done in time; try again.")]
    Timeout,
    #[error(
        "The database has not said whether it was done: it may have been. Asking again is safe."
    )]
    MayHaveHappened,
    #[error("This replica is shutting down; ask another one.")]
    Draining,
}

impl From<LeaseError> for WorkerError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::NoneFree { workers } => Self::NoneFree { workers },
            LeaseError::NoneUsable { from_ms } => Self::NoneUsable { from_ms },
            // Only a request for one particular worker id gets this error, and no such request is
            // made here.
            LeaseError::Held { .. } => Self::NoneFree { workers: 1 },
            LeaseError::Lost => Self::Lost,
            LeaseError::OtherWidth { bits } => Self::OtherWidth { bits },
            LeaseError::TooManyPools { limit } => Self::TooManyPools { limit },
            LeaseError::NotOfTheLease { from_ms, until_ms } => {
                Self::NotOfTheLease { from_ms, until_ms }
            }
            LeaseError::ClockAhead { by_ms } => Self::ClockAhead {
                seconds: by_ms / 1000,
            },
            LeaseError::OldSchema => Self::OldSchema,
            LeaseError::Unavailable => Self::StoreUnavailable,
            LeaseError::Deadline => Self::Timeout,
            LeaseError::WentBack => Self::StoreWentBack,
            LeaseError::MayHaveHappened => Self::MayHaveHappened,
        }
    }
}

impl Directory {
    /// Leases a worker id to another program. If the call is cancelled, a worker id that comes
    /// later is given back.
    ///
    /// # Errors
    /// No worker id was given. With `MayHaveHappened` one may have been leased, and is taken back
    /// soon.
    pub async fn lease_worker(&self, wanted: WorkerWanted) -> Result<WorkerHeld, WorkerError> {
        self.serves_workers()?;
        let pool = wanted.pool;
        let wanted = LeaseWanted {
            pool: WorkerPool::Named(pool.clone()),
            bits: wanted.bits,
            holder: wanted.holder,
            ttl: wanted.ttl,
            choice: WorkerChoice::Any,
            usable_by_ms: None,
        };
        let lease = self.shared.store.lease(DEFAULT_STORE, wanted).await?;
        Ok(WorkerHeld::of(pool, &lease))
    }

    /// Renews a lease. Without `ttl`, the lease lasts as long as before.
    ///
    /// # Errors
    /// The lease is unchanged. With `MayHaveHappened` it may have been renewed.
    pub async fn renew_worker(
        &self,
        shown: &LeaseProof<'_>,
        ttl: Option<Duration>,
    ) -> Result<WorkerHeld, WorkerError> {
        let key = self.worker_key(shown)?;
        let lease = self.shared.store.renew_lease(&key, ttl).await?;
        Ok(WorkerHeld::of(shown.pool.clone(), &lease))
    }

    /// Takes back a worker id. Its holder has issued no id with the time `unused_from_ms` or later.
    ///
    /// # Errors
    /// The lease is unchanged. With `MayHaveHappened` it may have ended.
    pub async fn give_back_worker(
        &self,
        shown: &LeaseProof<'_>,
        unused_from_ms: Option<i64>,
    ) -> Result<(), WorkerError> {
        let key = self.worker_key(shown)?;
        let store = &self.shared.store;
        Ok(store.give_back_lease(&key, unused_from_ms).await?)
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

    fn worker_key(&self, shown: &LeaseProof<'_>) -> Result<LeaseKey, WorkerError> {
        self.serves_workers()?;
        let pool = WorkerPool::Named(shown.pool.clone());
        let store = &self.shared.store;
        Ok(store.lease_by_token(DEFAULT_STORE, &pool, shown.worker, shown.token)?)
    }

    fn serves_workers(&self) -> Result<(), WorkerError> {
        if self.shared.is_drained.load(Ordering::Acquire) {
            return Err(WorkerError::Draining);
        }
        Ok(())
    }
}
