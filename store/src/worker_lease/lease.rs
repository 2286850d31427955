//! Defines leases of worker ids, and how the databases of a store share the ids.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{definition::Stripe, name::SequenceName};
use thiserror::Error;

use crate::worker_lease::token::Token;

/// If our clock is further ahead of the database's clock than this, no time is reserved. In
/// milliseconds.
pub(crate) const MAX_AHEAD_MS: i64 = 5 * 60 * 1000;

/// The longest lease that another program may ask for. A recovery does not know of leases that were
/// forgotten, so the ids of these pools then rest for at least this long.
pub const LONGEST_TTL: Duration = Duration::from_secs(60 * 60);

/// The widest worker id, in bits.
pub const MAX_BITS: u32 = 22;

/// The most pools of other programs that may be in use in one database.
pub(crate) const MAX_POOLS: u64 = 1000;

/// The most rows of one listing. [`Stores::leases_after`](crate::Stores::leases_after) may read one
/// more, to show whether more rows follow.
pub const MAX_LISTED: u64 = 10_000;

/// A pool that worker ids are leased from. Its name has at most 128 bytes. In the table's key, a
/// `/` stands before the name of a sequence.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WorkerPool {
    /// A pool for other programs.
    Named(SequenceName),
    /// A pool for the replicas that issue a sequence.
    Sequence(SequenceName),
}

impl WorkerPool {
    /// Returns the name of the pool, or of the sequence.
    pub fn name(&self) -> &SequenceName {
        match self {
            Self::Named(name) | Self::Sequence(name) => name,
        }
    }

    /// Returns the pool's key in the table.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Named(name) => name.to_string(),
            Self::Sequence(name) => format!("/{name}"),
        }
    }

    /// Says whether the pool is for other programs. Their pools are bounded in number.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self, Self::Named(_))
    }
}

/// Which worker id is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerChoice {
    /// The best id: the former one of this holder, else one that was never used, else the one whose
    /// unused time begins first.
    Any,
    /// This id and no other.
    Exact(u32),
}

/// What a caller asks for.
#[derive(Clone, Debug)]
pub struct LeaseWanted {
    pub pool: WorkerPool,
    /// The width of the ids, in bits: 1 to [`MAX_BITS`].
    pub bits: u32,
    /// The name of the holder. It stays the same over restarts, so that a restarted holder gets its
    /// former id back.
    pub holder: Arc<str>,
    /// How long the lease lasts, and how far ahead of the later of both clocks time is reserved.
    pub ttl: Duration,
    pub choice: WorkerChoice,
    /// Only an id whose unused time begins at or before this moment of our clock is wanted (Unix
    /// ms).
    pub usable_by_ms: Option<i64>,
}

/// A lease that is held. The holder needs it to renew the lease and to give it back.
#[derive(Clone, Debug)]
pub struct LeaseKey {
    pub pool: WorkerPool,
    pub worker: u32,
    pub(crate) token: Token,
    /// The row's version, as it was last seen. 0 if it was not seen.
    pub(crate) version: i64,
    /// How many recoveries had been seen by then. The next recovery voids the lease.
    pub(crate) n_recoveries: u64,
    /// The store's place in the configuration.
    pub(crate) store: usize,
}

impl LeaseKey {
    /// Returns the token that the holder shows. It is secret.
    pub fn token(&self) -> &str {
        self.token.as_str()
    }

    /// Returns the least version that the row can have after `n_recoveries` recoveries. After
    /// another recovery the lease is void, and its row may have any version.
    pub(crate) fn least_version(&self, n_recoveries: u64) -> i64 {
        if self.n_recoveries == n_recoveries {
            self.version
        } else {
            0
        }
    }
}

/// A worker id, and the time for which its holder may issue ids.
#[derive(Clone, Debug)]
pub struct LeaseGrant {
    pub key: LeaseKey,
    /// The first time that the holder may use (Unix ms). The times end before `until_ms`.
    pub from_ms: i64,
    pub until_ms: i64,
    /// When the lease ends, by this process's own monotonic clock. It is counted from before the
    /// statement was sent.
    pub expires: Instant,
    /// How long the lease was asked for.
    pub ttl: Duration,
    /// How far ahead time is reserved, at most as long as that.
    pub reach: Duration,
    /// The database's clock minus ours, in milliseconds, when the statement ran.
    pub skew_ms: i64,
}

/// A row, as a listing or an explanation shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseRow {
    pub worker: u32,
    pub bits: u32,
    pub holder: String,
    /// The last holder issues no id with a time before this (Unix ms).
    pub from_ms: i64,
    /// No id was issued with a time at or after this yet (Unix ms).
    pub until_ms: i64,
    /// When the lease ends, by the database's clock (Unix ms).
    pub expires_ms: i64,
    /// Whether the lease is held, by the database's clock.
    pub is_held: bool,
}

/// Why there is no lease. The message is public.
#[derive(Clone, Debug, Error)]
pub enum LeaseError {
    #[error(
        "All {workers} worker ids of the pool are taken. An id is free when its lease ends or is \
         given back."
    )]
    NoneFree { workers: u32 },
    /// There is a free id, but its unused time begins too late. It begins after the wanted moment,
    /// or after all time that the lease would reserve.
    #[error("The unused time of each free worker id begins later, at {from_ms} (Unix ms) first.")]
    NoneUsable { from_ms: i64 },
    /// Somebody else has the id that was asked for.
    #[error("Somebody else has worker id {worker}.")]
    Held { worker: u32 },
    #[error(
        "The lease is lost: it is not the holder's, was given back or released, or ended and \
         somebody else has the id. Stamp nothing any more, and lease a worker id again."
    )]
    Lost,
    #[error("`bits` cannot change any more: the worker ids of this pool have {bits} bits.")]
    OtherWidth { bits: u32 },
    #[error(
        "The clock of this replica is {} s ahead of the database's clock, more than 5 minutes. The \
         replica reserves no time; see the runbook, \"Clocks apart\".", .by_ms / 1000
    )]
    ClockAhead { by_ms: i64 },
    #[error("There are {limit} pools, as many as there may be; use one that is there.")]
    TooManyPools { limit: u64 },
    /// The time that is given back was not part of the lease.
    #[error("`unused_from_ms` has to lie in the time of the lease, from {from_ms} to {until_ms}.")]
    NotOfTheLease { from_ms: i64, until_ms: i64 },
    #[error("The database gives no worker ids now; try again.")]
    Unavailable,
    /// The attempts or the time are used up.
    #[error("It could not be done in time; try again.")]
    Deadline,
    #[error(
        "The database holds less than this replica has seen in it: it was restored or failed over. \
         No worker id is leased until an operator has looked; see the runbook, \"store went back\"."
    )]
    WentBack,
    /// The outcome of a call is unknown. Ask again.
    #[error(
        "The database has not said whether it was done: it may have been. Asking again is safe."
    )]
    MayHaveHappened,
}

/// The worker ids that one database leases: those with remainder `k` when they are divided by `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) k: u32,
    pub(crate) n: u32,
}

impl Share {
    pub(crate) fn of(stripe: Stripe) -> Self {
        Self {
            k: u32::from(stripe.k()),
            n: u32::from(stripe.n()),
        }
    }

    pub(crate) fn has(self, worker: u32) -> bool {
        worker % self.n.max(1) == self.k
    }

    /// Counts the ids of this width in the share.
    pub(crate) fn size(self, bits: u32) -> u32 {
        workers(bits).saturating_sub(self.k).div_ceil(self.n.max(1))
    }

    /// Says whether the share has any id of this width.
    pub(crate) fn has_any(self, bits: u32) -> bool {
        self.k < workers(bits)
    }
}

/// Returns how many ids of this width there are.
pub(crate) fn workers(bits: u32) -> u32 {
    1 << bits.min(MAX_BITS)
}

/// Returns the number as its column has it.
pub(crate) fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns the number of a column.
pub(crate) fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Returns the time in whole milliseconds.
pub(crate) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pools_of_sequences_and_of_other_programs_never_meet() {
        let name = SequenceName::parse(&"a".repeat(128)).unwrap();
        let (named, own) = (
            WorkerPool::Named(name.clone()).key(),
            WorkerPool::Sequence(name).key(),
        );
        assert_ne!(named, own);
        assert_eq!((named.len(), own.len()), (128, 129));
        // No name begins with `/`, and every name sorts after it.
        assert!(SequenceName::parse("/a").is_err());
        assert!(own < named && *"/" < *"0");
    }

    #[test]
    fn a_lease_says_nothing_of_its_row_after_a_recovery() {
        let key = LeaseKey {
            pool: WorkerPool::Named(SequenceName::parse("billing").unwrap()),
            worker: 3,
            token: Token::draw(),
            version: 7,
            n_recoveries: 1,
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
