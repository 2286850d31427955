//! Chooses the best worker id, from what is read of its pool.

use entity::worker_lease;
use odometer_database::session::DatabaseConnection;
use odometer_process::faults::{self, Fault};
use rand::distr::uniform::SampleUniform;
use sea_orm::DbErr;

use super::{
    baseline::SentAt,
    lease::{LeaseError, LeaseWanted, MAX_POOLS, Share, WorkerChoice, signed, unsigned, workers},
    look::{self, PoolSummary},
};
use crate::guard::HeartbeatGuard;

/// The most ids to choose among after conflicts.
const MAX_SPREAD: u32 = 64;

/// What one lease asks of a database.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) wanted: LeaseWanted,
    /// The hash of the token that is to be written.
    pub(crate) token_hash: String,
    /// The ids that earlier attempts of this lease may have got.
    pub(crate) uncertain: Vec<u32>,
    /// How many conflicts there were. After conflicts, the choice spreads over more ids.
    pub(crate) n_conflicts: u32,
    pub(crate) share: Share,
    pub(crate) sent: SentAt,
    pub(crate) guard: HeartbeatGuard,
}

/// The id that can be leased, or why there is none.
#[derive(Debug)]
pub(crate) enum LeaseCandidate {
    /// An earlier attempt got this row.
    Ours(worker_lease::Model),
    Free(worker_lease::Model),
    /// This id has no row yet.
    New(u32),
    Refused(LeaseError),
}

/// Reads a pool, and chooses one of its ids.
pub(crate) async fn look(
    database: DatabaseConnection,
    asked: Question,
) -> Result<(PoolSummary, LeaseCandidate), DbErr> {
    let (pool, holder) = (asked.wanted.pool.key(), &asked.wanted.holder);
    let summary = look::read_pool(&database, &asked.guard, &pool, holder).await?;
    let pool = PoolChoice {
        database: &database,
        asked: &asked,
        key: pool,
        summary: &summary,
    };
    let found = pool.choose().await?;
    Ok((summary, found))
}

/// A pool, and what is asked of it.
struct PoolChoice<'a> {
    database: &'a DatabaseConnection,
    asked: &'a Question,
    key: String,
    summary: &'a PoolSummary,
}

impl PoolChoice<'_> {
    async fn choose(&self) -> Result<LeaseCandidate, DbErr> {
        let wanted = &self.asked.wanted;
        if let Some(bits) = self
            .summary
            .bits
            .map(unsigned)
            .filter(|bits| *bits != wanted.bits)
        {
            return Ok(LeaseCandidate::Refused(LeaseError::OtherWidth { bits }));
        }
        for worker in &self.asked.uncertain {
            let row = self.row_of(*worker).await?;
            let is_ours = |row: &worker_lease::Model| row.token_hash == self.asked.token_hash;
            if let Some(row) = row.filter(|row| is_ours(row) && self.is_held(row)) {
                return Ok(LeaseCandidate::Ours(row));
            }
        }
        let found = match wanted.choice {
            WorkerChoice::Exact(worker) => self.find_exactly(worker).await?,
            WorkerChoice::Any => self.find_any().await?,
        };
        let from_ms = match &found {
            LeaseCandidate::Free(row) => self.begins_ms(Some(row)),
            LeaseCandidate::New(_) => self.begins_ms(None),
            LeaseCandidate::Ours(_) | LeaseCandidate::Refused(_) => return Ok(found),
        };
        if !self.is_usable(from_ms) {
            return Ok(LeaseCandidate::Refused(LeaseError::NoneUsable { from_ms }));
        }
        if matches!(found, LeaseCandidate::New(_)) && self.is_one_too_many().await? {
            let limit = MAX_POOLS;
            return Ok(LeaseCandidate::Refused(LeaseError::TooManyPools { limit }));
        }
        Ok(found)
    }

    async fn row_of(&self, worker: u32) -> Result<Option<worker_lease::Model>, DbErr> {
        look::read_row(self.database, &self.key, signed(worker)).await
    }

    /// Says whether the pool is a new one for other programs, and there are enough of those.
    async fn is_one_too_many(&self) -> Result<bool, DbErr> {
        let is_new = self.summary.bits.is_none() && self.asked.wanted.pool.is_named();
        Ok(is_new && look::count_pools(self.database).await? >= MAX_POOLS)
    }

    /// Says whether a lease whose time begins at `from_ms` has any time, and begins early enough.
    fn is_usable(&self, from_ms: i64) -> bool {
        let wanted = &self.asked.wanted;
        let read = &self.summary.read;
        let until_ms = self.asked.sent.until(read.now_ms, wanted.ttl);
        let until_ms = until_ms.min(read.recovery_mark.most_until_ms(read.now_ms, None));
        from_ms < until_ms && wanted.usable_by_ms.is_none_or(|by| from_ms <= by)
    }

    fn begins_ms(&self, row: Option<&worker_lease::Model>) -> i64 {
        let (read, is_named) = (&self.summary.read, self.asked.wanted.pool.is_named());
        read.recovery_mark
            .unused_from_ms(is_named, row, read.now_ms)
    }

    async fn find_exactly(&self, worker: u32) -> Result<LeaseCandidate, DbErr> {
        if worker >= self.end() || !self.asked.share.has(worker) {
            return Ok(self.none());
        }
        Ok(match self.row_of(worker).await? {
            None => LeaseCandidate::New(worker),
            Some(row) if self.is_free(&row) => LeaseCandidate::Free(row),
            Some(_) => LeaseCandidate::Refused(LeaseError::Held { worker }),
        })
    }

    async fn find_any(&self) -> Result<LeaseCandidate, DbErr> {
        let now_ms = self.summary.read.now_ms;
        let former = self.summary.former.map(unsigned);
        if let Some(former) = former.filter(|_| self.asked.n_conflicts == 0)
            && let Some(row) = self.row_of(former).await?
            && self.is_free(&row)
            && self.is_usable(self.begins_ms(Some(&row)))
        {
            return Ok(LeaseCandidate::Free(row));
        }
        let fresh_ms = self.begins_ms(None);
        let is_fresh_good = fresh_ms <= now_ms && self.is_usable(fresh_ms);
        if is_fresh_good && let Some(fresh) = self.above_all() {
            return Ok(LeaseCandidate::New(fresh));
        }
        let (end, most) = (self.end(), self.spread());
        let mut free = look::free_rows(self.database, &self.key, end, most).await?;
        let first_ms = free.first().map(|row| self.begins_ms(Some(row)));
        let is_first_usable = first_ms.is_some_and(|first_ms| self.is_usable(first_ms));
        let is_first_best = first_ms
            .is_some_and(|first_ms| first_ms < fresh_ms || (first_ms <= now_ms && is_first_usable));
        if !is_first_best && let Some(fresh) = self.fresh().await? {
            return Ok(LeaseCandidate::New(fresh));
        }
        if is_first_usable {
            free.retain(|row| self.is_usable(self.begins_ms(Some(row))));
        } else {
            free.truncate(1);
        }
        let at = random_below(free.len());
        let chosen = free.into_iter().nth(at);
        Ok(chosen.map_or_else(|| self.none(), LeaseCandidate::Free))
    }

    /// Finds an id that has no row.
    async fn fresh(&self) -> Result<Option<u32>, DbErr> {
        let share = self.asked.share;
        if let Some(above) = self.above_all() {
            return Ok(Some(above));
        }
        if self.summary.lowest.is_some_and(|it| unsigned(it) > share.k) {
            return Ok(Some(share.k));
        }
        look::find_gap(self.database, &self.key, share.n, self.end()).await
    }

    /// Returns an id above all ids that have a row. After conflicts, this may be some ids further
    /// up.
    fn above_all(&self) -> Option<u32> {
        let Share { k, n } = self.asked.share;
        let highest = self.summary.highest.map(unsigned);
        let next = highest.map_or(k, |highest| highest.saturating_add(n));
        let further = next.saturating_add(random_below(self.spread()).saturating_mul(n));
        [further, next]
            .into_iter()
            .find(|worker| *worker < self.end() || faults::is(Fault::NoPoolEnd))
    }

    fn is_held(&self, row: &worker_lease::Model) -> bool {
        !row.ended && row.expires_at > self.summary.read.now_ms
    }

    /// Says whether an id may be taken, as far as the look can say.
    fn is_free(&self, row: &worker_lease::Model) -> bool {
        !self.is_held(row) || faults::is(Fault::NoLeaseConditions)
    }

    /// Returns how many ids there are, in all members together.
    fn end(&self) -> u32 {
        workers(self.asked.wanted.bits)
    }

    fn none(&self) -> LeaseCandidate {
        let workers = self.end();
        LeaseCandidate::Refused(LeaseError::NoneFree { workers })
    }

    /// Returns among how many ids the choice is made.
    fn spread(&self) -> u32 {
        Ord::min(2_u32.saturating_pow(self.asked.n_conflicts), MAX_SPREAD)
    }
}

fn random_below<T: SampleUniform + PartialOrd + Default>(bound: T) -> T {
    if bound <= T::default() {
        return bound;
    }
    rand::random_range(T::default()..bound)
}
