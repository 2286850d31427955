//! Ends leases without their tokens, for an operator.
//!
//! A holder learns of it only when it renews its lease. Until then it stamps the time that it has
//! reserved. So an id that is released rests until that time has passed, and no time is stamped
//! twice.

use std::{sync::Arc, time::Instant};

use futures_util::future::{BoxFuture, join_all};
use tracing::Instrument as _;

use super::{
    attempt::{LeaseAttempted, certain},
    baseline::SentAt,
    lease::{LeaseError, WorkerPool},
    look, statements,
};
use crate::{database::Database, store::Store, stores::Stores};

impl Stores {
    /// Ends all leases of a pool, or that of one id, and voids their tokens. Leases that have ended
    /// already are as they were.
    ///
    /// # Errors
    /// Some leases may go on. You can ask again.
    pub fn release_workers<'a>(
        &'a self,
        store: &'a str,
        pool: WorkerPool,
        worker: Option<u32>,
    ) -> BoxFuture<'a, Result<(), LeaseError>> {
        Box::pin(async move {
            let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
            let store = Arc::clone(self.at(index));
            let (until, tasks) = (store.deadline(), store.tasks().clone());
            let releasing = async move { store.release_workers(&pool, worker, until).await };
            let ended = tasks.spawn(releasing.in_current_span()).await;
            ended.unwrap_or(Err(LeaseError::MayHaveHappened))
        })
    }
}

impl Store {
    /// Releases the ids of a pool in every database, or one id in its database.
    async fn release_workers(
        &self,
        pool: &WorkerPool,
        worker: Option<u32>,
        until: Instant,
    ) -> Result<(), LeaseError> {
        let databases = match worker {
            Some(worker) => vec![self.database_of(worker)?],
            None => self.databases().collect(),
        };
        let releasing = databases
            .into_iter()
            .map(|database| database.release_workers(pool, worker, until));
        join_all(releasing).await.into_iter().collect()
    }
}

impl Database {
    async fn release_workers(
        &self,
        pool: &WorkerPool,
        worker: Option<u32>,
        until: Instant,
    ) -> Result<(), LeaseError> {
        let releasing = self.repeated(until, |_| self.try_to_release(pool, worker, until));
        releasing.await
    }

    async fn try_to_release(
        &self,
        pool: &WorkerPool,
        worker: Option<u32>,
        until: Instant,
    ) -> LeaseAttempted<()> {
        let (sent, guard) = (SentAt::read(), self.guard()?);
        let (key, guard_copy) = (pool.key(), guard.clone());
        let releasing = self.connection.run(until, |database| {
            statements::release(database, key, worker, guard_copy)
        });
        if releasing.await? > 0 {
            return Ok(());
        }
        // There was no lease, or the guard did not hold: a look tells which.
        let (key, guard_copy) = (pool.key(), guard.clone());
        let looking = self.connection.run(until, |database| {
            look::read_lease(database, guard_copy, key, worker.unwrap_or(0))
        });
        let (read, _) = looking.await.map_err(certain)?;
        self.check_read(&read, guard, sent)?;
        Ok(())
    }
}
