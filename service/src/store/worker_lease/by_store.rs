//! Leases of a store, of whichever kind; Redis has no part in them.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::{LeaseError, LeaseKey, LeaseRow, LeaseWanted, Pool, WorkerLease};
use crate::store::kind::{Databases, Store};

impl Store {
    pub(super) async fn lease(
        &self,
        wanted: &LeaseWanted,
        store: usize,
    ) -> Result<WorkerLease, LeaseError> {
        let leased = match self.databases() {
            Databases::One(database) => {
                let until = Instant::now() + database.settings.deadline;
                database.lease(wanted, store, until).await
            }
            Databases::Several(striped) => striped.lease(wanted, store).await,
        };
        let is_taken = matches!(
            leased,
            Err(LeaseError::NoneFree { .. }
                | LeaseError::NoneUsable { .. }
                | LeaseError::Held { .. })
        );
        if is_taken {
            self.metrics().worker_leases_refused.increment(1);
        }
        leased
    }

    pub(super) async fn renew(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
    ) -> Result<WorkerLease, LeaseError> {
        match self.databases() {
            Databases::One(database) => database.renew_lease(key, ttl).await,
            Databases::Several(striped) => {
                let database = striped.owner_of(key.worker)?;
                database.renew_lease(key, ttl).await
            }
        }
    }

    pub(super) async fn give_back(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> Result<(), LeaseError> {
        match self.databases() {
            Databases::One(database) => database.give_back_lease(key, unused_from_ms).await,
            Databases::Several(striped) => {
                let database = striped.owner_of(key.worker)?;
                database.give_back_lease(key, unused_from_ms).await
            }
        }
    }

    pub(super) async fn lease_rows(
        &self,
        pool: &Pool,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        match self.databases() {
            Databases::One(database) => database.lease_rows(pool, after, limit).await,
            Databases::Several(striped) => {
                let all = striped.databases();
                let reading = all.map(|database| database.lease_rows(pool, after, limit));
                let mut rows = try_join_all(reading).await?.concat();
                rows.sort_by_key(|row| row.worker);
                rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                Ok(rows)
            }
        }
    }

    pub(super) async fn lease_row(
        &self,
        pool: &Pool,
        worker: u32,
    ) -> Result<Option<LeaseRow>, LeaseError> {
        match self.databases() {
            Databases::One(database) => database.lease_row(pool, worker).await,
            Databases::Several(striped) => striped.owner_of(worker)?.lease_row(pool, worker).await,
        }
    }
}
