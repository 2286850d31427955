//! Offers the leases of one store of any kind. Redis plays no part in them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;

use super::{
    grant::LeaseCall,
    lease::{LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, WorkerPool},
};
use crate::{
    database::Database,
    kind::{Databases, Store},
};

impl Store {
    /// Begins a call for a lease, from the store at this place in the configuration.
    pub(crate) fn ask(&self, wanted: LeaseWanted, place: usize) -> LeaseCall {
        let time_limit = match self.databases() {
            Databases::One(database) => database.settings.deadline,
            Databases::Several(striped) => striped.bounds.deadline,
        };
        LeaseCall::new(wanted, place, Instant::now() + time_limit)
    }

    /// Makes the first attempt, if one database has all ids. Returns `None` if other attempts have
    /// to follow.
    pub(crate) async fn lease_first(
        &self,
        asking: &mut LeaseCall,
    ) -> Result<Option<LeaseGrant>, LeaseError> {
        match self.databases() {
            Databases::One(database) => database.lease_first(asking).await,
            Databases::Several(_) => Ok(None),
        }
    }

    pub(crate) async fn lease(&self, asking: LeaseCall) -> Result<LeaseGrant, LeaseError> {
        let leased = match self.databases() {
            Databases::One(database) => database.lease(asking).await,
            Databases::Several(striped) => striped.lease(&asking.wanted, asking.store).await,
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

    /// Returns the database that has a worker id.
    pub(crate) fn database_of(&self, worker: u32) -> Result<&Arc<Database>, LeaseError> {
        match self.databases() {
            Databases::One(database) => Ok(database),
            Databases::Several(striped) => striped.owner_of(worker),
        }
    }

    /// Takes a lease back in the background that nobody has. None of its time was used.
    pub(crate) fn take_back(&self, key: LeaseKey, from_ms: i64, ttl: Duration) {
        if let Ok(database) = self.database_of(key.worker) {
            database.take_back(key, from_ms, ttl);
        }
    }

    pub(crate) async fn lease_rows(
        &self,
        pool: &WorkerPool,
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

    pub(crate) async fn lease_row(
        &self,
        pool: &WorkerPool,
        worker: u32,
    ) -> Result<Option<LeaseRow>, LeaseError> {
        self.database_of(worker)?.lease_row(pool, worker).await
    }
}
