//! Which worker id is the best to have, by what is read of its pool.

use entity::worker_lease;
use rand::distr::uniform::SampleUniform;
use sea_orm::DbErr;

use super::{
    Choice, Share,
    look::{self, Found, Head, Look, Question},
};
use crate::{
    sabotage::{self, Fault},
    store::connection::session::DatabaseConnection,
};

/// The most ids that are chosen among after conflicts.
const MOST_SPREAD: u32 = 64;

pub(super) async fn look(database: DatabaseConnection, asked: Question) -> Result<Look, DbErr> {
    let mut head = look::read_head(&database, &asked).await?;
    if head.bits.is_none() && asked.is_named {
        head.n_pools = look::count_pools(&database).await?;
    }
    let found = find(&database, &asked, &head).await?;
    Ok(Look { head, found })
}

async fn find(
    database: &DatabaseConnection,
    asked: &Question,
    head: &Head,
) -> Result<Found, DbErr> {
    if let Some(tried) = asked.tried
        && let Some(row) = look::read_row(database, &asked.pool, tried).await?
        && row.token_hash == asked.token_hash
        && !row.ended
    {
        return Ok(Found::Ours(row));
    }
    let found = match asked.choice {
        Choice::Exact(worker) => find_exactly(database, asked, head, worker).await?,
        Choice::Any => find_any(database, asked, head).await?,
    };
    let from_ms = match &found {
        Found::Free(row) => from_ms(Some(row), head),
        Found::New(_) => from_ms(None, head),
        Found::Ours(_) | Found::Held(_) | Found::Late(_) | Found::None => return Ok(found),
    };
    if asked.usable_by_ms.is_some_and(|by| from_ms > by) {
        return Ok(Found::Late(from_ms));
    }
    Ok(found)
}

/// From when on the time of an id is unused.
pub(super) fn from_ms(row: Option<&worker_lease::Model>, head: &Head) -> i64 {
    if sabotage::is(Fault::NoReservedUntil) {
        return head.clock.now_ms;
    }
    // A recovery has raised the rows that were there itself.
    row.map_or(head.leases_from, |row| row.reserved_until)
}

async fn find_exactly(
    database: &DatabaseConnection,
    asked: &Question,
    head: &Head,
    worker: u32,
) -> Result<Found, DbErr> {
    if worker >= asked.workers || !asked.share.has(worker) {
        return Ok(Found::None);
    }
    Ok(match look::read_row(database, &asked.pool, worker).await? {
        None => Found::New(worker),
        Some(row) if is_free(&row, head) => Found::Free(row),
        Some(_) => Found::Held(worker),
    })
}

async fn find_any(
    database: &DatabaseConnection,
    asked: &Question,
    head: &Head,
) -> Result<Found, DbErr> {
    let is_usable = |row: &worker_lease::Model| {
        asked
            .usable_by_ms
            .is_none_or(|by| from_ms(Some(row), head) <= by)
    };
    if let Some(former) = head.former.filter(|_| asked.n_conflicts == 0)
        && let Some(row) = look::read_row(database, &asked.pool, former).await?
        && is_free(&row, head)
        && is_usable(&row)
    {
        return Ok(Found::Free(row));
    }
    if let Some(fresh) = above_all(asked, head) {
        return Ok(Found::New(fresh));
    }
    let mut free = look::free_rows(database, asked, spread(asked)).await?;
    let is_first_usable = free.first().is_some_and(is_usable);
    let has_passed = free
        .first()
        .is_some_and(|row| row.reserved_until <= head.clock.now_ms);
    if !(has_passed && is_first_usable)
        && let Some(gap) = look::find_gap(database, asked, head).await?
    {
        return Ok(Found::New(gap));
    }
    if is_first_usable {
        free.retain(is_usable);
    }
    if free.is_empty() {
        return Ok(Found::None);
    }
    let among = usize::try_from(spread(asked)).unwrap_or(1);
    let at = random_below(Ord::min(among, free.len()));
    let chosen = free.into_iter().nth(at);
    Ok(chosen.map_or(Found::None, Found::Free))
}

/// Whether somebody may take it, as far as the look can say.
fn is_free(row: &worker_lease::Model, head: &Head) -> bool {
    row.ended || row.expires_at <= head.clock.now_ms || sabotage::is(Fault::NoLeaseConditions)
}

/// An id above all that have a row; a little further up after conflicts.
fn above_all(asked: &Question, head: &Head) -> Option<u32> {
    let Share { k, n } = asked.share;
    let next = head.highest.map_or(k, |highest| highest.saturating_add(n));
    let further = next.saturating_add(random_below(spread(asked)).saturating_mul(n));
    [further, next]
        .into_iter()
        .find(|worker| *worker < asked.workers)
}

fn spread(asked: &Question) -> u32 {
    Ord::min(2_u32.saturating_pow(asked.n_conflicts), MOST_SPREAD)
}

fn random_below<T: SampleUniform + PartialOrd + Default>(bound: T) -> T {
    if bound <= T::default() {
        return bound;
    }
    rand::random_range(T::default()..bound)
}
