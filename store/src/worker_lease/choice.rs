//! Chooses the best worker id, from what is read of its pool.

use entity::worker_lease;
use odometer_database::session::DatabaseConnection;
use odometer_process::faults::{self, Fault};
use rand::distr::uniform::SampleUniform;
use sea_orm::DbErr;

use super::{
    lease::{LONGEST_TTL, MAX_AHEAD_MS, Share, WorkerChoice, millis},
    look::{self, LeaseCandidate, LeaseRead, LeaseRecoveryMark, PoolSummary, Question},
};

/// The most ids to choose among after conflicts.
const MAX_SPREAD: u32 = 64;

pub(crate) async fn look(
    database: DatabaseConnection,
    asked: Question,
) -> Result<LeaseRead, DbErr> {
    let mut head = look::read_pool(&database, &asked).await?;
    if head.bits.is_none() && asked.is_named {
        head.n_pools = look::count_pools(&database).await?;
    }
    let found = find(&database, &asked, &head).await?;
    Ok(LeaseRead { head, found })
}

async fn find(
    database: &DatabaseConnection,
    asked: &Question,
    head: &PoolSummary,
) -> Result<LeaseCandidate, DbErr> {
    for worker in &asked.uncertain {
        let row = look::read_row(database, &asked.pool, *worker).await?;
        let ours = row.filter(|row| row.token_hash == asked.token_hash && is_held(row, head));
        if let Some(row) = ours {
            return Ok(LeaseCandidate::Ours(row));
        }
    }
    let found = match asked.choice {
        WorkerChoice::Exact(worker) => find_exactly(database, asked, head, worker).await?,
        WorkerChoice::Any => find_any(database, asked, head).await?,
    };
    let from_ms = match &found {
        LeaseCandidate::Free(row) => begins(asked, head, Some(row)),
        LeaseCandidate::New(_) => begins(asked, head, None),
        LeaseCandidate::Ours(_)
        | LeaseCandidate::Held(_)
        | LeaseCandidate::Late(_)
        | LeaseCandidate::None => return Ok(found),
    };
    if !is_usable(asked, head, from_ms) {
        return Ok(LeaseCandidate::Late(from_ms));
    }
    Ok(found)
}

/// Says whether a lease whose time begins at `from_ms` has any time, and begins early enough.
fn is_usable(asked: &Question, head: &PoolSummary, from_ms: i64) -> bool {
    let until_ms = asked.clocks.until(head.clock.now_ms, asked.ttl);
    from_ms < until_ms && asked.usable_by_ms.is_none_or(|by| from_ms <= by)
}

/// Returns when the time begins in pools of other programs after a recovery. It does not matter
/// which version of the program recovered.
///
/// A lease of the longest length may have been forgotten. It was reserved by a clock at most
/// [`MAX_AHEAD_MS`] ahead of the database's clock. That clock may be as far ahead of the clock of
/// the recovery.
pub(crate) fn named_from(recovered_at: Option<i64>) -> i64 {
    let rest = millis(LONGEST_TTL).saturating_add(2 * MAX_AHEAD_MS);
    recovered_at.map_or(0, |at| at.saturating_add(rest))
}

impl LeaseRecoveryMark {
    /// Returns from when on the time of a pool's id is unused, at a moment of the database's clock.
    pub(crate) fn unused_from_ms(
        self,
        is_named: bool,
        row: Option<&worker_lease::Model>,
        now_ms: i64,
    ) -> i64 {
        if faults::is(Fault::NoReservedUntil) {
            return now_ms;
        }
        let reserved_until = row.map_or(0, |row| row.reserved_until);
        let from_ms = Ord::max(reserved_until, self.leases_from);
        if is_named {
            return Ord::max(from_ms, named_from(self.recovered_at));
        }
        from_ms
    }
}

fn begins(asked: &Question, head: &PoolSummary, row: Option<&worker_lease::Model>) -> i64 {
    head.recovery_mark
        .unused_from_ms(asked.is_named, row, head.clock.now_ms)
}

async fn find_exactly(
    database: &DatabaseConnection,
    asked: &Question,
    head: &PoolSummary,
    worker: u32,
) -> Result<LeaseCandidate, DbErr> {
    if worker >= asked.workers || !asked.share.has(worker) {
        return Ok(LeaseCandidate::None);
    }
    Ok(match look::read_row(database, &asked.pool, worker).await? {
        None => LeaseCandidate::New(worker),
        Some(row) if is_free(&row, head) => LeaseCandidate::Free(row),
        Some(_) => LeaseCandidate::Held(worker),
    })
}

async fn find_any(
    database: &DatabaseConnection,
    asked: &Question,
    head: &PoolSummary,
) -> Result<LeaseCandidate, DbErr> {
    let begins_at = |row: &worker_lease::Model| begins(asked, head, Some(row));
    let now_ms = head.clock.now_ms;
    if let Some(former) = head.former.filter(|_| asked.n_conflicts == 0)
        && let Some(row) = look::read_row(database, &asked.pool, former).await?
        && is_free(&row, head)
        && is_usable(asked, head, begins_at(&row))
    {
        return Ok(LeaseCandidate::Free(row));
    }
    let fresh_ms = begins(asked, head, None);
    let is_fresh_good = fresh_ms <= now_ms && is_usable(asked, head, fresh_ms);
    if is_fresh_good && let Some(fresh) = above_all(asked, head) {
        return Ok(LeaseCandidate::New(fresh));
    }
    let mut free = look::free_rows(database, asked, spread(asked)).await?;
    let first_ms = free.first().map(begins_at);
    let is_first_usable = first_ms.is_some_and(|first_ms| is_usable(asked, head, first_ms));
    let is_first_best = first_ms
        .is_some_and(|first_ms| first_ms < fresh_ms || (first_ms <= now_ms && is_first_usable));
    if !is_first_best && let Some(fresh) = fresh(database, asked, head).await? {
        return Ok(LeaseCandidate::New(fresh));
    }
    if is_first_usable {
        free.retain(|row| is_usable(asked, head, begins_at(row)));
    } else {
        free.truncate(1);
    }
    if free.is_empty() {
        return Ok(LeaseCandidate::None);
    }
    let among = usize::try_from(spread(asked)).unwrap_or(1);
    let at = random_below(Ord::min(among, free.len()));
    let chosen = free.into_iter().nth(at);
    Ok(chosen.map_or(LeaseCandidate::None, LeaseCandidate::Free))
}

/// Finds an id that has no row.
async fn fresh(
    database: &DatabaseConnection,
    asked: &Question,
    head: &PoolSummary,
) -> Result<Option<u32>, DbErr> {
    match above_all(asked, head) {
        Some(above) => Ok(Some(above)),
        None => look::find_gap(database, asked, head).await,
    }
}

fn is_held(row: &worker_lease::Model, head: &PoolSummary) -> bool {
    !row.ended && row.expires_at > head.clock.now_ms
}

/// Says whether an id may be taken, as far as the look can say.
fn is_free(row: &worker_lease::Model, head: &PoolSummary) -> bool {
    !is_held(row, head) || faults::is(Fault::NoLeaseConditions)
}

/// Returns an id above all ids that have a row. After conflicts, this may be some ids further up.
fn above_all(asked: &Question, head: &PoolSummary) -> Option<u32> {
    let Share { k, n } = asked.share;
    let next = head.highest.map_or(k, |highest| highest.saturating_add(n));
    let further = next.saturating_add(random_below(spread(asked)).saturating_mul(n));
    [further, next]
        .into_iter()
        .find(|worker| *worker < asked.workers || faults::is(Fault::NoPoolEnd))
}

fn spread(asked: &Question) -> u32 {
    Ord::min(2_u32.saturating_pow(asked.n_conflicts), MAX_SPREAD)
}

fn random_below<T: SampleUniform + PartialOrd + Default>(bound: T) -> T {
    if bound <= T::default() {
        return bound;
    }
    rand::random_range(T::default()..bound)
}
