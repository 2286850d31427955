//! Worker ids that are leased, and the time that is reserved with them.
//!
//! A lease's row holds `reserved_until`: nothing is stamped at or past it, and the next holder of the
//! id starts at or above it. That alone keeps a time from being stamped twice; the lease says who may
//! have the id. Whether one has ended is judged by the database's clock, in the statement that gives
//! the id to the next one. `docs/adr/0019-worker-ids-are-leased-with-their-time.md` has the argument.

mod at_once;
mod attempt;
mod by_store;
mod choice;
mod fullness;
mod given;
mod holding;
mod known;
mod leasing;
mod listing;
mod look;
mod statements;
mod taking_back;
mod token;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{definition::Stripe, name::SequenceName};
use thiserror::Error;
use tokio::{sync::oneshot, task::JoinError};
use tracing::Instrument as _;

use self::{at_once::First, attempt::Doubt, token::Token};
use super::{kind::Store, stores::Stores};

pub(in crate::store) use choice::named_from;
pub(in crate::store) use fullness::watch_fullness;
pub(in crate::store) use given::{Given, watch};
pub(in crate::store) use known::Known;
pub(in crate::store) use leasing::Asking;

/// No clock of ours may be further ahead of the database's: nothing is reserved then.
pub(in crate::store) const MOST_AHEAD_MS: i64 = 5 * 60 * 1000;
/// The longest that another program may ask for a lease: after a recovery, which knows of no lease
/// that was forgotten, the ids of its pool rest for so long.
pub const LONGEST_TTL: Duration = Duration::from_secs(60 * 60);
/// The widest worker id, in bits.
pub const MOST_BITS: u32 = 22;
/// Pools of other programs in one database that were used of late.
pub(in crate::store) const MOST_POOLS: u64 = 1000;
/// Rows that are listed at once, and one more that tells whether there are any.
pub const MOST_LISTED: u64 = 10_000;

/// Where worker ids are leased from: 128 bytes of a name, with a `/` before those of sequences in the
/// table's key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pool {
    /// For other programs.
    Named(SequenceName),
    /// For the replicas that issue a sequence.
    Sequence(SequenceName),
}

impl Pool {
    /// As the table has it.
    fn key(&self) -> String {
        match self {
            Self::Named(name) => name.to_string(),
            Self::Sequence(name) => format!("/{name}"),
        }
    }
}

/// Which worker id is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The best of all: the former one of this holder, else one that was never used, else that whose
    /// unused time begins first.
    Any,
    /// This one and no other.
    Exact(u32),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct LeaseWanted {
    pub pool: Pool,
    /// Width of the ids: 1 to [`MOST_BITS`].
    pub bits: u32,
    /// Who: stays the same over restarts, so that a restarted one gets its former id back.
    pub holder: Arc<str>,
    /// So far ahead of the later one of both clocks time is reserved, and so long the lease lasts.
    pub ttl: Duration,
    pub choice: Choice,
    /// Only an id whose unused time begins at or before this moment of our clock (Unix ms).
    pub usable_by_ms: Option<i64>,
}

/// A lease that is held: the only way to renew or give back.
#[derive(Clone, Debug)]
pub struct LeaseKey {
    pub pool: Pool,
    pub worker: u32,
    token: Token,
    /// The row's, as it was last seen; 0 where it was not.
    version: i64,
    /// How many recoveries had been seen by then: the next one voids the lease.
    era: u64,
    /// The store's place in the configuration.
    store: usize,
}

impl LeaseKey {
    /// What the holder shows. Secret.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// What the row's version is at least in an era; a recovery since has voided the lease, and its
    /// row may be any.
    fn least_version(&self, era: u64) -> i64 {
        if self.era == era { self.version } else { 0 }
    }
}

/// A worker id, and the time that its holder may stamp with it.
#[derive(Clone, Debug)]
pub struct WorkerLease {
    pub key: LeaseKey,
    /// Stamp only times in [`from_ms`, `until_ms`), Unix ms.
    pub from_ms: i64,
    pub until_ms: i64,
    /// When it ends, by this process's own monotonic clock, counted from before the statement was sent.
    pub expires: Instant,
    /// For how long it was asked.
    pub ttl: Duration,
    /// The database's clock minus ours, ms, as of the statement.
    pub skew_ms: i64,
}

/// A row, as a listing or an explanation shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseRow {
    pub worker: u32,
    pub bits: u32,
    pub holder: String,
    /// Its last holder stamps nothing before it (Unix ms).
    pub from_ms: i64,
    /// Nobody has stamped anything at or past it yet (Unix ms).
    pub until_ms: i64,
    /// By the database's clock (Unix ms).
    pub expires_ms: i64,
    /// Whether it is held, by the database's clock.
    pub is_held: bool,
}

/// Why there is no lease.
#[derive(Clone, Debug, Error)]
pub enum LeaseError {
    #[error("all {workers} worker ids are taken")]
    NoneFree { workers: u32 },
    /// Only where it is said by when one has to be.
    #[error("no worker id can be used before {from_ms}")]
    NoneUsable { from_ms: i64 },
    #[error("somebody else has worker id {worker}")]
    Held { worker: u32 },
    #[error("the lease is lost")]
    Lost,
    #[error("the worker ids of the pool have {bits} bits")]
    OtherWidth { bits: u32 },
    #[error("our clock is {by_ms} ms ahead of the database's")]
    ClockAhead { by_ms: i64 },
    #[error("as many pools as allowed")]
    TooManyPools { limit: u64 },
    /// Time is given back that was not part of the lease.
    #[error("the lease is from {from_ms} until {until_ms}")]
    NotOfTheLease { from_ms: i64, until_ms: i64 },
    /// The schema knows no leases yet.
    #[error("the schema is too old for worker ids: run `odometer migrate`")]
    OldSchema,
    #[error("the database cannot be used now")]
    Unavailable,
    #[error("the attempts or the time are used up")]
    Deadline,
    #[error("the store holds less than was seen in it")]
    WentBack,
    /// A renewal or an end whose outcome was not told; to be asked again.
    #[error("it may have happened")]
    MayHaveHappened,
}

/// The worker ids that one database leases: those that leave `k` when divided by `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) struct Share {
    k: u32,
    n: u32,
}

impl Share {
    pub(in crate::store) fn of(stripe: Stripe) -> Self {
        Self {
            k: u32::from(stripe.k()),
            n: u32::from(stripe.n()),
        }
    }

    pub(in crate::store) fn has(self, worker: u32) -> bool {
        worker % self.n.max(1) == self.k
    }

    /// How many ids of this width are among them.
    fn size(self, bits: u32) -> u32 {
        workers(bits).saturating_sub(self.k).div_ceil(self.n.max(1))
    }

    /// Whether any id of this width is among them.
    pub(in crate::store) fn has_any(self, bits: u32) -> bool {
        self.k < workers(bits)
    }
}

/// How many ids of this width there are.
pub(in crate::store) fn workers(bits: u32) -> u32 {
    1 << bits.min(MOST_BITS)
}

/// Whole milliseconds of it.
fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

impl Stores {
    /// Leases a worker id. One that comes when nobody waits for it any more is given back with all of
    /// its time.
    ///
    /// # Errors
    /// Nobody got one by this call.
    pub async fn lease(
        self: &Arc<Self>,
        store: &str,
        wanted: LeaseWanted,
    ) -> Result<WorkerLease, LeaseError> {
        let index = self.index_of(store).ok_or(LeaseError::Unavailable)?;
        let mut asking = self.at(index).ask(wanted, index);
        let stores = Arc::clone(self);
        let (answer, receiver) = oneshot::channel();
        // Here first: what is done at once need not be handed to another thread.
        let leasing = async move {
            match stores.at(index).lease_first(&mut asking).await {
                Ok(None) => {
                    let handle = stores.at(index).handle().clone();
                    let going_on = async move {
                        let leased = stores.at(index).lease(asking).await;
                        stores.tell(answer, leased);
                    };
                    handle.spawn(going_on.in_current_span());
                }
                Ok(Some(lease)) => stores.tell(answer, Ok(lease)),
                Err(error) => stores.tell(answer, Err(error)),
            }
        };
        tokio::spawn(leasing.in_current_span());
        // Gone only with the store, at the end.
        receiver.await.unwrap_or(Err(LeaseError::Unavailable))
    }

    /// Renews a lease: what was reserved stays reserved, and more is. Without a `ttl` as long as it
    /// was asked for before.
    ///
    /// # Errors
    /// It stands as it stood, or as renewed with `MayHaveHappened`; asking again does no harm.
    pub async fn renew_lease(
        self: &Arc<Self>,
        key: &LeaseKey,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<WorkerLease, LeaseError> {
        let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
        let (key, ttl) = (key.clone(), ttl.into());
        to_its_end(async move {
            let until = Instant::now() + database.settings.deadline;
            let mut doubt = Doubt::default();
            if let Some(lease) = database.renew_first(&key, ttl, until, &mut doubt).await? {
                return Ok(lease);
            }
            let handle = database.handle().clone();
            let renewing = async move { database.renew_lease(&key, ttl, until, doubt).await };
            ended(handle.spawn(renewing.in_current_span()).await)
        })
        .await
    }

    /// Gives a lease back. Nothing was stamped at or after `unused_from_ms`; without that the id rests
    /// until all of its time has passed.
    ///
    /// # Errors
    /// It may be held until it expires; asking again does no harm.
    pub async fn give_back_lease(
        self: &Arc<Self>,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> Result<(), LeaseError> {
        let database = Arc::clone(self.at(key.store).database_of(key.worker)?);
        let key = key.clone();
        to_its_end(async move {
            let until = Instant::now() + database.settings.deadline;
            let mut doubt = Doubt::default();
            let began = Instant::now();
            let first = database.end_first(&key, unused_from_ms, until, &mut doubt);
            let met_since = match first.await? {
                First::Ended => return Ok(()),
                First::Unknown => None,
                First::Otherwise => Some(began),
            };
            let handle = database.handle().clone();
            let ending = async move {
                let ending =
                    database.give_back_lease(&key, unused_from_ms, until, doubt, met_since);
                ending.await
            };
            ended(handle.spawn(ending.in_current_span()).await)
        })
        .await
    }

    /// The lease that somebody shows a token of.
    ///
    /// # Errors
    /// `Lost` where it cannot be a token, `Unavailable` where there is no such store.
    pub fn lease_by_token(
        &self,
        store: &str,
        pool: &Pool,
        worker: u32,
        token: &str,
    ) -> Result<LeaseKey, LeaseError> {
        Ok(LeaseKey {
            pool: pool.clone(),
            worker,
            token: Token::parse(token).ok_or(LeaseError::Lost)?,
            version: 0,
            era: 0,
            store: self.index_of(store).ok_or(LeaseError::Unavailable)?,
        })
    }

    /// The ids of a pool that were ever leased, the lowest first, at most [`MOST_LISTED`].
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn leases(&self, store: &str, pool: &Pool) -> Result<Vec<LeaseRow>, LeaseError> {
        self.leases_after(store, pool, None, MOST_LISTED).await
    }

    /// As [`Stores::leases`], behind a worker id and at most so many.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn leases_after(
        &self,
        store: &str,
        pool: &Pool,
        after: Option<u32>,
        limit: u64,
    ) -> Result<Vec<LeaseRow>, LeaseError> {
        let store = self.store_of_leases(store)?;
        store
            .lease_rows(pool, after, limit.min(MOST_LISTED + 1))
            .await
    }

    /// One id of a pool; `None` where it was never leased.
    ///
    /// # Errors
    /// Why the store did not answer.
    pub async fn lease_row(
        &self,
        store: &str,
        pool: &Pool,
        worker: u32,
    ) -> Result<Option<LeaseRow>, LeaseError> {
        self.store_of_leases(store)?.lease_row(pool, worker).await
    }

    /// Tells who asked for a lease; where nobody waits for it any more it is given back.
    fn tell(
        &self,
        answer: oneshot::Sender<Result<WorkerLease, LeaseError>>,
        leased: Result<WorkerLease, LeaseError>,
    ) {
        if let Err(Ok(lease)) = answer.send(leased) {
            tracing::debug!("a lease that nobody waits for any more is given back");
            let store = self.at(lease.key.store);
            store.take_back(lease.key, lease.from_ms, lease.ttl);
        }
    }

    fn store_of_leases(&self, name: &str) -> Result<&Store, LeaseError> {
        let index = self.index_of(name).ok_or(LeaseError::Unavailable)?;
        Ok(self.at(index))
    }
}

/// Runs what must not stop half-way when its caller gives up.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, LeaseError>> + Send + 'static,
) -> Result<T, LeaseError> {
    ended(tokio::spawn(work.in_current_span()).await)
}

/// What came of a task, which only the end of this process stops.
fn ended<T>(outcome: Result<Result<T, LeaseError>, JoinError>) -> Result<T, LeaseError> {
    outcome.unwrap_or(Err(LeaseError::MayHaveHappened))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pools_of_sequences_and_of_other_programs_never_meet() {
        let name = SequenceName::parse(&"a".repeat(128)).unwrap();
        let (named, own) = (Pool::Named(name.clone()).key(), Pool::Sequence(name).key());
        assert_ne!(named, own);
        assert_eq!((named.len(), own.len()), (128, 129));
        // No name begins so, and every one sorts behind it.
        assert!(SequenceName::parse("/a").is_err());
        assert!(own < named && *"/" < *"0");
    }

    #[test]
    fn a_lease_says_nothing_of_its_row_after_a_recovery() {
        let key = LeaseKey {
            pool: Pool::Named(SequenceName::parse("billing").unwrap()),
            worker: 3,
            token: Token::draw(),
            version: 7,
            era: 1,
            store: 0,
        };
        assert_eq!((key.least_version(1), key.least_version(2)), (7, 0));
    }

    #[test]
    fn each_worker_id_belongs_to_one_database() {
        for n in 1..=5 {
            let shares = (0..n).map(|k| Share::of(Stripe::new(k, n).unwrap()));
            let shares: Vec<Share> = shares.collect();
            for worker in 0..workers(6) {
                let owners = shares.iter().filter(|share| share.has(worker));
                assert_eq!(owners.count(), 1, "{worker} of {n}");
            }
        }
        assert_eq!((workers(1), workers(10), workers(22)), (2, 1024, 1 << 22));
    }
}
