//! Voids the tokens of leases, for an operator.
//!
//! A lease without its token cannot be renewed, so it ends when it expires. Until then its id is
//! given to nobody. This matters after a failover that lost the release: a fence lets leases go on
//! that have not expired, because nobody else can have had their ids. A holder learns of the release
//! when it renews, and may stamp until then the time that it has reserved.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use futures_util::future::{BoxFuture, join_all};
use odometer_database::{failure::StatementFailure, retry::AttemptError};

use super::{
    attempt::{LeaseAttempted, certain},
    baseline::SentAt,
    lease::{LeaseError, WorkerPool},
    look, statements,
};
use crate::{database::Database, store::Store, stores::Stores};

/// How many ids of a pool one statement releases.
const PAGE: u32 = 4096;

/// What a release has done.
#[derive(Debug)]
pub struct ReleasedWorkers {
    /// How many leases have lost their token, at least. Those that had expired count, too.
    pub n_leases: u64,
    /// Whether there may be more of them: a database has not said what it did.
    pub may_be_more: bool,
    /// Whether all of it is done. If not, you can ask again.
    pub outcome: Result<(), LeaseError>,
}

impl Stores {
    /// Voids the tokens of all leases of a pool, or that of one id.
    pub fn release_workers<'a>(
        &'a self,
        store: &'a str,
        pool: &'a WorkerPool,
        worker: Option<u32>,
    ) -> BoxFuture<'a, ReleasedWorkers> {
        Box::pin(async move {
            match self.index_of(store) {
                Some(index) => self.at(index).release_workers(pool, worker).await,
                None => ReleasedWorkers {
                    n_leases: 0,
                    may_be_more: false,
                    outcome: Err(LeaseError::Unavailable),
                },
            }
        })
    }
}

impl Store {
    /// Releases the ids of a pool in every database, or one id in its database.
    async fn release_workers(&self, pool: &WorkerPool, worker: Option<u32>) -> ReleasedWorkers {
        let is_asked =
            |database: &&Arc<Database>| worker.is_none_or(|worker| database.has_worker(worker));
        let releasing = self
            .databases()
            .filter(is_asked)
            .map(|database| database.release_workers(pool, worker));
        let mut all = ReleasedWorkers {
            n_leases: 0,
            may_be_more: false,
            outcome: Ok(()),
        };
        for one in join_all(releasing).await {
            all.n_leases = all.n_leases.saturating_add(one.n_leases);
            all.may_be_more |= one.may_be_more;
            all.outcome = all.outcome.and(one.outcome);
        }
        all
    }
}

impl Database {
    /// Releases the ids page by page: a pool may have millions of them.
    async fn release_workers(&self, pool: &WorkerPool, worker: Option<u32>) -> ReleasedWorkers {
        let mut n_leases: u64 = 0;
        let may_be_more = AtomicBool::new(false);
        let releasing = async {
            let (mut first, last) = match worker {
                Some(worker) => (worker, worker),
                None => (0, self.last_worker(pool).await?),
            };
            loop {
                let end = last.min(first.saturating_add(PAGE - 1));
                let until = self.deadline();
                let page = |_| self.try_to_release(pool, first..=end, until, &may_be_more);
                n_leases = n_leases.saturating_add(self.repeated(until, page).await?);
                if end >= last {
                    return Ok(());
                }
                first = end.saturating_add(1);
            }
        };
        let outcome = releasing.await;
        ReleasedWorkers {
            n_leases,
            may_be_more: may_be_more.into_inner(),
            outcome,
        }
    }

    /// Returns the highest id of a pool that has a row, or 0.
    async fn last_worker(&self, pool: &WorkerPool) -> Result<u32, LeaseError> {
        let until = self.deadline();
        let reading = |_| {
            let key = pool.key();
            let reading = self
                .connection
                .run(until, |database| look::last_worker(database, key));
            async { Ok(reading.await.map_err(certain)?) }
        };
        self.repeated(until, reading).await
    }

    async fn try_to_release(
        &self,
        pool: &WorkerPool,
        ids: RangeInclusive<u32>,
        until: Instant,
        may_be_more: &AtomicBool,
    ) -> LeaseAttempted<u64> {
        let (sent, guard) = (SentAt::read(), self.guard()?);
        let (key, of, guard_copy) = (pool.key(), ids.clone(), guard.clone());
        let releasing = self.connection.run(until, |database| {
            statements::release(database, key, of, guard_copy)
        });
        let n_released = releasing.await.inspect_err(|failure| {
            let is_uncertain = matches!(failure, StatementFailure::MayHaveCommitted(_));
            may_be_more.fetch_or(is_uncertain, Ordering::Relaxed);
        })?;
        if n_released > 0 {
            return Ok(n_released);
        }
        // There was no token, or the guard did not hold: a look tells which.
        let (key, guard_copy) = (pool.key(), guard.clone());
        let looking = self.connection.run(until, |database| {
            look::has_token(database, guard_copy, key, ids)
        });
        let (read, has_token) = looking.await.map_err(certain)?;
        self.check_read(&read, guard, sent)?;
        if has_token {
            return Err(AttemptError::Conflict);
        }
        Ok(0)
    }
}
